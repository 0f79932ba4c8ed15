"""What the judge of running work lets pass and what it does not, on histories small enough to read."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pytest

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import NAMESPACES, PODS
from services.simulator.judge import tenants, waits
from services.simulator.judge.message_logs import MessageLogs, Record
from services.simulator.judge.running_work import Change, Job, RunningWork
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from tests.simulation.kinds.pods import GATE, pod

AT = datetime(2026, 1, 1, tzinfo=UTC)
CPU = 10**9
POOLS = [tenants.Pool(name="quota", namespaces=frozenset({"team"}), nominal={"cpu": 2 * CPU})]


class History:
    """What ran and what was decided, at given seconds."""

    def __init__(self) -> None:
        self.work = RunningWork(Api(now=lambda: AT, random=Random(1)), lambda: AT)
        self.message_logs = MessageLogs()

    def runs(
        self,
        seconds: float,
        uid: str,
        cpu: int,
        *,
        ending: int = 0,
        managed_after: float | None = 0,
    ) -> None:
        self.work.jobs.setdefault(
            uid,
            Job(
                uid=uid,
                kind="Job",
                namespace="team",
                name=uid,
                created_at=AT,
                managed_at=None if managed_after is None else AT + timedelta(seconds=managed_after),
            ),
        )
        self.work.changes.append(
            Change(
                at=AT + timedelta(seconds=seconds),
                uid=uid,
                steady={"cpu": cpu * CPU} if cpu else {},
                ending={"cpu": ending * CPU} if ending else {},
            )
        )

    def decide(
        self,
        seconds: float,
        uid: str,
        state: str,
        *,
        cpu: str = "1",
        unplanned: bool = False,
        priority: int = 0,
        name: str = "",
    ) -> None:
        number = len(self.message_logs.admissions) + 1
        at = AT + timedelta(seconds=seconds)
        message = Admission.model_validate(
            {
                "cluster": "hub",
                "namespace": "team",
                "name": name or uid,
                "uid": uid,
                "state": state,
                "term": 1,
                "number": number,
                "decided_at": at,
                "pod_sets": [
                    PodSetAssignment(
                        name="main", count=1, flavors={"cpu": "any"}, usage={"cpu": cpu}
                    )
                ],
                "unplanned": unplanned,
                "priority": priority,
            }
        )
        record = Record(sequence=number, time=at, message=message)
        self.message_logs.admissions.append(record)

    def problems(self) -> list[str]:
        end = AT + timedelta(seconds=100)
        return [
            *tenants.uncounted_is_stopped(self.work, self.message_logs, end),
            *tenants.never_more_than_admitted(self.work, self.message_logs, end),
            *tenants.quotas_kept(self.work, self.message_logs, end, POOLS),
            *tenants.released_when_gone(self.work, self.message_logs, ("team",)),
            *tenants.priorities_given(self.message_logs, {"known": 1}),
        ]


def admitted_and_ended(history: History) -> None:
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 1)
    history.runs(90, "a", 0)
    history.decide(91, "a", "released")


def stopped_in_time(history: History) -> None:
    history.runs(1, "a", 1)
    history.runs(29, "a", 0, ending=1)
    history.runs(60, "a", 0)


def never_stopped(history: History) -> None:
    history.runs(1, "a", 1)


def not_managed(history: History) -> None:
    history.runs(1, "a", 1, managed_after=None)


def managed_late_and_stopped_in_time(history: History) -> None:
    history.runs(1, "a", 1, managed_after=50)
    history.decide(51, "b", "waiting")
    history.runs(70, "a", 0)


def released_while_it_runs(history: History) -> None:
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 1)
    history.decide(10, "a", "released")
    history.runs(11, "a", 0)


def released_while_it_ends(history: History) -> None:
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 1)
    history.runs(9, "a", 0, ending=1)
    history.decide(10, "a", "released")


def started_again_in_the_moment_of_its_release(history: History) -> None:
    history.decide(1, "a", "evicted")
    history.runs(2, "a", 1)
    history.runs(8, "a", 0)
    history.runs(9.5, "a", 1)
    history.decide(10, "a", "waiting")
    history.decide(11, "a", "evicted")
    history.runs(12, "a", 0)


def started_again_and_not_counted(history: History) -> None:
    history.decide(1, "a", "evicted")
    history.runs(9.5, "a", 1)
    history.decide(10, "a", "waiting")
    history.runs(12, "a", 0)


def evicted_and_runs_on(history: History) -> None:
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 1)
    history.decide(10, "a", "evicted")


def grown(history: History) -> None:
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 2)


def two_beyond_the_quota(history: History) -> None:
    for uid in ("a", "b"):
        history.decide(1, uid, "admitted", cpu="2")
        history.runs(2, uid, 2)


def one_of_them_reported_as_unplanned(history: History) -> None:
    for uid in ("a", "b"):
        history.decide(1, uid, "admitted", cpu="2", unplanned=uid == "b")
        history.runs(2, uid, 2)
    history.work.jobs["b"].terminating = True  # Nobody can stop it any more.


def unplanned_and_runs_on(history: History) -> None:
    history.decide(1, "a", "admitted", unplanned=True)
    history.runs(2, "a", 1)


def another_priority(history: History) -> None:
    history.decide(1, "known", "admitted", priority=1000)


def another_priority_while_it_waits(history: History) -> None:
    history.decide(1, "known", "waiting", priority=1000)


CASES: dict[str, tuple[Callable[[History], None], str]] = {
    "admitted work that ends": (admitted_and_ended, ""),
    "uncounted work that is stopped in time": (stopped_in_time, ""),
    "uncounted work that is never stopped": (never_stopped, "runs and holds no quota, for 99.0 s"),
    "work that names no queue": (not_managed, ""),
    "work that names one late": (managed_late_and_stopped_in_time, ""),
    "quota given back while pods run": (released_while_it_runs, "while it runs 1 cpu"),
    "quota given back while pods end": (released_while_it_ends, "runs nothing and ends 1 cpu"),
    "work that is started in the moment of its release": (
        started_again_in_the_moment_of_its_release,
        "",
    ),
    "such work that nobody counts": (started_again_and_not_counted, "while it runs 1 cpu"),
    "evicted work that runs on": (evicted_and_runs_on, "runs on though it is evicted"),
    "unplanned work that runs on": (unplanned_and_runs_on, "runs on though nobody admitted it"),
    "more pods than were admitted": (grown, "runs more than it was given"),
    "more than the quota": (two_beyond_the_quota, "more cpu runs than the quota of quota"),
    "more than the quota, reported": (one_of_them_reported_as_unplanned, ""),
    "a priority that the rules did not give": (another_priority, "has priority 1000"),
    "such a priority while it waits": (another_priority_while_it_waits, ""),
}


@pytest.mark.parametrize(("tell", "problem"), CASES.values(), ids=CASES.keys())
def test_judge_finds_what_runs_without_quota_and_nothing_else(
    tell: Callable[[History], None], problem: str
) -> None:
    history = History()
    tell(history)
    found = history.problems()
    if problem:
        assert any(problem in text for text in found), found
    else:
        assert found == []


def starts_after(seconds: float) -> Callable[[History], None]:
    return lambda history: history.runs(seconds, "a", 1)


def starts_when_another_ends(history: History) -> None:
    history.runs(1, "b", 2)
    history.runs(60, "b", 0)
    history.runs(61, "a", 1)


def starts_behind_one_that_does_not_fit(history: History) -> None:
    history.runs(1, "b", 1)
    history.runs(60, "b", 0)
    history.runs(61, "c", 2)
    history.runs(70, "c", 0)
    history.runs(71, "a", 1)


WAITS: dict[str, tuple[Callable[[History], None], bool, str]] = {
    "a start within the bound": (starts_after(9), False, ""),
    "a start beyond the bound": (starts_after(11), False, "waited 11.0 s, 11.0 s of them beside"),
    "never": (lambda history: history.runs(1, "b", 1), False, "never ran"),
    "a late start while another has the quota": (starts_when_another_ends, False, ""),
    "a late start behind the first of a strict queue": (
        starts_behind_one_that_does_not_fit,
        True,
        "",
    ),
    "such a start where nobody holds up others": (
        starts_behind_one_that_does_not_fit,
        False,
        "beside room",
    ),
}


@pytest.mark.parametrize(("tell", "strict", "problem"), WAITS.values(), ids=WAITS.keys())
def test_wait_is_longer_only_beyond_the_bound_and_beside_room(
    tell: Callable[[History], None], strict: bool, problem: str
) -> None:
    alone, attacked = History(), History()
    alone.runs(0, "a", 1)
    alone.runs(1, "a", 0)
    attacked.work.jobs["a"] = alone.work.jobs["a"]
    tell(attacked)
    pools = [replace(POOLS[0], strict=strict)]
    found = waits.waits_kept(attacked.work, alone.work, pools, bound=timedelta(seconds=10))
    assert [problem in text for text in found] == [True] * bool(problem)


def renamed(history: History, *, decided: float, logged: float) -> list[str]:
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 1)
    history.decide(10, "a", "released")
    history.decide(decided, "a", "admitted", unplanned=True)
    last = history.message_logs.admissions.pop()
    history.message_logs.admissions.append(replace(last, time=AT + timedelta(seconds=logged)))
    return tenants.released_when_gone(history.work, history.message_logs, ("team",))


def test_release_of_an_earlier_name_gives_nothing_back() -> None:
    history = History()
    history.decide(1, "a", "admitted")
    history.runs(2, "a", 1)
    history.decide(10, "a", "admitted", name="b")
    history.decide(10, "a", "released")
    assert history.problems() == []
    history.decide(20, "a", "released", name="b")
    assert any("is given back" in problem for problem in history.problems())


def test_release_under_one_name_counts_with_the_admission_of_the_same_moment() -> None:
    assert renamed(History(), decided=10, logged=10.01) == []
    assert len(renamed(History(), decided=10.01, logged=10.01)) == 1


RUNS: Final = [(CPU, 0), (0, CPU)]
"""What a pod of one CPU runs and ends, once it is let go and once it is deleted."""

DEPLOYMENT: Final = ("apps", "v1", "deployments")
TASK_RUN: Final = ("tekton.dev", "v1", "taskruns")


@pytest.mark.parametrize(
    ("queue", "owner", "pods_wait", "expected"),
    [
        pytest.param("q", None, True, RUNS, id="that names a queue"),
        pytest.param("q", DEPLOYMENT, True, RUNS, id="of a Deployment"),
        pytest.param(None, None, True, [], id="without a queue"),
        pytest.param("q", TASK_RUN, True, [], id="of a TaskRun"),
        pytest.param("q", None, False, [], id="where pods do not wait"),
    ],
)
def test_pod_counts_by_itself_from_its_gate_to_its_end(
    queue: str | None, owner: tuple[str, str, str] | None, pods_wait: bool, expected: list[Any]
) -> None:
    api = Api(now=lambda: AT, random=Random(1))
    api.graceful_pods = True
    work = RunningWork(api, lambda: AT, pods_wait=pods_wait)
    obj = pod("p", queue)
    obj["spec"]["schedulingGates"] = [{"name": GATE}]

    async def live() -> None:
        await api.create(NAMESPACES, "v1", "", {"metadata": {"name": "team-a"}})
        if owner is not None:
            kind = api.kinds.find(*owner)
            assert kind is not None
            made = await api.create(kind, "v1", "team-a", {"metadata": {"name": "o"}, "spec": {}})
            named = {"apiVersion": kind.api_version("v1"), "kind": kind.kind, "name": "o"}
            obj["metadata"]["ownerReferences"] = [{**named, "uid": made.uid, "controller": True}]
        await api.create(PODS, "v1", "team-a", obj)
        for spec in ({"schedulingGates": None}, {"nodeName": "node-1"}):
            await api.patch(PODS, "v1", "team-a", "p", {"spec": spec}, "merge")
        api.delete_now(api.get(PODS, "team-a", "p"))

    asyncio.run(live())
    found = [(one.steady.get("cpu", 0), one.ending.get("cpu", 0)) for one in work.changes]
    assert found == expected
    assert all(job.is_managed(AT) for job in work.jobs.values())


def child_holds_on(history: History) -> None:
    """A Job that was let out is stopped, while its JobSet keeps its quota."""
    history.decide(1, "set", "admitted", cpu="2")
    history.runs(2, "set", 2)
    history.decide(10, "child", "evicted", unplanned=True)
    history.runs(60, "set", 0)
    history.decide(61, "child", "waiting")
    history.decide(62, "set", "released")


def child_runs_besides(history: History) -> None:
    history.decide(1, "set", "admitted", cpu="1")
    history.decide(2, "child", "evicted", unplanned=True)
    history.runs(3, "set", 2)


def quota_of_the_set_is_given_back(history: History) -> None:
    history.decide(1, "set", "admitted")
    history.runs(2, "set", 1)
    history.decide(10, "set", "released")
    history.decide(20, "child", "admitted")
    history.runs(21, "set", 0)


CHILDREN: dict[str, tuple[Callable[[History], None], str]] = {
    "its set holds quota until it has stopped": (child_holds_on, ""),
    "it runs beside what its set was given": (child_runs_besides, "runs more than it was given"),
    "its set's quota is given back": (
        quota_of_the_set_is_given_back,
        "is given back while it runs",
    ),
}


@pytest.mark.parametrize(("play", "found"), CHILDREN.values(), ids=CHILDREN)
def test_what_a_job_set_made_is_judged_with_it(play: Callable[[History], None], found: str) -> None:
    history = History()
    history.runs(0, "set", 0)
    history.work.jobs["child"] = replace(history.work.jobs["set"], uid="child", root="set")
    play(history)
    assert [found in problem for problem in history.problems()] == [True] * bool(found)
