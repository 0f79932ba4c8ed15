"""Answers of admission checks that their controllers write into the Workload object, as facts.

Our own services answer on the bus instead. What a Workload records is older than the last decision about it,
until its controller has seen that decision: an answer to an earlier reservation must not admit the next one.
"""

from collections.abc import Callable, Iterator

from services.quota.engine.facts import CheckStateChanged
from services.quota.wire.inbound import nanoseconds
from services.quota.wire.workloads import identity
from shared.contracts.messages.admissions import GRANTED, Admission
from shared.contracts.messages.workloads import RecordedCheck, WorkloadState
from shared.contracts.refs import WorkloadRef

SECOND = 1_000_000_000


class RecordedChecks:
    """The recorded answers of one term. Keeps those that an eviction has made void."""

    def __init__(self, is_foreign: Callable[[str, str], bool]) -> None:
        """`is_foreign`: whether a cluster's check is answered in the Workload's status."""
        self._is_foreign = is_foreign
        self._void: dict[WorkloadRef, list[RecordedCheck]] = {}

    def facts(self, state: WorkloadState) -> Iterator[CheckStateChanged]:
        """The answers to the present reservation; none while the workload is being evicted."""
        if not state.checks or self._void.get(state.ref) == state.checks:
            return
        self._void.pop(state.ref, None)
        for check in () if state.evicted else state.checks:
            if not self._is_foreign(state.cluster, check.check):
                continue
            yield CheckStateChanged(
                **identity(state),
                check=check.check,
                state=check.state,
                message=check.message,
                at=nanoseconds(check.at),
                retry_after=(check.requeue_after_seconds or 0) * SECOND,
            )

    def on_decision(self, admission: Admission, state: WorkloadState | None) -> None:
        """Hold the present answers for void if the decision takes the quota back."""
        if admission.state in GRANTED:
            return
        if state is not None and state.checks:
            self._void[admission.ref] = state.checks

    def forget(self, ref: WorkloadRef) -> None:
        """Forget a workload that is gone."""
        self._void.pop(ref, None)
