"""Which answers of admission checks count: those of the check's own controller.

`spec.controllerName` of the AdmissionCheck says who that is. A service of ours answers on the bus, under a
subject that ends with its name. Every other controller answers in the Workload's status, which the
classifier repeats. An answer that comes before its AdmissionCheck waits for it: one stream may be behind.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.quota.engine.facts import CheckStateChanged
from services.quota.trust.recorded_checks import RecordedChecks
from services.quota.trust.refusals import AnswerRule, refuse
from services.quota.wire.outbound import to_check_fact
from shared.contracts.controllers import MULTIKUEUE, OWN_CONTROLLERS, may_answer
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef

EARLY_MAX: Final = 10_000
"""Answers that wait for their AdmissionChecks: streams are behind for moments only."""

_Check = tuple[str, str]
"""Cluster and name of an AdmissionCheck."""


class CheckAnswers:
    """The answers of one term, and who may give them."""

    def __init__(self, *, is_known: Callable[[WorkloadRef], bool], counts: bool) -> None:
        """`is_known`: whether a workload exists. `counts`: count and log what is refused."""
        self._is_known = is_known
        self._counts = counts
        self._controllers: dict[_Check, str] = {}
        self._early: dict[tuple[WorkloadRef, str], CheckState] = {}
        """By workload and check: answers of checks that were not observed yet."""

        self._latest: dict[WorkloadRef, dict[str, CheckState]] = {}
        """Latest answer of each check, by name."""

        self._spokes: dict[WorkloadRef, tuple[str, str]] = {}
        """(uid of the workload, the spoke that it runs on)."""

        self._recorded = RecordedChecks(self._is_foreign)

    def observe(
        self, observed: Observed, states: Iterable[WorkloadState]
    ) -> Iterator[CheckStateChanged]:
        """Record an AdmissionCheck; what had waited for it follows. `states`: of all workloads."""
        if (observed.group, observed.plural) != (ADMISSION_CHECK.group, ADMISSION_CHECK.plural):
            return
        check = (observed.cluster, observed.name)
        controller = str(spec_of(observed.body).get("controllerName") or "")
        if observed.deleted or self._controllers.get(check) == controller:
            return
        self._controllers[check] = controller
        for ref, name in [*self._early]:
            if (ref.cluster, name) == check:
                yield from self.facts(self._early.pop((ref, name)))
        for state in states:
            if state.cluster == observed.cluster:
                yield from self._recorded.facts(state)

    def facts(self, answer: CheckState) -> Iterator[CheckStateChanged]:
        """The fact that follows from an answer on the bus, if it counts."""
        controller = self._controllers.get((answer.cluster, answer.check))
        if controller is None and len(self._early) < EARLY_MAX:
            self._early[answer.ref, answer.check] = answer
            return
        if (rule := _broken_rule(answer, controller)) is not None:
            if self._counts:
                service = answer.service or "no service"
                refuse(
                    answer, rule, check=answer.check, controller=controller, service=service,
                    spoke=answer.spoke,
                )  # fmt: skip
            return
        if self._is_known(answer.ref):
            self._latest.setdefault(answer.ref, {})[answer.check] = answer
            if answer.spoke:
                self._spokes[answer.ref] = (answer.uid, answer.spoke)
        yield to_check_fact(answer)

    def recorded_facts(self, state: WorkloadState) -> Iterator[CheckStateChanged]:
        """The facts that follow from the answers in a Workload's status."""
        return self._recorded.facts(state)

    def on_decision(self, admission: Admission, state: WorkloadState | None) -> None:
        """Hold recorded answers for void if the decision takes the quota back."""
        self._recorded.on_decision(admission, state)

    def of(self, ref: WorkloadRef, uid: str) -> dict[str, CheckState]:
        """The latest answer of each check of a workload, by name."""
        checks = self._latest.get(ref, {})
        return {name: check for name, check in checks.items() if check.uid == uid}

    def spoke_of(self, ref: WorkloadRef, uid: str) -> str | None:
        """The spoke that the MultiKueue check chose; None if it chose none."""
        of, spoke = self._spokes.get(ref, ("", None))
        return spoke if of == uid else None

    def forget(self, ref: WorkloadRef) -> None:
        """Forget a workload that is gone."""
        self._latest.pop(ref, None)
        self._spokes.pop(ref, None)
        self._recorded.forget(ref)

    def _is_foreign(self, cluster: str, check: str) -> bool:
        """Whether another controller answers the check in the Workload's status; False if it is unknown."""
        controller = self._controllers.get((cluster, check))
        return controller is not None and controller not in OWN_CONTROLLERS


def _broken_rule(answer: CheckState, controller: str | None) -> AnswerRule | None:
    """The rule by which an answer is refused; None: it counts."""
    if controller is None:
        return AnswerRule.UNKNOWN_CHECK
    if not may_answer(controller, answer.service):
        return AnswerRule.ANSWERER
    return AnswerRule.SPOKE if answer.spoke and controller != MULTIKUEUE else None
