"""Answers of the admission checks beside MultiKueue's: a copy is offered once all of them are ready.

Our services answer on the bus. Every other controller answers in the Workload's status, which the classifier
repeats in `WorkloadState.checks` (ADR 97). As in quota, an answer counts only where the controller of its
check gives it, and the times of answers are compared in whole seconds.
"""

from collections.abc import Iterator

from services.dispatcher.hub.configuration import MultiKueueConfiguration
from shared.contracts.controllers import may_answer
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.workloads import RecordedCheck, WorkloadState
from shared.contracts.refs import WorkloadRef


class OtherChecks:
    """The answers of one term about the workloads of the hub."""

    def __init__(self, configuration: MultiKueueConfiguration) -> None:
        self._configuration = configuration
        self._answers: dict[WorkloadRef, dict[tuple[str, str], CheckState]] = {}
        """The last answer on the bus, by name of the check and by who answers."""

        self._states: dict[WorkloadRef, WorkloadState] = {}
        """Of workloads whose status has answers."""

        self._void: dict[WorkloadRef, list[RecordedCheck]] = {}
        """Recorded answers that were there when quota was taken back: they are about no later reservation."""

    def observe_answer(self, answer: CheckState) -> None:
        """Record an answer on the bus."""
        self._answers.setdefault(answer.ref, {})[answer.check, answer.service] = answer

    def observe_workload(self, state: WorkloadState) -> bool:
        """Record the answers in a Workload's status; return whether they changed."""
        before = self._states.pop(state.ref, None)
        if state.checks and state.phase != "gone":
            self._states[state.ref] = state
        if state.phase == "gone" or (state.checks and state.checks != self._void.get(state.ref)):
            self._void.pop(state.ref, None)
        return (before.checks if before is not None else []) != state.checks

    def on_quota_lost(self, workload: WorkloadRef) -> None:
        """Forget what was answered about a reservation that is over."""
        self._answers.pop(workload, None)
        if (state := self._states.get(workload)) is not None:
            self._void[workload] = state.checks

    def forget(self, workload: WorkloadRef, check: str, service: str) -> None:
        """Forget an answer on the bus."""
        answers = self._answers.get(workload, {})
        answers.pop((check, service), None)
        if not answers:
            self._answers.pop(workload, None)

    def pending(self, admission: Admission) -> tuple[str, ...]:
        """Checks of other controllers that are not ready for this reservation."""
        ready = {*self._ready_on_bus(admission), *self._ready_in_status(admission)}
        is_ours = self._configuration.is_multikueue_check
        return tuple(n for n in admission.checks if n not in ready and not is_ours(n))

    def _ready_on_bus(self, admission: Admission) -> Iterator[str]:
        since = admission.decided_at.replace(microsecond=0)
        for answer in self._answers.get(admission.ref, {}).values():
            controller = self._configuration.controller_of(answer.check)
            counts = answer.uid == admission.uid and answer.at >= since
            if answer.state == "Ready" and counts and may_answer(controller, answer.service):
                yield answer.check

    def _ready_in_status(self, admission: Admission) -> Iterator[str]:
        since = admission.decided_at.replace(microsecond=0)
        state = self._states.get(admission.ref)
        if state is None or state.uid != admission.uid or state.evicted:
            return
        if state.checks == self._void.get(admission.ref):
            return
        for check in state.checks:
            is_foreign = self._configuration.is_foreign_check(check.check)
            if check.state == "Ready" and check.at >= since and is_foreign:
                yield check.check
