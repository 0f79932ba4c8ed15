"""A group is let go as far as it was admitted, and its stop is told when nothing of it runs."""

import asyncio
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.pacing import WriteLoad
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.group_cleanup import GroupCleanup
from services.patcher.jobs.groups import GroupController
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import conditions_of, is_true, message_of
from shared.contracts.kube.kinds import EVENT, INTEGRATION, NAMESPACE, POD, WORKLOAD, Kind, Object
from shared.contracts.kube.names import STOPPED_BY
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.workloads import JobRef, Members, PodSet, WorkloadState
from shared.integrations import ObjectError, PodSetInfo, opted_documents
from shared.kube.port import NotFoundError, RefusedError
from shared.settings.configuration import Configuration
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.unit.integrations.grouped_pods import PODS, pod, workload
from tests.unit.patcher.stage import NOON, Setup
from tests.unit.patcher.test_api_server_errors import FaultyKube

STATE = WorkloadState(
    cluster="hub",
    namespace="team-a",
    name="g",
    uid="uid-x",
    phase="running",
    created_at=NOON,
    owner=JobRef(api_version="v1", kind="Pod", plural="pods", name="g", uid="uid-x", is_group=True),
    members=Members(total=3, present=3, complete=True),
)
EVICTED = Admission(
    cluster="hub",
    namespace="team-a",
    name="g",
    uid="uid-x",
    state="evicted",
    reason="Preempted",
    term=1,
    number=1,
    decided_at=NOON,
)

ADMITTED = EVICTED.replace(state="admitted", reason="", number=0)


class Cluster:
    """A cluster in memory with a group in it, and what lets the group go."""

    def __init__(self) -> None:
        self.kube = LocalKube(Api(now=lambda: NOON, random=Random(1)))
        self.cache = ObjectCache(bus=MemoryBus(MemoryServer(), instance="test"), cluster="hub")
        load = WriteLoad()
        writer = Writer(kube=self.kube, cache=self.cache, load=load)
        self.events = events = EventRecorder(kube=self.kube, now=lambda: NOON, per_second=1000.0)
        self.groups = GroupController(
            cache=self.cache,
            kube=self.kube,
            writer=writer,
            events=events,
            cleanup=GroupCleanup(writer=writer, cache=self.cache, events=events, load=load),
            now=lambda: NOON,
            not_seen_seconds=0.01,
        )

    async def hold(self, *pods: Object) -> None:
        await self.kube.create(NAMESPACE, {"metadata": {"name": "team-a"}} | _typed("Namespace"))
        for one in pods:
            made = await self.kube.create(POD, _new(one) | _typed("Pod"))
            status = {"metadata": {"uid": made["metadata"]["uid"]}, "status": one["status"]}
            name = made["metadata"]["name"]
            made = await self.kube.patch(POD, "team-a", name, status, subresource="status")
            self.cache.groups.observe(made, PODS)

    async def delete(self, name: str) -> None:
        """Delete one without its finalizer: nobody has observed it yet."""
        obj = await self.kube.get(POD, "team-a", name)
        bare = {"metadata": {"uid": obj["metadata"]["uid"], "finalizers": None}}
        await self.kube.patch(POD, "team-a", name, bare)
        with suppress(NotFoundError):
            await self.kube.delete(POD, "team-a", name, uid=obj["metadata"]["uid"])

    async def told(self, reason: str) -> list[tuple[str, int]]:
        """The objects that have an event with this reason, and how often."""
        found = [obj for obj in (await self.kube.list(EVENT)).items if obj["reason"] == reason]
        return [(obj["involvedObject"]["name"], obj["count"]) for obj in found]

    async def let_go(self) -> set[str]:
        found = (await self.kube.list(POD, namespace="team-a")).items
        return {one["metadata"]["name"] for one in found if not one["spec"].get("schedulingGates")}


def _typed(kind: str) -> Object:
    return {"apiVersion": "v1", "kind": kind}


def _new(obj: Object) -> Object:
    """An object as its user creates it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return obj | {"metadata": metadata}


OPTED = {"integrations": {"frameworks": ["pod"]}}
TWO = [PodSetAssignment(name="a", count=2, flavors={"cpu": "spot"}, usage={"cpu": "2"})]


async def agree() -> None:
    """The decision is the last one."""


async def test_no_more_pods_are_let_go_than_were_admitted() -> None:
    cluster = Cluster()
    await cluster.hold(pod("x", "Running"), pod("y"), pod("z"), pod("other", role="b"))
    admitted = await cluster.kube.create(WORKLOAD, _new(workload(a=2)))
    group = cluster.cache.groups.find(POD, "team-a", "g")
    assert group is not None
    info = PodSetInfo(name="a", count=2, node_selector={"disk": "ssd"}, tolerations=())
    released = await cluster.groups.release(group, [info], admitted, ADMITTED, check=agree)
    assert released.refused is None
    assert await cluster.let_go() == {"x", "y"}
    let_go = await cluster.kube.get(POD, "team-a", "y")
    assert let_go["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert released.version == int(let_go["metadata"]["resourceVersion"])
    owners = (await cluster.kube.get(WORKLOAD, "team-a", "g"))["metadata"]["ownerReferences"]
    assert [one["name"] for one in owners] == ["y"]


async def test_pod_that_asks_for_more_than_its_role_stays_gated_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    read: list[str] = []
    get = Writer.get

    async def noted(self: Writer, kind: Kind, namespace: str | None, name: str) -> Body | None:
        read.append(name)
        return await get(self, kind, namespace, name)

    monkeypatch.setattr(Writer, "get", noted)
    large, same, less = pod("a-large", cpu="800"), pod("same"), pod("z-less", cpu="500m")
    await cluster.hold(large, same, less)
    admitted = await cluster.kube.create(WORKLOAD, _new(workload(a=2)))
    group = cluster.cache.groups.find(POD, "team-a", "g")
    assert group is not None
    info = PodSetInfo(name="a", count=2, node_selector={}, tolerations=())
    for _ in range(2):
        released = await cluster.groups.release(group, [info], admitted, ADMITTED, check=agree)
        assert released.refused is None
    assert await cluster.let_go() == {"same", "z-less"}, "it takes nobody's place"
    assert read.count("a-large") == 1, "what it says already is not read again"
    stays = await cluster.kube.get(POD, "team-a", "a-large")
    (said,) = [one for one in conditions_of(stays) if one["type"] == "ExceedsAdmission"]
    for part in ("a-large", "'a'", "group g", "800 cpu, admitted 1", "create it with what was"):
        assert part in message_of(said)
    telling = asyncio.create_task(cluster.events.run())

    async def is_told() -> bool:
        return sorted(await cluster.told("ExceedsAdmission")) == [("a-large", 1), ("g", 1)]

    await eventually(is_told)
    telling.cancel()


async def test_pod_that_grew_behind_what_is_cached_is_not_let_go() -> None:
    cluster = Cluster()
    await cluster.hold(pod("x", cpu="800"))
    admitted = await cluster.kube.create(WORKLOAD, _new(workload(a=1)))
    small = await cluster.kube.get(POD, "team-a", "x")
    small["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    cluster.cache.groups.observe(small, PODS)
    group = cluster.cache.groups.find(POD, "team-a", "g")
    assert group is not None
    info = PodSetInfo(name="a", count=1, node_selector={}, tolerations=())
    await cluster.groups.release(group, [info], admitted, ADMITTED, check=agree)
    assert await cluster.let_go() == set()


async def test_pod_that_was_let_go_has_an_event_and_one_that_ran_already_has_none() -> None:
    cluster = Cluster()
    await cluster.hold(pod("x", "Running"), pod("y"))
    admitted = await cluster.kube.create(WORKLOAD, _new(workload(a=2)))
    group = cluster.cache.groups.find(POD, "team-a", "g")
    assert group is not None
    info = PodSetInfo(name="a", count=2, node_selector={}, tolerations=())
    await cluster.groups.release(group, [info], admitted, ADMITTED, check=agree)
    telling = asyncio.create_task(cluster.events.run())

    async def is_told() -> bool:
        return await cluster.told("Started") == [("y", 1)]

    await eventually(is_told)
    telling.cancel()


async def test_pod_that_is_gone_meanwhile_leaves_the_version_of_those_that_were_let_go() -> None:
    cluster = Cluster()
    await cluster.hold(pod("x"), pod("y"), pod("z"))
    admitted = await cluster.kube.create(WORKLOAD, _new(workload(a=3)))
    group = cluster.cache.groups.find(POD, "team-a", "g")
    assert group is not None
    await cluster.delete("z")
    info = PodSetInfo(name="a", count=3, node_selector={}, tolerations=())
    released = await cluster.groups.release(group, [info], admitted, ADMITTED, check=agree)
    assert await cluster.let_go() == {"x", "y"}
    newest = await cluster.kube.get(POD, "team-a", "y")
    assert released.version == int(newest["metadata"]["resourceVersion"])


async def test_pod_that_joins_behind_a_refusal_is_not_let_go_by_that_decision() -> None:
    cluster = Cluster()
    refused = pod("x")
    refused["metadata"]["annotations"][STOPPED_BY] = "0.1.0"
    await cluster.hold(refused, pod("y"))
    admitted = await cluster.kube.create(WORKLOAD, _new(workload(a=2)))
    group = cluster.cache.groups.find(POD, "team-a", "g")
    assert group is not None
    for one in (await cluster.kube.list(POD, namespace="team-a")).items:
        cluster.cache.store(POD, one)
    info = PodSetInfo(name="a", count=2, node_selector={}, tolerations=())
    released = await cluster.groups.release(group, [info], admitted, ADMITTED, check=agree)
    assert isinstance(released.refused, ObjectError)
    assert await cluster.let_go() == set()


async def test_stop_of_a_group_returns_once_no_pod_runs() -> None:
    cluster = Cluster()
    await cluster.hold(pod("x", "Running"), pod("y", "Running"), pod("z"))
    with pytest.raises(LaterError, match="2 objects of group team-a/g end"):
        await cluster.groups.stop(STATE, EVICTED, None, PODS, agree)
    left = {
        one["metadata"]["name"]: one
        for one in (await cluster.kube.list(POD, namespace="team-a")).items
    }
    ends = {name for name, one in left.items() if "deletionTimestamp" in one["metadata"]}
    assert ends == {"x", "y"}
    assert all(is_true(left[name], "TerminationTarget") for name in ends)
    newest = max(int(one["metadata"]["resourceVersion"]) for one in left.values())
    assert await cluster.groups.stop(STATE, EVICTED, None, PODS, agree) == str(newest)


async def test_group_of_which_this_replica_has_not_seen_the_last_pod_waits_for_it() -> None:
    cluster = Cluster()
    await cluster.hold(pod("x"), pod("y"))
    members = Members(total=3, present=3, complete=True, latest="z/uid-z")
    state = STATE.replace(members=members)
    with pytest.raises(LaterError, match="was not observed as it is now"):
        cluster.groups.find(state, PODS)


@pytest.mark.parametrize(
    ("refused", "action"), [(1, "hold"), (2, "release")], ids=["one runs", "none runs"]
)
async def test_refused_pod_leaves_the_quota_to_those_that_run(refused: int, action: str) -> None:
    setup = Setup()
    kube = FaultyKube(setup.kube)
    setup.patchers_kube, setup.configuration = kube, Configuration.model_validate(OPTED)
    kube.answers["patch", "Pod", ""] = [RefusedError("denied", status=400) for _ in range(refused)]
    await setup.bus.start()
    await setup.start_patcher()
    await setup.flavor()
    for document in opted_documents(["pod"]):
        await setup.observe(
            INTEGRATION, document | {"metadata": document["metadata"] | {"uid": "i"}}
        )
    pods = []
    for name in "xy":
        obj = _new(pod(name, total=2)) | _typed("Pod")
        obj["metadata"] |= {"namespace": "default"}
        made = await setup.kube.create(POD, obj)
        pods.append(made["metadata"])
        await setup.observe(POD, made)
    latest = f"{pods[-1]['name']}/{pods[-1]['uid']}"
    state = STATE.replace(
        namespace="default",
        phase="waiting",
        held=True,
        version=pods[-1]["resourceVersion"],
        pod_sets=[PodSet(name="a", count=2, requests={"cpu": "1"})],
        members=Members(total=2, present=2, complete=True, latest=latest),
    )
    await setup.bus.publish(state)
    # A decision that comes at the same time would be carried out twice, once for each message.
    await eventually(partial(setup.workload, state))
    await setup.decide(state, "admitted", pod_sets=TWO)

    async def told() -> bool:
        return bool(await setup.outcomes())

    await eventually(told)
    assert [(one.action, one.result) for one in await setup.outcomes()] == [(action, "refused")]
    await setup.kill_patcher()
    await setup.bus.stop()
