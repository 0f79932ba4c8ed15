"""What the judge of quota and pods lets pass and what it does not, on histories small enough to read."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from services.simulator.cluster.api import Api
from services.simulator.judge.pods_of_quota import BOUND, PodsOfQuota
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.integrations import Integrations, opted_documents
from tests.simulation.kinds.pods import GATE, member, pod

LONG = (BOUND + timedelta(seconds=1)).total_seconds()
KINDS = Integrations()
for document in opted_documents(("pod",)):
    KINDS.apply(document)


class Cluster:
    """What its API server has seen, at times that a test sets."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        api = Api(now=lambda: self._now, random=Random(1))
        self._kube = LocalKube(api)
        self.judge = PodsOfQuota(api, now=lambda: self._now, integrations=KINDS)

    async def begin(self) -> None:
        await self._kube.create(kinds.NAMESPACE, {"metadata": {"name": "team-a"}})
        self.judge.begin()

    def later(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    async def pods(self, *names: str, total: int = 2) -> None:
        """Pods of group g, at their gates."""
        for name in names:
            await self.pod(member(name, total), gated=True)

    async def pod(self, obj: Object, *, gated: bool) -> Object:
        if gated:
            obj["spec"]["schedulingGates"] = [{"name": GATE}]
        return await self._kube.create(kinds.POD, obj)

    async def job(self) -> Object:
        """What waits as a whole, and makes a pod."""
        template = {"spec": pod("j")["spec"]}
        metadata = {"name": "j", "namespace": "team-a", "labels": {QUEUE: "q"}}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        made = await self._kube.create(kinds.JOB, {**body, "spec": {"template": template}})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}
        return {**owner, "uid": made["metadata"]["uid"]}

    async def workload(
        self, name: str = "g", *, count: int = 2, owner: Object | None = None
    ) -> None:
        spec = {
            "podSets": [{"name": "main", "count": count, "template": {"spec": pod("x")["spec"]}}]
        }
        metadata: dict[str, Any] = {"name": name, "namespace": "team-a"}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        body = {"apiVersion": kinds.WORKLOAD.api_version, "kind": "Workload", "metadata": metadata}
        await self._kube.create(kinds.WORKLOAD, {**body, "spec": spec})

    async def says(self, *true: str, name: str = "g") -> None:
        """Set these conditions of a Workload, and no others."""
        common = {"status": "True", "reason": "R", "message": "m"}
        common["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        conditions = [{"type": type_, **common} for type_ in true]
        patch = {"status": {"conditions": conditions}}
        await self._kube.patch(kinds.WORKLOAD, "team-a", name, patch, subresource="status")

    async def lets_go(self, *names: str) -> None:
        for name in names:
            await self._kube.patch(kinds.POD, "team-a", name, {"spec": {"schedulingGates": None}})

    async def ends(self, *names: str, phase: str = "Succeeded") -> None:
        for name in names:
            status = {"status": {"phase": phase}}
            await self._kube.patch(kinds.POD, "team-a", name, status, subresource="status")


HELD = ("QuotaReserved", "Admitted")


async def admitted_and_let_go(cluster: Cluster) -> None:
    await cluster.pods("a", "b")
    await cluster.workload()
    cluster.later(LONG)
    await cluster.says(*HELD)
    await cluster.lets_go("a", "b")
    cluster.later(LONG)
    await cluster.ends("a", "b")
    await cluster.says(*HELD, "Finished")
    cluster.later(LONG)


async def admitted_and_let_go_late(cluster: Cluster) -> None:
    await cluster.pods("a", "b")
    await cluster.workload()
    await cluster.says(*HELD)
    await cluster.lets_go("a")
    cluster.later(LONG)
    await cluster.lets_go("b")


async def never_let_go(cluster: Cluster) -> None:
    await cluster.pods("a")
    await cluster.workload()
    await cluster.says(*HELD)
    cluster.later(LONG)


async def waits_for_a_check(cluster: Cluster) -> None:
    await cluster.pods("a", "b")
    await cluster.workload()
    await cluster.says("QuotaReserved")
    cluster.later(LONG)


async def all_ended_and_quota_kept(cluster: Cluster) -> None:
    await cluster.pods("a", total=1)
    await cluster.workload(count=1)
    await cluster.says(*HELD)
    await cluster.lets_go("a")
    await cluster.ends("a", phase="Failed")
    cluster.later(LONG)


async def all_ended_and_quota_given_back_in_time(cluster: Cluster) -> None:
    await all_ended_and_quota_kept(cluster)
    cluster.later(-LONG + BOUND.total_seconds())
    await cluster.says("Evicted")
    cluster.later(LONG)


async def evicted_and_quota_kept(cluster: Cluster) -> None:
    await cluster.pods("a", total=1)
    await cluster.workload(count=1)
    await cluster.says("QuotaReserved", "Evicted")
    await cluster.ends("a", phase="Failed")
    cluster.later(LONG)


async def given_back_too_early(cluster: Cluster) -> None:
    await cluster.pods("a", total=1)
    await cluster.workload(count=1)
    await cluster.says(*HELD)
    await cluster.lets_go("a")
    await cluster.says("Evicted")


async def one_more_than_admitted(cluster: Cluster) -> None:
    await cluster.pods("a", "b", "c")
    await cluster.workload()
    await cluster.says(*HELD)
    await cluster.lets_go("a", "b", "c")


async def one_in_the_place_of_another(cluster: Cluster) -> None:
    await cluster.pods("a", "b", "c")
    await cluster.workload()
    await cluster.says(*HELD)
    await cluster.lets_go("a", "b")
    await cluster.ends("b", phase="Failed")
    await cluster.lets_go("c")


async def runs_at_its_gate(cluster: Cluster) -> None:
    await cluster.pods("a")
    await cluster.ends("a", phase="Running")


async def job_and_its_pod(cluster: Cluster) -> Object:
    """A Job with quota, and a pod of it that runs."""
    owner = await cluster.job()
    await cluster.workload("job-j", count=1, owner=owner)
    await cluster.says(*HELD, name="job-j")
    made = await cluster.pod(pod("p", ownerReferences=[owner]), gated=False)
    cluster.later(LONG)
    return made


async def runs_with_its_job(cluster: Cluster) -> None:
    await job_and_its_pod(cluster)


async def waits_beside_its_job(cluster: Cluster) -> None:
    made = await job_and_its_pod(cluster)
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    await cluster.workload("pod-p", count=1, owner=owner)


CASES: dict[str, tuple[Callable[[Cluster], Awaitable[None]], str]] = {
    "pods that run and end on their quota": (admitted_and_let_go, ""),
    "a pod that is let go late": (admitted_and_let_go_late, "b is not let go, for 31.0 s"),
    "a pod that is never let go": (never_let_go, "a is not let go, for 31.0 s"),
    "pods whose quota waits for a check": (waits_for_a_check, ""),
    "quota without pods": (all_ended_and_quota_kept, "holds quota, and has no pods, for 31.0 s"),
    "quota without pods, given back in time": (all_ended_and_quota_given_back_in_time, ""),
    "an eviction that never ends": (evicted_and_quota_kept, "holds quota, and has no pods"),
    "quota given back before its pods end": (given_back_too_early, "while pod team-a/a runs"),
    "more pods than were admitted": (one_more_than_admitted, "3 pods of Workload team-a/g run"),
    "a pod in the place of one that failed": (one_in_the_place_of_another, ""),
    "a gated pod that runs": (runs_at_its_gate, "pod team-a/a runs at its gate"),
    "a pod of a Job with quota": (runs_with_its_job, ""),
    "such a pod with a Workload": (waits_beside_its_job, "has a Workload of its own"),
}


def found_in(tell: Callable[[Cluster], Awaitable[None]]) -> list[str]:
    async def play() -> list[str]:
        cluster = Cluster()
        await cluster.begin()
        await tell(cluster)
        return cluster.judge.problems()

    return asyncio.run(play())


@pytest.mark.parametrize(("tell", "problem"), CASES.values(), ids=CASES.keys())
def test_judge_finds_where_quota_and_pods_part_and_nothing_else(
    tell: Callable[[Cluster], Awaitable[None]], problem: str
) -> None:
    found = found_in(tell)
    assert [problem in one for one in found] == [True] * bool(problem), found


def test_what_lasts_while_the_world_is_not_calm_counts_from_then_on() -> None:
    async def play() -> list[list[str]]:
        cluster = Cluster()
        await cluster.begin()
        await never_let_go(cluster)
        cluster.judge.begin()
        at_once = cluster.judge.problems()
        cluster.later(LONG)
        return [at_once, cluster.judge.problems()]

    at_once, later = asyncio.run(play())
    assert at_once == []
    assert len(later) == 1
