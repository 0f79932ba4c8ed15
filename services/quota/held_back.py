"""Workloads that are not admitted because a message about them cannot be used.

What such a workload holds it keeps. It is held back until its next state that can be used; after an
unusable decision, until its next state in which it asks something else.
"""

from typing import Final

from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef

WHY_MAX: Final = 500
"""Characters of an error that a reason quotes."""


class HeldBack:
    """By workload and stream, why the message on that stream cannot be used."""

    def __init__(self) -> None:
        self._reasons: dict[WorkloadRef, dict[str, str]] = {}

    def add(self, ref: WorkloadRef, stream: str, why: str) -> None:
        """Hold back a workload."""
        text = f"its message in {stream} cannot be used: {why[:WHY_MAX]}"
        self._reasons.setdefault(ref, {})[stream] = text

    def on_outcome(self, outcome: Outcome) -> bool:
        """Hold back the workload of a decision that cannot be carried out; lift that once it can.

        Returns whether anything changed.
        """
        reasons = self._reasons.get(outcome.ref, {})
        if outcome.result == "refused":
            self._reasons[outcome.ref] = reasons | {outcome.stream: outcome.message[:WHY_MAX]}
            return True
        return self.lift(outcome.ref, outcome.stream)

    def lift(self, ref: WorkloadRef, stream: str) -> bool:
        """Hold back no more because of a message on `stream`; return whether anything changed."""
        reasons = self._reasons.get(ref, {})
        lifted = reasons.pop(stream, None) is not None
        if lifted and not reasons:
            del self._reasons[ref]
        return lifted

    def on_workload(self, state: WorkloadState, before: WorkloadState | None) -> None:
        """Forget the reasons that this state ends; `before` is the state before it."""
        reasons = self._reasons.get(state.ref)
        if reasons is None:
            return
        reasons.pop(WorkloadState.stream, None)
        is_new = before is not None and (before.uid, before.generation) != (
            state.uid,
            state.generation,
        )
        if is_new or not reasons or state.phase == "gone":
            del self._reasons[state.ref]

    def why(self, ref: WorkloadRef) -> str | None:
        """Why a workload is held back, in words; None: it is not."""
        return "; ".join(self._reasons.get(ref, {}).values()) or None

    def find(self, namespace: str, name: str, cluster: str | None) -> str | None:
        """As `why`, in one cluster or in any of them."""
        for ref in self._reasons:
            if (ref.namespace, ref.name) == (namespace, name) and cluster in {None, ref.cluster}:
                return self.why(ref)
        return None
