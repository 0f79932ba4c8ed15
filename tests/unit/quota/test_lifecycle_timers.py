"""Lives in the hands of the decider: what it says, what it remembers, and what a restart makes of the log."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from services.quota.decider import Decider
from services.quota.publishing.reasons import UNPUBLISHED_MAX
from services.quota.settings import QuotaSettings
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import NO_MATCHING_WORKLOAD
from shared.settings.configuration import Configuration
from shared.testing.builders import observed, workload

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
WAITS: Final = {"timeout": "300s", "requeuingStrategy": {"backoffLimitCount": 2}}
RUNS: Final[dict[str, Any]] = {"phase": "running", "held": False, "pods_active": True}
ASSIGNED: Final = {
    "name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}
}  # fmt: skip
RECORD: Final[dict[str, Any]] = {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]}


class Desk:
    """A decider whose clock the test moves, and the log that it is started from again."""

    def __init__(
        self, *, cpus: int = 1, checks: tuple[str, ...] = (), delay: float = 0, **wait: Any
    ) -> None:
        """`delay`: after how many seconds somebody is told why it waits."""
        self._settings = QuotaSettings(reason_delay_seconds=delay)
        self.configuration = Configuration.model_validate({"waitForPodsReady": WAITS | wait})
        self.now = NOON
        self.log: list[Admission] = []
        self.seen: dict[str, WorkloadState] = {}
        self._cluster = list(self._objects(cpus, checks))
        self._number = 0
        self.decider = self._started()

    @staticmethod
    def _objects(cpus: int, checks: tuple[str, ...]) -> list[tuple[Kind, str, str, dict[str, Any]]]:
        flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
        group = {"coveredResources": ["cpu"], "flavors": [flavor]}
        queue: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        if checks:
            queue["admissionChecks"] = list(checks)
        ours = {"controllerName": "sluicegate.dev/machines"}
        return [
            (kinds.NAMESPACE, "", "team", {}),
            (kinds.RESOURCE_FLAVOR, "", "f", {}),
            *((kinds.ADMISSION_CHECK, "", check, ours) for check in checks),
            (kinds.CLUSTER_QUEUE, "", "cq", queue),
            (kinds.LOCAL_QUEUE, "team", "q", {"clusterQueue": "cq"}),
        ]

    def _started(self) -> Decider:
        decider = Decider(self._settings, self.configuration)
        for kind, namespace, name, spec in self._cluster:
            decider.apply(observed(kind, name, spec, namespace or None))
        decider.apply(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))
        return decider

    def restart(self, *, lose_the_log: bool = False) -> None:
        """Another leader: all that it knows it reads."""
        self.decider = self._started()
        if lose_the_log:
            self.log.clear()
        latest = {admission.name: admission for admission in self.log}
        for admission in latest.values():
            self.decider.restore(Admission.decode(admission.encode()))
        for state in self.seen.values():
            self.decider.apply(state)
        self.decide()

    def decide(self) -> list[Admission]:
        """Whatever is to be said now."""
        said = []
        for admission in self.decider.decide(self.now):
            self._number += 1
            said.append(admission.model_copy(update={"term": 1, "number": self._number}))
            self.decider.on_sent(said[-1])
        self.log += said
        list(self.decider.queue_statuses(self.now))
        return said

    def after(self, seconds: float) -> list[Admission]:
        """Let time pass, waking the decider whenever it wants to be woken."""
        until, said = self.now + timedelta(seconds=seconds), []
        for _ in range(1000):
            wanted = self.decider.seconds_to_next(self.now)
            if wanted is None or self.now + timedelta(seconds=wanted) > until:
                break
            self.now += timedelta(seconds=max(wanted, 1e-6))
            said += self.decide()
        self.now = until
        return said + self.decide()

    def see(self, name: str, **more: Any) -> list[Admission]:
        """A workload as the classifier tells it."""
        fields: dict[str, Any] = {"queue": "q", "pods_ready": False}
        state = workload(name, **(fields | more))
        self.seen[name] = state
        self.decider.apply(state)
        return self.decide()

    def check(self, name: str, state: Any, **more: Any) -> list[Admission]:
        """What the owner of an admission check says."""
        said = CheckState(
            cluster="hub", namespace="team", name=name, uid=f"u-{name}", check="machines",
            state=state, at=self.now, **more,
        )  # fmt: skip
        self.decider.apply(said)
        return self.decide()

    def stopped(self, name: str, **more: Any) -> list[Admission]:
        """Its job was suspended, and its pods are gone."""
        last = self.last(name)
        outcome = Outcome(
            cluster="hub", namespace="team", name=name, uid=f"u-{name}", action="suspend",
            result="applied", term=last.term, number=last.number, version="1", at=self.now,
        )  # fmt: skip
        self.decider.apply(outcome)
        return self.see(name, **more)

    def last(self, name: str) -> Admission:
        """What was said last of it."""
        return [a for a in self.log if a.name == name][-1]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


RESTARTS: Final[dict[str, Callable[[Desk], None]]] = {
    "without a restart": lambda _: None,
    "with a restart before every step": lambda desk: desk.restart(),
}


@pytest.mark.parametrize("between", RESTARTS.values(), ids=RESTARTS.keys())
def test_readiness_timeouts_back_off_until_limit_deactivates(
    between: Callable[[Desk], None],
) -> None:
    desk = Desk()
    desk.see("x")
    clock = 0.0
    for count, delay in ((1, 60), (2, 120)):
        between(desk)
        desk.see("x", **RUNS)
        assert desk.last("x").state == "admitted"
        assert desk.last("x").admitted_at == at(clock)
        between(desk)
        desk.after(150)
        between(desk)
        assert desk.after(149) == []
        desk.after(1)
        evicted = desk.last("x")
        assert (evicted.state, evicted.reason) == ("evicted", "PodsReadyTimeout")
        assert (evicted.requeue_count, evicted.decided_at) == (count, at(clock + 300))
        assert evicted.requeue_at is not None
        assert 0 <= (evicted.requeue_at - at(clock + 300)).total_seconds() - delay < 0.02
        between(desk)
        desk.stopped("x")
        waits = desk.last("x")
        assert (waits.state, waits.requeue_at) == ("waiting", evicted.requeue_at)
        between(desk)
        assert not any(a.state in HOLDING for a in desk.after(delay - 1))
        desk.after(2)
        assert desk.last("x").admitted_at == evicted.requeue_at
        clock = (evicted.requeue_at - NOON).total_seconds()
    between(desk)
    desk.see("x", **RUNS)
    desk.after(300)
    out = desk.last("x")
    assert out.reason == "DeactivatedDueToRequeuingLimitExceeded"
    assert (out.deactivate, out.requeue_count) == (True, 0)
    between(desk)
    desk.stopped("x")
    between(desk)
    assert not any(a.state in HOLDING for a in desk.after(10_000)), (
        "not even before active is false"
    )
    desk.see("x", active=False)
    assert (desk.last("x").reason, desk.last("x").deactivate) == ("Deactivated", False)
    between(desk)
    desk.see("x", active=True)
    assert desk.last("x").state == "admitted"
    assert desk.last("x").requeue_count == 0


def test_lifecycle_continues_from_cluster_record_if_log_is_lost() -> None:
    desk = Desk()
    desk.see("x")
    desk.see("x", **RUNS)
    desk.after(300)
    desk.stopped("x")
    requeue_at = desk.last("x").requeue_at
    recorded = {"requeue_at": requeue_at, "requeue_count": 1, "evicted_reason": "PodsReadyTimeout"}
    desk.see("x", evicted_at=at(300), **recorded)
    desk.restart(lose_the_log=True)
    assert not any(a.state in HOLDING for a in desk.after(59))
    desk.after(2)
    assert (desk.last("x").state, desk.last("x").requeue_count) == ("admitted", 1)


def test_reactivation_resets_requeue_count_recorded_by_cluster_only() -> None:
    desk = Desk()
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    desk.see("x", active=False, requeue_count=2, evicted_reason=reason)
    desk.see("x", active=True, requeue_count=2, evicted_reason=reason)
    assert (desk.last("x").state, desk.last("x").requeue_count) == ("admitted", 0)


def test_pending_wait_reason_does_not_override_adopted_admission() -> None:
    desk = Desk(delay=1)
    desk.see("other")
    assert desk.see("x") == [], "it is told later why it waits"
    [adopted] = desk.see("x", admission=RECORD, admitted_at=at(0), held=False)
    assert adopted.state == "admitted"
    assert desk.after(60) == []


@pytest.mark.parametrize("gave_back", [False, True], ids=["that holds it", "that gave it back"])
def test_job_inherits_only_quota_that_its_workload_holds(gave_back: bool) -> None:
    desk = Desk(delay=1)
    [holder] = desk.see("x")
    desk.see("rival", created_at=at(-100))
    if gave_back:  # The Workload is not observed with its quota yet.
        desk.see("x", uid="u-job")
    desk.see("x", uid="u-job", adopts=holder.uid, admission=RECORD)
    last = {one.uid: one.state for one in desk.log}
    assert [uid for uid in last if last[uid] in HOLDING] == ["u-rival" if gave_back else "u-job"]


def test_job_that_runs_more_than_the_admission_it_takes_over_is_evicted() -> None:
    desk = Desk()
    told = desk.see("x", admission=RECORD, admitted_at=at(0), outgrown={"main": 12}, **RUNS)
    assert [(one.state, one.reason) for one in told][-1] == ("evicted", NO_MATCHING_WORKLOAD)


def test_admission_recorded_by_cluster_only_is_logged_with_its_timers() -> None:
    desk = Desk()
    recorded = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]},
        "admitted_at": at(-200), "pods_ready_reason": "WaitForStart", "requeue_count": 1,
    }  # fmt: skip
    [adopted] = desk.see("x", **RUNS, **recorded)
    assert (adopted.state, adopted.cluster_queue, adopted.admitted_at) == (
        "admitted",
        "cq",
        at(-200),
    )
    desk.after(100)
    assert (desk.last("x").reason, desk.last("x").requeue_count) == ("PodsReadyTimeout", 2)


def test_ready_workload_has_no_timeout_until_it_loses_a_pod() -> None:
    desk = Desk(recoveryTimeout="100s")
    desk.see("x")
    desk.see("x", **RUNS)
    desk.after(200)
    desk.see("x", **RUNS | {"pods_ready": True})
    assert (desk.last("x").pods_ready, desk.last("x").pods_ready_at) == ("Started", at(200))
    assert desk.after(5_000) == []
    desk.see("x", **RUNS)
    assert (desk.last("x").pods_ready, desk.last("x").admitted_at) == ("WaitForRecovery", NOON)
    desk.restart()
    assert desk.after(99) == []
    desk.after(1)
    assert desk.last("x").reason == "PodsReadyTimeout"


def test_timed_out_workload_queues_behind_later_arrivals() -> None:
    order = {"Eviction": "y", "Creation": "x"}
    for timestamp, first in order.items():
        desk = Desk(requeuingStrategy={"timestamp": timestamp, "backoffBaseSeconds": 0})
        desk.see("x")
        desk.see("x", **RUNS)
        desk.after(100)
        desk.see("y", created_at=at(100))
        desk.after(200)
        desk.restart()
        desk.stopped("x")
        holder = [a.name for a in desk.log if a.state == "admitted"][-1]
        assert holder == first, timestamp


def test_execution_time_adds_up_over_preemptions_and_restarts() -> None:
    desk = Desk()
    limit = {"max_execution_seconds": 100}
    desk.see("x", **limit)
    desk.see("x", **RUNS, **limit)
    desk.after(30)
    desk.see("urgent", priority=9)
    assert desk.last("x").preempted_by == "team/urgent"
    desk.after(10)
    desk.stopped("x", **limit)
    assert desk.last("x").executed_seconds == 40
    desk.restart()
    desk.see("urgent", priority=9, phase="gone")
    assert desk.last("x").admitted_at == at(40)
    desk.see("x", **RUNS | {"pods_ready": True}, **limit)
    assert desk.after(59) == []
    desk.after(1)
    assert desk.last("x").reason == "DeactivatedDueToMaximumExecutionTimeExceeded"
    desk.stopped("x", **limit)
    assert desk.last("x").executed_seconds == 0


def test_rejecting_check_deactivates_and_retrying_check_backs_off() -> None:
    desk = Desk(checks=("machines",))
    desk.see("x")
    assert desk.last("x").state == "reserved"
    desk.check("x", "Retry", requeue_after_seconds=60, message="no room")
    evicted = desk.last("x")
    assert (evicted.reason, evicted.requeue_at, evicted.requeue_count) == (
        "AdmissionCheck",
        at(60),
        0,
    )
    assert evicted.message == 'Evicted due to AdmissionCheck in Retry state: "machines" (no room)'
    desk.stopped("x")
    desk.restart()
    assert not any(a.state in HOLDING for a in desk.after(59))
    desk.after(1)
    assert desk.last("x").state == "reserved"
    desk.check("x", "Rejected", message="never")
    out = desk.last("x")
    assert (out.reason, out.deactivate) == ("DeactivatedDueToAdmissionCheck", True)
    desk.stopped("x")
    assert not any(a.state in HOLDING for a in desk.after(1000))


def test_workload_deactivated_during_checks_releases_its_reservation() -> None:
    desk = Desk(checks=("machines",))
    desk.see("x")
    desk.see("x", active=False)
    assert (desk.last("x").state, desk.last("x").reason) == ("evicted", "Deactivated")
    desk.check("x", "Ready")
    assert desk.last("x").state == "evicted"
    desk.stopped("x", active=False)
    assert (desk.last("x").state, desk.last("x").reason) == ("waiting", "Deactivated")
    desk.see("y")
    assert desk.last("y").state == "reserved"


def test_repeated_and_late_states_publish_nothing_twice() -> None:
    desk = Desk()
    desk.see("x")
    desk.see("x", **RUNS)
    for _ in range(3):
        assert desk.see("x", **RUNS) == []
    # Its job was seen ready before it was suspended for an earlier eviction.
    assert desk.see("x", **RUNS | {"held": True, "pods_ready": True}) == []
    desk.after(300)
    for _ in range(3):
        assert desk.see("x", **RUNS) == []
        assert desk.after(10) == []


def test_readiness_is_ignored_without_configuration() -> None:
    desk = Desk(enable=False)
    desk.see("x")
    desk.see("x", **RUNS)
    assert desk.last("x").pods_ready == ""
    assert desk.after(100_000) == []


def test_suppressed_reasons_do_not_cause_a_burst_later() -> None:
    desk = Desk(delay=1)
    for number in range(100):
        desk.see(f"x{number}")
    desk.after(0.5)
    for _ in range(60):  # The log is nearly full.
        desk.now += timedelta(seconds=1)
        assert list(desk.decider.decide(desk.now, admit=False)) == []
    assert len(desk.decide()) <= UNPUBLISHED_MAX + 5
