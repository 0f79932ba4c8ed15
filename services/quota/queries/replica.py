"""A copy of the leader's state, kept up to date from the streams by a process that decides nothing.

The console answers from it as the leader would, without asking the leader: the same engine applies the
same facts. Only scheduling cycles are left out; their results come back on the log, as decisions.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from services.quota.decider import Decider
from services.quota.engine import Policy
from services.quota.engine.facts import (
    CheckStateChanged,
    EvictionRequested,
    WorkloadDrained,
)
from services.quota.engine.views.balances import NodeBalance
from services.quota.queries.explainer import Explainer
from services.quota.settings import QuotaSettings
from services.quota.wire.entries import message_type
from services.quota.wire.inbound import nanoseconds
from shared.bus.port import Entry
from shared.contracts.messages.admissions import HOLDING, Admission, Term
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.explain import (
    ExplainAnswer,
    ExplainRequest,
    Explanation,
    PositionsAnswer,
    PositionsRequest,
)
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import PENDING_EVALUATION
from shared.contracts.refs import WorkloadRef
from shared.settings.configuration import Configuration

CLAIMS: Final = "WaitingForPreemptedWorkloads"
_FOUND_BY_CYCLES: Final = frozenset({CLAIMS, "WaitingForQuota"})
"""Reasons that only a scheduling cycle finds; without cycles the engine would expect an admission."""


class ReadReplica:
    """The state of the leader, a moment later."""

    def __init__(
        self, settings: QuotaSettings | None = None, configuration: Configuration | None = None
    ) -> None:
        self._decider = Decider(settings or QuotaSettings(), configuration, follows=True)
        self._explainer = Explainer(self._decider)
        self.admissions: dict[WorkloadRef, Admission] = {}
        """The last decision about each workload."""

    # --- in ----------------------------------------------------------------------------------------

    def apply(self, stream: str, entry: Entry) -> WorkloadRef | None:
        """Apply one message of an input; return the workload that it changes, if any.

        Raises `UndecodableError`.
        """
        message = entry.read(message_type(stream, entry.subject))
        if isinstance(message, Term):
            return None
        if isinstance(message, Admission):
            self._apply_admission(message)
            return message.ref
        self._decider.apply(message)
        if isinstance(message, CheckState):
            return message.ref
        if not isinstance(message, WorkloadState):
            return None
        if message.phase == "gone":
            self.admissions.pop(message.ref, None)
        return message.ref

    def _apply_admission(self, admission: Admission) -> None:
        before = self.admissions.get(admission.ref)
        self.admissions[admission.ref] = admission
        if before is not None and before.uid == admission.uid and before.state in HOLDING:
            self._release(before, admission)
        self._decider.restore(admission)
        state = self._decider.state_of(admission)
        if admission.state == "waiting" and state is not None:
            # The decision may have moved it in its queue, which the state alone does not tell.
            self._decider.apply(state)

    def _release(self, before: Admission, now: Admission) -> None:
        """Repeat what a cycle of the leader did: it took quota back, or evicted the holder."""
        if now.state == before.state:
            return
        common: dict[str, Any] = {
            "cluster": now.cluster,
            "namespace": now.namespace,
            "name": now.name,
            "uid": now.uid,
        }
        if before.state != "evicted":
            requeue_at = None if now.requeue_at is None else nanoseconds(now.requeue_at)
            self._decider.engine.apply(
                EvictionRequested(
                    **common,
                    reason="Preempted" if now.preempted_by else now.reason or now.state,
                    message=now.message,
                    at=nanoseconds(now.queued_at or now.decided_at),
                    requeue_at=requeue_at,
                    loses_position=now.queued_at is not None,
                )
            )
        if now.state != "evicted":
            self._decider.engine.apply(WorkloadDrained(**common))

    def advance(self, now: datetime) -> None:
        """Let time pass in the engine, and drop its decisions."""
        self._decider.engine.decide(nanoseconds(now), admit=False)

    # --- out ---------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The engine's policy."""
        return self._decider.engine.policy

    def states(self) -> Iterator[WorkloadState]:
        """Every known workload, finished ones included."""
        yield from self._decider.states()

    def unready_checks(self, ref: WorkloadRef) -> dict[str, CheckStateChanged | None]:
        """The admission checks that a workload with quota still waits for: see the explainer."""
        return self._explainer.unready_checks(ref)

    def positions(self, request: PositionsRequest) -> PositionsAnswer:
        """Who waits, in order."""
        return self._explainer.positions(request)

    def balances(self) -> dict[str, list[NodeBalance]]:
        """By cluster, where the quota of every ClusterQueue and cohort is."""
        engine = self._decider.engine
        return {shard.name: engine.balances(shard.name) for shard in engine.shards()}

    def explain(self, request: ExplainRequest) -> ExplainAnswer:
        """Why a workload waits, as of the last `advance`."""
        answer = self._explainer.explain(request)
        return answer.replace(items=[self._with_published_reason(item) for item in answer.items])

    def _with_published_reason(self, item: Explanation) -> Explanation:
        """The explanation with the leader's published reason, where only the leader could find it."""
        admission = self.admissions.get(WorkloadRef(item.cluster, item.namespace, item.name))
        if (
            admission is None
            or admission.state != "waiting"
            or item.reason != PENDING_EVALUATION
            or admission.reason not in _FOUND_BY_CYCLES
            or item.requeue_at is not None
        ):
            return item
        changes: dict[str, object] = {"reason": admission.reason, "message": admission.message}
        if admission.reason == CLAIMS:
            here, elsewhere = self._victims(item)
            text = f"Pending the preemption of {len(here) + elsewhere} workload(s)"
            changes |= {"message": text, "shortages": []}
            changes |= {"victims": here, "victims_elsewhere": elsewhere}
            changes["remedy"] = "their pods must end"
        else:
            changes["remedy"] = "what the message names must change"
        return item.replace(**changes)

    def _victims(self, item: Explanation) -> tuple[list[str], int]:
        """Names of its victims in its namespace, and the number of its other victims."""
        key = f"{item.namespace}/{item.name}"
        found = [
            admission
            for admission in self.admissions.values()
            if admission.preempted_by == key
            and admission.state == "evicted"
            and admission.cluster == item.cluster
        ]
        here = sorted(each.name for each in found if each.namespace == item.namespace)
        return here, len(found) - len(here)

    def drift(self, statuses: list[QueueStatus]) -> list[str]:
        """Sentences about counts that differ between the leader's statuses and this replica."""
        problems = []
        for status in statuses:
            engine = self._decider.engine
            if status.kind == "ClusterQueue":
                view = engine.cluster_queue(status.cluster, status.name)
            else:
                view = engine.local_queue(status.cluster, f"{status.namespace}/{status.name}")
            known = None if view is None else (view.pending, view.reserving, view.admitted)
            counts = (status.pending, status.reserving, status.admitted)
            if known != counts:
                problems.append(
                    f"{status.kind} {status.name}: {known} here, {counts} by the leader"
                )
        return problems
