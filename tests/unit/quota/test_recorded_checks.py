"""Admission checks of other controllers, as they write them into the Workload object."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.quota.decider import Decider
from services.quota.settings import QuotaSettings
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.workloads import RecordedCheck
from shared.telemetry import probes
from shared.testing.builders import cluster_queue_spec, observed, workload
from shared.testing.probing import acts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ASSIGNED = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
HELD: dict[str, Any] = {"admission": {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]}}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def answer(check: str, state: Any, second: float, **more: Any) -> RecordedCheck:
    return RecordedCheck(check=check, state=state, at=at(second), **more)


class Stage:
    """A decider of a queue of one cpu, with checks of other controllers."""

    def __init__(self, *checks: str) -> None:
        self.decider = Decider(QuotaSettings(reason_delay_seconds=0))
        for name in ("a", "b"):
            spec = {"controllerName": "example.com/foreign"}
            condition = {"type": "Active", "status": "True", "reason": "Up", "message": ""}
            status = {"conditions": [condition]}
            self.decider.apply(observed(kinds.ADMISSION_CHECK, name, spec, status=status))
        self.decider.apply(observed(kinds.NAMESPACE, "team", {}))
        self.decider.apply(observed(kinds.RESOURCE_FLAVOR, "f", {}))
        self.queue(*checks)
        self.decider.apply(observed(kinds.LOCAL_QUEUE, "q", {"clusterQueue": "cq"}, "team"))
        self.decider.apply(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))

    def queue(self, *checks: str) -> None:
        strategy = {"admissionChecks": [{"name": name} for name in checks]}
        spec = cluster_queue_spec(1, "f", admissionChecksStrategy=strategy)
        self.decider.apply(observed(kinds.CLUSTER_QUEUE, "cq", spec))

    def see(self, second: float, *checks: RecordedCheck, **more: Any) -> None:
        self.decider.apply(workload("x", queue="q", checks=list(checks), **{**HELD, **more}))
        self.decide(second)

    def decide(self, second: float) -> list[Admission]:
        decided = list(self.decider.decide(at(second)))
        self.last = decided[-1] if decided else self.last
        return decided

    last: Admission

    def state(self) -> str:
        return self.last.state


@pytest.fixture
def stage() -> Stage:
    stage = Stage("a", "b")
    stage.see(0, admission=None)
    assert (stage.last.state, stage.last.checks) == ("reserved", ["a", "b"])
    return stage


def test_last_ready_answer_admits(stage: Stage) -> None:
    stage.see(1, answer("a", "Ready", 1), answer("b", "Pending", 0))
    assert stage.state() == "reserved"
    stage.see(2, answer("a", "Ready", 1), answer("b", "Ready", 2))
    assert stage.state() == "admitted"


def test_retry_backs_off_for_the_recorded_seconds(stage: Stage) -> None:
    stage.see(1, answer("a", "Retry", 1, requeue_after_seconds=30, message="no capacity"))
    assert (stage.last.state, stage.last.reason) == ("evicted", "AdmissionCheck")
    assert stage.last.message == 'Evicted due to AdmissionCheck in Retry state: "a" (no capacity)'
    assert stage.last.requeue_at == at(31)


def test_backoff_that_ends_before_the_pods_is_over_then(stage: Stage) -> None:
    retry = answer("a", "Retry", 1, requeue_after_seconds=30)
    stage.see(1, retry)
    stage.see(2, retry, evicted=True)
    assert stage.decide(31) == [], "nobody waits for it"
    assert stage.last.requeue_at == at(31)
    stage.see(32, retry, evicted=True, requeue_awaited=True)
    assert stage.state() == "evicted"
    assert stage.last.requeue_at is None
    assert stage.decide(33) == []


@pytest.mark.parametrize("admitted", [False, True], ids=["reserved", "admitted"])
def test_rejection_deactivates(stage: Stage, admitted: bool) -> None:
    if admitted:
        stage.see(1, answer("a", "Ready", 1), answer("b", "Ready", 1))
    stage.see(2, answer("a", "Rejected", 2), answer("b", "Ready", 1))
    assert (stage.last.state, stage.last.deactivate) == ("evicted", True)


def test_answer_to_an_earlier_reservation_does_not_admit(stage: Stage) -> None:
    ready = [answer("a", "Ready", 0), answer("b", "Pending", 0)]
    stage.see(0.1, *ready)
    for policy in ("Hold", "None"):
        spec = {"clusterQueue": "cq", "stopPolicy": policy}
        stage.decider.apply(observed(kinds.LOCAL_QUEUE, "q", spec, "team"))
        stage.decide(0.2)
    assert stage.state() == "reserved"
    stage.queue("a")
    stage.see(0.3, *ready, version="9")
    assert stage.state() == "reserved", "its Workload does not show the new reservation yet"
    stage.see(0.4, answer("a", "Pending", 0))
    stage.see(0.5, *ready)
    assert stage.state() == "admitted", "equal answers after others are new ones"


def test_answers_count_when_the_workload_is_not_being_evicted_any_more(stage: Stage) -> None:
    ready = [answer("a", "Ready", 1), answer("b", "Ready", 1)]
    stage.see(1, *ready, evicted=True)
    assert stage.state() == "reserved"
    stage.see(2, *ready, version="2")
    assert stage.state() == "admitted"


def test_answers_of_a_workload_that_is_gone_are_forgotten(stage: Stage) -> None:
    retry = answer("a", "Retry", 9)
    stage.see(1, retry)
    assert stage.state() == "evicted"
    stage.decider.apply(workload("x", queue="q", checks=[retry], phase="gone"))
    stage.see(2, uid="another", admission=None)
    assert stage.state() == "reserved"
    stage.see(3, retry, uid="another")
    assert stage.state() == "evicted"


def test_changed_checks_of_the_queue_reach_holders(stage: Stage) -> None:
    stage.see(1, answer("a", "Ready", 1), answer("b", "Pending", 0))
    reserved_at = stage.last.decided_at
    stage.queue("a")
    states = [(each.state, each.checks) for each in stage.decide(2)]
    assert states == [("reserved", ["a"]), ("admitted", ["a"])], "what is left is ready"
    assert stage.last.decided_at > reserved_at
    stage.queue("a", "b")
    states = [(each.state, each.checks) for each in stage.decide(3)]
    assert states == [("admitted", ["a", "b"])], "it runs on while the new one is pending"
    stage.see(4, answer("a", "Ready", 1), answer("b", "Retry", 4))
    assert (stage.last.state, stage.last.reason) == ("evicted", "AdmissionCheck")


ADOPTED: dict[str, tuple[list[str], dict[str, Any], list[str]]] = {
    "what waits for a check goes on waiting": (["Ready", "Pending"], {}, ["reserved"]),
    "what has all answers is admitted": (["Ready", "Ready"], {}, ["reserved", "admitted"]),
    "what was admitted stays so": (["Ready", "Ready"], {"admitted_at": at(3)}, ["admitted"]),
}


@pytest.mark.parametrize(("states", "more", "expected"), ADOPTED.values(), ids=ADOPTED)
def test_reservation_without_a_log_is_adopted_with_its_answers(
    states: list[Any], more: dict[str, Any], expected: list[str]
) -> None:
    stage = Stage("a", "b")
    checks = [answer(name, state, 5) for name, state in zip("ab", states, strict=True)]
    with acts(probes.ADOPTED):
        stage.decider.apply(workload("x", queue="q", checks=checks, **HELD, **more))
    decided = stage.decide(9)
    assert [each.state for each in decided] == expected
    assert {tuple(each.checks) for each in decided} == {("a", "b")}
    assert all(each.pod_sets for each in decided)
