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


class Stage:
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


RESTARTS: Final[dict[str, Callable[[Stage], None]]] = {
    "without a restart": lambda _: None,
    "with a restart before every step": lambda stage: stage.restart(),
}


@pytest.mark.parametrize("between", RESTARTS.values(), ids=RESTARTS.keys())
def test_readiness_timeouts_back_off_until_limit_deactivates(
    between: Callable[[Stage], None],
) -> None:
    stage = Stage()
    stage.see("x")
    clock = 0.0
    for count, delay in ((1, 60), (2, 120)):
        between(stage)
        stage.see("x", **RUNS)
        assert stage.last("x").state == "admitted"
        assert stage.last("x").admitted_at == at(clock)
        between(stage)
        stage.after(150)
        between(stage)
        assert stage.after(149) == []
        stage.after(1)
        evicted = stage.last("x")
        assert (evicted.state, evicted.reason) == ("evicted", "PodsReadyTimeout")
        assert (evicted.requeue_count, evicted.decided_at) == (count, at(clock + 300))
        assert evicted.requeue_at is not None
        assert 0 <= (evicted.requeue_at - at(clock + 300)).total_seconds() - delay < 0.02
        between(stage)
        stage.stopped("x")
        waits = stage.last("x")
        assert (waits.state, waits.requeue_at) == ("waiting", evicted.requeue_at)
        between(stage)
        assert not any(a.state in HOLDING for a in stage.after(delay - 1))
        stage.after(2)
        assert stage.last("x").admitted_at == evicted.requeue_at
        clock = (evicted.requeue_at - NOON).total_seconds()
    between(stage)
    stage.see("x", **RUNS)
    stage.after(300)
    out = stage.last("x")
    assert out.reason == "DeactivatedDueToRequeuingLimitExceeded"
    assert (out.deactivate, out.requeue_count) == (True, 0)
    between(stage)
    stage.stopped("x")
    between(stage)
    assert not any(a.state in HOLDING for a in stage.after(10_000)), (
        "not even before active is false"
    )
    stage.see("x", active=False)
    assert (stage.last("x").reason, stage.last("x").deactivate) == ("Deactivated", False)
    between(stage)
    stage.see("x", active=True)
    assert stage.last("x").state == "admitted"
    assert stage.last("x").requeue_count == 0


def test_lifecycle_continues_from_cluster_record_if_log_is_lost() -> None:
    stage = Stage()
    stage.see("x")
    stage.see("x", **RUNS)
    stage.after(300)
    stage.stopped("x")
    requeue_at = stage.last("x").requeue_at
    recorded = {"requeue_at": requeue_at, "requeue_count": 1, "evicted_reason": "PodsReadyTimeout"}
    stage.see("x", evicted_at=at(300), **recorded)
    stage.restart(lose_the_log=True)
    assert not any(a.state in HOLDING for a in stage.after(59))
    stage.after(2)
    assert (stage.last("x").state, stage.last("x").requeue_count) == ("admitted", 1)


def test_reactivation_resets_requeue_count_recorded_by_cluster_only() -> None:
    stage = Stage()
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    stage.see("x", active=False, requeue_count=2, evicted_reason=reason)
    stage.see("x", active=True, requeue_count=2, evicted_reason=reason)
    assert (stage.last("x").state, stage.last("x").requeue_count) == ("admitted", 0)


def test_pending_wait_reason_does_not_override_adopted_admission() -> None:
    stage = Stage(delay=1)
    stage.see("other")
    assert stage.see("x") == [], "it is told later why it waits"
    [adopted] = stage.see("x", admission=RECORD, admitted_at=at(0), held=False)
    assert adopted.state == "admitted"
    assert stage.after(60) == []


@pytest.mark.parametrize("gave_back", [False, True], ids=["that holds it", "that gave it back"])
def test_job_inherits_only_quota_that_its_workload_holds(gave_back: bool) -> None:
    stage = Stage(delay=1)
    [holder] = stage.see("x")
    stage.see("rival", created_at=at(-100))
    if gave_back:  # The Workload is not observed with its quota yet.
        stage.see("x", uid="u-job")
    stage.see("x", uid="u-job", adopts=holder.uid, admission=RECORD)
    last = {one.uid: one.state for one in stage.log}
    assert [uid for uid in last if last[uid] in HOLDING] == ["u-rival" if gave_back else "u-job"]


def test_job_that_runs_more_than_the_admission_it_takes_over_is_evicted() -> None:
    stage = Stage()
    told = stage.see("x", admission=RECORD, admitted_at=at(0), outgrown={"main": 12}, **RUNS)
    assert [(one.state, one.reason) for one in told][-1] == ("evicted", NO_MATCHING_WORKLOAD)


def test_admission_recorded_by_cluster_only_is_logged_with_its_timers() -> None:
    stage = Stage()
    recorded = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]},
        "admitted_at": at(-200), "pods_ready_reason": "WaitForStart", "requeue_count": 1,
    }  # fmt: skip
    [adopted] = stage.see("x", **RUNS, **recorded)
    assert (adopted.state, adopted.cluster_queue, adopted.admitted_at) == (
        "admitted",
        "cq",
        at(-200),
    )
    stage.after(100)
    assert (stage.last("x").reason, stage.last("x").requeue_count) == ("PodsReadyTimeout", 2)


def test_ready_workload_has_no_timeout_until_it_loses_a_pod() -> None:
    stage = Stage(recoveryTimeout="100s")
    stage.see("x")
    stage.see("x", **RUNS)
    stage.after(200)
    stage.see("x", **RUNS | {"pods_ready": True})
    assert (stage.last("x").pods_ready, stage.last("x").pods_ready_at) == ("Started", at(200))
    assert stage.after(5_000) == []
    stage.see("x", **RUNS)
    assert (stage.last("x").pods_ready, stage.last("x").admitted_at) == ("WaitForRecovery", NOON)
    stage.restart()
    assert stage.after(99) == []
    stage.after(1)
    assert stage.last("x").reason == "PodsReadyTimeout"


def test_timed_out_workload_queues_behind_later_arrivals() -> None:
    order = {"Eviction": "y", "Creation": "x"}
    for timestamp, first in order.items():
        stage = Stage(requeuingStrategy={"timestamp": timestamp, "backoffBaseSeconds": 0})
        stage.see("x")
        stage.see("x", **RUNS)
        stage.after(100)
        stage.see("y", created_at=at(100))
        stage.after(200)
        stage.restart()
        stage.stopped("x")
        holder = [a.name for a in stage.log if a.state == "admitted"][-1]
        assert holder == first, timestamp


def test_execution_time_adds_up_over_preemptions_and_restarts() -> None:
    stage = Stage()
    limit = {"max_execution_seconds": 100}
    stage.see("x", **limit)
    stage.see("x", **RUNS, **limit)
    stage.after(30)
    stage.see("urgent", priority=9)
    assert stage.last("x").preempted_by == "team/urgent"
    stage.after(10)
    stage.stopped("x", **limit)
    assert stage.last("x").executed_seconds == 40
    stage.restart()
    stage.see("urgent", priority=9, phase="gone")
    assert stage.last("x").admitted_at == at(40)
    stage.see("x", **RUNS | {"pods_ready": True}, **limit)
    assert stage.after(59) == []
    stage.after(1)
    assert stage.last("x").reason == "DeactivatedDueToMaximumExecutionTimeExceeded"
    stage.stopped("x", **limit)
    assert stage.last("x").executed_seconds == 0


def test_rejecting_check_deactivates_and_retrying_check_backs_off() -> None:
    stage = Stage(checks=("machines",))
    stage.see("x")
    assert stage.last("x").state == "reserved"
    stage.check("x", "Retry", requeue_after_seconds=60, message="no room")
    evicted = stage.last("x")
    assert (evicted.reason, evicted.requeue_at, evicted.requeue_count) == (
        "AdmissionCheck",
        at(60),
        0,
    )
    assert evicted.message == 'Evicted due to AdmissionCheck in Retry state: "machines" (no room)'
    stage.stopped("x")
    stage.restart()
    assert not any(a.state in HOLDING for a in stage.after(59))
    stage.after(1)
    assert stage.last("x").state == "reserved"
    stage.check("x", "Rejected", message="never")
    out = stage.last("x")
    assert (out.reason, out.deactivate) == ("DeactivatedDueToAdmissionCheck", True)
    stage.stopped("x")
    assert not any(a.state in HOLDING for a in stage.after(1000))


def test_workload_deactivated_during_checks_releases_its_reservation() -> None:
    stage = Stage(checks=("machines",))
    stage.see("x")
    stage.see("x", active=False)
    assert (stage.last("x").state, stage.last("x").reason) == ("evicted", "Deactivated")
    stage.check("x", "Ready")
    assert stage.last("x").state == "evicted"
    stage.stopped("x", active=False)
    assert (stage.last("x").state, stage.last("x").reason) == ("waiting", "Deactivated")
    stage.see("y")
    assert stage.last("y").state == "reserved"


def test_repeated_and_late_states_publish_nothing_twice() -> None:
    stage = Stage()
    stage.see("x")
    stage.see("x", **RUNS)
    for _ in range(3):
        assert stage.see("x", **RUNS) == []
    # Its job was seen ready before it was suspended for an earlier eviction.
    assert stage.see("x", **RUNS | {"held": True, "pods_ready": True}) == []
    stage.after(300)
    for _ in range(3):
        assert stage.see("x", **RUNS) == []
        assert stage.after(10) == []


def test_readiness_is_ignored_without_configuration() -> None:
    stage = Stage(enable=False)
    stage.see("x")
    stage.see("x", **RUNS)
    assert stage.last("x").pods_ready == ""
    assert stage.after(100_000) == []


def test_suppressed_reasons_do_not_cause_a_burst_later() -> None:
    stage = Stage(delay=1)
    for number in range(100):
        stage.see(f"x{number}")
    stage.after(0.5)
    for _ in range(60):  # The log is nearly full.
        stage.now += timedelta(seconds=1)
        assert list(stage.decider.decide(stage.now, admit=False)) == []
    assert len(stage.decide()) <= UNPUBLISHED_MAX + 5
