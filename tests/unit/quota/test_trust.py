"""What quota believes of spokes, patchers and services that answer checks."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.quota.decider import Decider
from services.quota.settings import QuotaSettings
from services.quota.trust.outcomes import is_believed
from shared.contracts.controllers import MACHINES, MULTIKUEUE, WINDOW
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import RecordedCheck, WorkloadState
from shared.testing.builders import cluster_queue_spec, observed, workload
from tests.unit.quota.service_setup import NOON, Setup, became

FOREIGN = "example.com/scanner"


def refused(message: str) -> float:
    """How many messages of a sort were refused so far."""
    [metric] = [m for m in REGISTRY.collect() if m.name == "sluicegate_refused_messages"]
    ours = (s for s in metric.samples if s.name.endswith("_total"))
    return sum(s.value for s in ours if s.labels["message"] == message)


def report(cluster: str = "hub", **more: Any) -> Outcome:
    usual = {
        "namespace": "team", "name": "x", "uid": "u-x", "result": "applied", "action": "suspend",
        "term": 1, "number": 1, "at": NOON,
    }  # fmt: skip
    return Outcome(cluster=cluster, **{**usual, **more})


# Terms -----------------------------------------------------------------------------------------

FAR = 10**18
TERMS: dict[str, tuple[dict[str, Any], bool]] = {
    "a spoke about its own work": ({"cluster": "west", "term": FAR}, True),
    "the hub's patcher": ({"term": FAR}, True),
    "more digits than a header has": ({"term": 10**40}, True),
    "an hour and a minute ahead": ({"ahead": 3_660}, True),
    "a little ahead, about a workload that does not exist": ({"ahead": 600, "name": "none"}, False),
    "a little ahead, about another of that name": ({"ahead": 600, "uid": "another"}, False),
    "a little ahead, a spoke about a job of the hub": (
        {"ahead": 600, "cluster": "west", "uid": "u-x"}, False),
}  # fmt: skip


@pytest.mark.parametrize(("said", "counts"), TERMS.values(), ids=TERMS)
async def test_outcome_does_not_move_the_term(
    setup: Setup, said: dict[str, Any], counts: bool
) -> None:
    await setup.cluster()
    await setup.workload("x")
    await setup.bus.publish(workload("x", cluster="west", uid="u-west"))
    said = {"cluster": "hub", "uid": "u-west" if "cluster" in said else "u-x", **said}
    if (ahead := said.pop("ahead", None)) is not None:
        said["term"] = int(datetime.now(UTC).timestamp()) + ahead
    before = refused("outcome")
    await setup.bus.publish(report(**said))
    await setup.start_quota()
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).term <= datetime.now(UTC).timestamp()
    assert refused("outcome") - before == counts


# Decisions to come, and checks -----------------------------------------------------------------


class Stage:
    """A decider of a queue of one cpu with one check; its decisions are numbered as a term does."""

    def __init__(self, controller: str | None = None, *, before: Sequence[Admission] = ()) -> None:
        self.decider = Decider(QuotaSettings(reason_delay_seconds=0))
        self._number = 0
        self.sent: list[Admission] = []
        checks = [{"name": "check"}] if controller is not None else []
        if controller is not None:
            self.observe_check(controller)
        queue = cluster_queue_spec(1, admissionChecksStrategy={"admissionChecks": checks})
        for message in (
            observed(kinds.NAMESPACE, "team"),
            observed(kinds.RESOURCE_FLAVOR, "default"),
            observed(kinds.CLUSTER_QUEUE, "cq", queue),
            observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, "team"),
            Synced(cluster="hub", epoch="1", kinds=[], at=NOON),
        ):
            self.decider.apply(message)
        for state in (workload("x"), *(workload(each.name) for each in before)):
            self.decider.apply(state)
        for decision in before:
            assert self.decider.restore(decision) is None
        self.decide()

    def observe_check(self, controller: str) -> None:
        active = {"type": "Active", "status": "True", "reason": "Up", "message": ""}
        status = {"conditions": [active]}
        spec = {"controllerName": controller}
        self.decider.apply(observed(kinds.ADMISSION_CHECK, "check", spec, status=status))

    def decide(self) -> None:
        for draft in self.decider.decide(NOON):
            self._number += 1
            admission = draft.numbered(epoch=5, term=7, number=self._number, inputs={})
            self.decider.on_sent(admission)
            self.sent.append(admission)

    def apply(self, message: Outcome | CheckState | WorkloadState) -> None:
        assert self.decider.apply(message) is None
        self.decide()

    @property
    def last(self) -> Admission:
        return self.sent[-1]

    @property
    def state(self) -> str:
        return self.last.state


REFUSED_RELEASE = {"action": "release", "result": "refused", "message": "immutable"}
BEYOND: dict[str, Callable[[Admission], dict[str, Any]]] = {
    "the next decision": lambda last: {"number": last.number + 1},
    "a decision far ahead": lambda _: {"number": 10**30},
    "the next term": lambda last: {"term": last.term + 1, "number": 0},
    "a term far ahead": lambda last: {"term": 10**30, "number": last.number},
}


@pytest.mark.parametrize("said", BEYOND.values(), ids=BEYOND)
@pytest.mark.parametrize(
    "what", [REFUSED_RELEASE, {"action": "hold", "result": "refused"}], ids=["release", "hold"]
)
def test_outcome_of_a_decision_that_was_never_made_is_refused(what: Any, said: Any) -> None:
    stage = Stage()
    before, last = refused("outcome"), stage.last
    stage.apply(report(**{"term": last.term, "number": last.number, **what, **said(last)}))
    assert refused("outcome") == before + 1
    assert stage.last == last
    assert stage.decider.held_back.why(last.ref) is None


UNCOUNTED: dict[str, dict[str, Any]] = {
    "it names no decision": {"term": 0, "number": 0},
    "it names one that nobody took": {"number": 2},
}


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("said", UNCOUNTED.values(), ids=UNCOUNTED)
def test_refusal_is_counted_once_however_often_the_outcome_is_looked_at(
    said: dict[str, Any], counts: bool
) -> None:
    """A leader looks at what stands on the log again when it begins."""
    before, last = refused("outcome"), Stage().last.replace(term=1, number=1)
    late = last.decided_at + timedelta(seconds=1)
    assert not is_believed(report(at=late, **said), last, counts=counts)
    assert refused("outcome") == before + counts


def test_outcome_of_a_decision_to_come_frees_nothing_once_it_is_taken() -> None:
    stage = Stage()
    last = stage.last
    stage.apply(report(term=last.term, number=last.number + 1, version="0"))
    stage.apply(workload("x", active=False, generation=1, held=True))
    assert (stage.state, stage.last.number) == ("evicted", last.number + 1)
    stage.apply(workload("x", active=False, generation=1, held=True, version="9"))
    assert stage.state == "evicted", "nobody has suspended its job yet"
    stage.apply(report(term=last.term, number=last.number + 1, version="9"))
    assert stage.state == "waiting"


def test_outcome_of_an_earlier_decision_of_this_term_does_not_count() -> None:
    stage = Stage()
    first = stage.last
    stage.apply(workload("x", active=False, generation=1, held=True))
    stage.apply(report(term=first.term, number=first.number, version="0"))
    assert stage.state == "evicted"


def test_outcome_of_an_unreadable_decision_lets_go_of_it_and_suspends_nothing() -> None:
    stage = Stage()
    late = NOON + timedelta(seconds=1)
    before = refused("outcome")
    stage.apply(report(term=0, number=0, at=late))
    assert (refused("outcome"), stage.state) == (before + 1, "admitted")
    stage.apply(report(term=0, number=0, at=late, **REFUSED_RELEASE))
    assert "evicted" in [each.state for each in stage.sent]


def test_decisions_that_stand_on_the_log_are_not_sent_again_by_the_next_leader() -> None:
    stage = Stage()
    stage.apply(workload("y"))
    assert [each.state for each in stage.sent] == ["admitted", "waiting"]
    successor = Stage(before=stage.sent)
    assert successor.sent == []


def answered(service: Any, **more: Any) -> CheckState:
    usual = {"check": "check", "state": "Ready", "uid": "u-x", "at": NOON}
    return CheckState(
        cluster="hub", namespace="team", name="x", service=service, **{**usual, **more}
    )


ANSWERS: dict[str, tuple[str, Any, dict[str, Any], bool]] = {
    "the dispatcher about a spoke": (MULTIKUEUE, "dispatcher", {"spoke": "west"}, True),
    "the dispatcher about a window": (WINDOW, "dispatcher", {}, True),
    "the provisioner about machines": (MACHINES, "provisioner", {}, True),
    "an earlier release": (MACHINES, "", {}, True),
    "the provisioner about a spoke": (MULTIKUEUE, "provisioner", {"spoke": "west"}, False),
    "the provisioner about a window": (WINDOW, "provisioner", {}, False),
    "the dispatcher about machines": (MACHINES, "dispatcher", {}, False),
    "a spoke for a window": (WINDOW, "dispatcher", {"spoke": "west"}, False),
    "a spoke for machines": (MACHINES, "provisioner", {"spoke": "west"}, False),
    "the dispatcher for somebody else": (FOREIGN, "dispatcher", {}, False),
    "the provisioner for somebody else": (FOREIGN, "provisioner", {}, False),
    "an earlier release for somebody else": (FOREIGN, "", {}, False),
}


@pytest.mark.parametrize("early", [False, True], ids=["after the check", "before the check"])
@pytest.mark.parametrize(("controller", "service", "more", "counts"), ANSWERS.values(), ids=ANSWERS)
def test_only_its_own_controller_answers_a_check(
    controller: str, service: Any, more: dict[str, Any], counts: bool, early: bool
) -> None:
    stage = Stage("example.com/not-yet" if early else controller)
    if early:
        stage = Stage(None)
        stage.decider.apply(answered(service, **more))
        stage.observe_check(controller)
        checks = {"admissionChecks": [{"name": "check"}]}
        queue = cluster_queue_spec(1, admissionChecksStrategy=checks)
        stage.decider.apply(observed(kinds.CLUSTER_QUEUE, "cq", queue))
        stage.decider.apply(workload("y"))
        assert bool(stage.decider.checks_of(workload("x"))) == counts
        return
    before = refused("check")
    assert stage.state == "reserved"
    stage.apply(answered(service, **more))
    assert stage.state == ("admitted" if counts else "reserved")
    assert stage.last.spoke == (more.get("spoke") if counts else None)
    assert refused("check") == before + (not counts)


RECORDED = {FOREIGN: "admitted", MACHINES: "reserved", MULTIKUEUE: "reserved", WINDOW: "reserved"}


@pytest.mark.parametrize(("controller", "state"), RECORDED.items())
def test_status_of_a_workload_answers_for_controllers_of_others_only(
    controller: str, state: str
) -> None:
    stage = Stage(controller)
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": "default"},
        "resourceUsage": {"cpu": "1"},
    }
    recorded = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
    ready = RecordedCheck(check="check", state="Ready", at=NOON + timedelta(seconds=1))
    stage.apply(workload("x", admission=recorded, checks=[ready], version="2"))
    assert stage.state == state
