"""What a spoke's patcher does for each order, and what it says about it."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.patcher.multikueue.copies import CopyReconciler
from services.patcher.multikueue.heartbeat import Heartbeat
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.effects import Dispatch
from shared.contracts.messages.spokes import LEASE, Beat, CopyState
from shared.contracts.messages.workloads import OwnerReference
from shared.integrations import Integrations
from shared.kube.port import (
    KubeError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from shared.testing.world.loop import VirtualLoop
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from tests.simulation.test_integrations import CRD, DEFINITIONS
from tests.unit.integrations.gadgets import document, loaded
from tests.unit.patcher.stage import NOON

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
ORDER = "sluicegate.dev/order"
SUBJECT = "sluice.copy.east.default.wl"


class Spoke:
    """A cluster, a bus, and the part of a patcher that carries orders out."""

    def __init__(self) -> None:
        self.kube = LocalKube(Api(now=lambda: NOON, random=Random(1)))
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="patcher")
        self.lease = Heartbeat(
            kube=self.kube,
            bus=self.bus,
            cluster="east",
            quota="hub",
            now=lambda: NOON,
            beat_seconds=5,
        )
        self.integrations = Integrations()
        self.reading: str | None = None
        self.spokes = CopyReconciler(
            kube=self.kube,
            bus=self.bus,
            cluster="east",
            now=lambda: NOON,
            lease_seconds_left=self.lease.seconds_left,
            integrations=self.integrations,
            not_synced=lambda: self.reading,
        )

    async def said(self) -> CopyState | None:
        await self.bus.flush()
        entry = self.server.latest("DISPATCHES", SUBJECT)
        return None if entry is None else CopyState.decode(entry.data)

    async def job(self) -> Object | None:
        try:
            return await self.kube.get(kinds.JOB, "default", "train")
        except NotFoundError:
            return None

    async def end(self, status: Object) -> None:
        """The cluster's own controller says how the copy ended."""
        job = await self.kube.get(kinds.JOB, "default", "train")
        patch = [{"op": "add", "path": "/status", "value": {**job.get("status", {}), **status}}]
        await self.kube.patch(kinds.JOB, "default", "train", patch, subresource="status")

    async def apply(self, order: Dispatch) -> None:
        """Until it does not ask for another time."""
        for _ in range(5):
            try:
                await self.spokes.apply(order)
            except LaterError:
                await asyncio.sleep(0)
            else:
                return
        raise AssertionError("it never ends")


@pytest.fixture
async def spoke() -> Any:
    one = Spoke()
    await one.bus.start()
    yield one
    await one.bus.stop()


def copy(number: int = 7, *, lease: str | None = None) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "default",
            "labels": {ORIGIN: "multikueue", PREBUILT: "wl"},
            "annotations": {ORDER: f"hub/{number}", **({LEASE: lease} if lease else {})},
            "finalizers": ["sluicegate.dev/copy"],
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never",
                                  "containers": [{"name": "c", "image": "none"}]}},
        },
    }  # fmt: skip


def order(state: Any, number: int = 7, **more: Any) -> Dispatch:
    usual: dict[str, Any] = {
        "spoke": "east", "cluster": "hub", "namespace": "default", "name": "wl", "uid": "u",
        "number": number, "at": NOON,
        "job": None if state == "chosen" else copy(number),
        "target": OwnerReference(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid="u"),
    }  # fmt: skip
    return Dispatch(state=state, **(usual | more))


async def test_an_offer_makes_the_copy_and_says_nothing_since_it_can_be_seen(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.apply(order("offered"))
    made = await spoke.job()
    assert made is not None
    assert made["spec"]["suspend"]
    assert await spoke.said() is None


async def test_a_withdrawn_copy_goes_and_the_hub_is_told_so(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None
    said = await spoke.said()
    assert said is not None
    assert (said.state, said.number) == ("gone", 7)


DONE: Object = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}


async def test_what_ended_well_before_it_went_is_said_to_have(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.end(DONE)
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None
    said = await spoke.said()
    assert said is not None
    assert (said.state, said.ended) == ("gone", DONE)


async def test_how_it_ended_is_said_also_where_somebody_else_keeps_it_longer(spoke: Spoke) -> None:
    job = copy()
    job["metadata"]["finalizers"].append("chains.tekton.dev")
    await spoke.apply(order("offered", job=job))
    await spoke.end(DONE)
    with pytest.raises(AssertionError, match="it never ends"):
        await spoke.apply(order("withdrawn"))
    kept = await spoke.job()
    assert kept is not None
    assert kept["metadata"]["finalizers"] == ["chains.tekton.dev"]
    said = await spoke.said()
    assert said is not None
    assert said.ended == DONE


async def test_how_it_ended_is_said_before_it_goes_and_not_forgotten_when_asked_again(
    spoke: Spoke,
) -> None:
    await spoke.apply(order("offered"))
    await spoke.end(DONE)
    await spoke.apply(order("withdrawn"))
    await spoke.apply(order("withdrawn"))
    said = await spoke.said()
    assert said is not None
    assert said.ended == DONE


async def test_what_failed_is_not_said_to_have_ended_well(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.end({"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]})
    await spoke.apply(order("withdrawn"))
    said = await spoke.said()
    assert said is not None
    assert (said.state, said.ended) == ("gone", None)


async def test_a_withdrawal_overtakes_nothing_that_is_not_there(spoke: Spoke) -> None:
    await spoke.apply(order("withdrawn"))
    said = await spoke.said()
    assert said is not None
    assert said.state == "gone"


async def test_what_somebody_else_deleted_stays_until_it_is_withdrawn(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.kube.delete(kinds.JOB, "default", "train")
    kept = await spoke.job()
    assert kept is not None, "its end has to come home"
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None


OTHERS = {
    "it is no copy": {"labels": {}, "annotations": {}},
    "it is another hub's": {"annotations": {ORDER: "hub-b/7"}},
    "it comes from elsewhere": {"labels": {ORIGIN: "b", PREBUILT: "wl"}},
}


@pytest.mark.parametrize("more", OTHERS.values(), ids=OTHERS.keys())
async def test_a_name_that_is_taken_is_reported_and_left_alone(
    spoke: Spoke, more: dict[str, Any]
) -> None:
    other = copy()
    other["metadata"] |= more
    theirs = await spoke.kube.create(kinds.JOB, other)
    await spoke.apply(order("offered"))
    said = await spoke.said()
    assert said is not None
    assert (said.state, said.message) == ("taken", "Job default/train is there already")
    await spoke.apply(order("withdrawn"))
    kept = await spoke.job()
    assert kept is not None
    assert kept["metadata"]["uid"] == theirs["metadata"]["uid"]


async def test_an_earlier_copy_is_replaced(spoke: Spoke) -> None:
    await spoke.apply(order("offered", 7))
    await spoke.apply(order("offered", 8))
    now = await spoke.job()
    assert now is not None
    assert now["metadata"]["annotations"][ORDER] == "hub/8"


async def test_a_copy_of_a_later_order_is_not_the_business_of_an_earlier_withdrawal(
    spoke: Spoke,
) -> None:
    await spoke.apply(order("offered", 8))
    await spoke.apply(order("withdrawn", 7))
    assert await spoke.job() is not None


async def test_what_the_cluster_refuses_is_reported_in_its_words(spoke: Spoke) -> None:
    bad = copy()
    bad["metadata"]["name"] = "NoName"
    await spoke.apply(order("offered", job=bad))
    said = await spoke.said()
    assert said is not None
    assert said.state == "refused"
    assert "NoName" in said.message


async def test_a_kind_of_which_nothing_is_known_is_refused_once_all_is_read(spoke: Spoke) -> None:
    unknown = {**copy(), "apiVersion": "example.com/v1", "kind": "Gadget"}
    spoke.reading = "reading OBSERVED"
    with pytest.raises(LaterError, match="reading OBSERVED"):
        await spoke.spokes.apply(order("offered", job=unknown))
    assert await spoke.said() is None
    spoke.reading = None
    await spoke.apply(order("offered", job=unknown))
    said = await spoke.said()
    assert said is not None
    assert (said.state, said.message) == ("refused", "Gadget is nothing that can wait here")


async def test_another_spokes_order_is_nobodys_here(spoke: Spoke) -> None:
    await spoke.apply(order("offered", spoke="west"))
    assert await spoke.job() is None


async def test_a_wish_of_its_user_is_carried_to_the_copy(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.apply(order("chosen", wish={"activeDeadlineSeconds": 5}))
    now = await spoke.job()
    assert now is not None
    assert now["spec"]["activeDeadlineSeconds"] == 5


STARTS: dict[str, tuple[list[Dispatch], bool]] = {
    "it is chosen": ([order("offered"), order("chosen")], True),
    "it is only offered": ([order("offered")], False),
    "it was withdrawn meanwhile": ([order("chosen"), order("withdrawn")], False),
    "another order is": ([order("chosen", 8)], False),
    "another hub's is": ([order("chosen", cluster="hub-b")], False),
    "nobody ordered anything": ([], False),
}


@pytest.mark.parametrize(("orders", "may"), STARTS.values(), ids=STARTS.keys())
async def test_a_copy_starts_by_no_order_but_one_that_chose_it(
    spoke: Spoke, orders: list[Dispatch], may: bool
) -> None:
    for one in orders:
        await spoke.bus.publish(one)
    assert await spoke.spokes.may_start(copy()) is may


async def test_what_is_no_copy_of_ours_starts_as_it_always_did(spoke: Spoke) -> None:
    assert await spoke.spokes.may_start(
        as_body({"metadata": {"name": "x", "namespace": "default"}})
    )
    stock = copy()
    del stock["metadata"]["annotations"]
    assert await spoke.spokes.may_start(stock), "a stock Kueue hub starts and stops it by itself"


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    one = VirtualLoop()
    yield one
    one.dispose()


@pytest.mark.parametrize(
    ("down_at", "lease", "stopped"),
    [(None, "60", False), (20.0, "60", True), (20.0, None, False)],
    ids=["beats come through", "no beat for longer than the lease", "a copy without a lease"],
)
def test_a_copy_whose_lease_cannot_be_renewed_is_stopped(
    loop: VirtualLoop, down_at: float | None, lease: str | None, stopped: bool
) -> None:
    async def drive() -> bool:
        spoke = Spoke()
        await spoke.bus.start()
        await spoke.kube.create(kinds.JOB, copy(lease=lease))
        tasks = [
            asyncio.create_task(spoke.lease.run()),
            asyncio.create_task(spoke.lease.guard(spoke.spokes.stop)),
        ]
        if down_at is not None:
            await asyncio.sleep(down_at)
            tasks[0].cancel()
        await asyncio.sleep(50)
        before = await spoke.job()
        assert before is not None
        assert "deletionTimestamp" not in before["metadata"], "not before its time"
        await asyncio.sleep(60)
        after = await spoke.job()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await spoke.bus.stop()
        assert after is not None, "its finalizer keeps it until it is withdrawn"
        return "deletionTimestamp" in after["metadata"]

    assert loop.run_until_complete(loop.create_task(drive())) is stopped


def test_a_copy_that_somebody_else_deleted_is_stopped_too_since_what_it_owns_runs_on(
    loop: VirtualLoop,
) -> None:
    async def drive() -> int:
        spoke = Spoke()
        owner = await spoke.kube.create(kinds.JOB, copy(lease="60"))
        await spoke.kube.create(kinds.POD, pod_of(owner))
        await spoke.kube.delete(kinds.JOB, "default", "train")
        assert (await spoke.kube.list(kinds.POD)).items, "its finalizer keeps it, and them"
        guard = asyncio.create_task(spoke.lease.guard(spoke.spokes.stop))
        with capture_logs() as said:
            await asyncio.sleep(60)
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
        assert len(said) == 1, "once is enough"
        return len((await spoke.kube.list(kinds.POD)).items)

    assert loop.run_until_complete(loop.create_task(drive())) == 0


def test_a_copy_that_cannot_be_stopped_keeps_no_other_from_it(loop: VirtualLoop) -> None:
    async def drive() -> list[str]:
        spoke = Spoke()
        for name in ("a", "b", "c"):
            named = copy(lease="60")
            named["metadata"]["name"] = name
            await spoke.kube.create(kinds.JOB, named)

        async def stop(kind: Kind, found: Object) -> None:
            if found["metadata"]["name"] == "b":
                raise RefusedError("denied the request: not on my watch", status=403)
            await spoke.spokes.stop(kind, found)

        guard = asyncio.create_task(spoke.lease.guard(stop))
        await asyncio.sleep(60)
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
        jobs = (await spoke.kube.list(kinds.JOB)).items
        return [j["metadata"]["name"] for j in jobs if "deletionTimestamp" in j["metadata"]]

    assert loop.run_until_complete(loop.create_task(drive())) == ["a", "c"]


def pod_of(job: Object) -> Object:
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "default", "ownerReferences": [owner]},
        "spec": job["spec"]["template"]["spec"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "started"), [("chosen", ["later", True]), ("offered", [False, False])]
)
def test_a_chosen_copy_whose_lease_ran_out_starts_once_beats_come_through_again(
    loop: VirtualLoop, state: str, started: list[object]
) -> None:
    async def may_start(spoke: Spoke) -> object:
        try:
            return await spoke.spokes.may_start(copy(lease="10"))
        except LaterError:
            return "later"

    async def beat(spoke: Spoke) -> None:
        beating = asyncio.create_task(spoke.lease.run())
        await asyncio.sleep(1)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)

    async def drive() -> list[object]:
        spoke = Spoke()
        await spoke.bus.start()
        await beat(spoke)
        await asyncio.sleep(10)
        await spoke.bus.publish(order(state))
        without = await may_start(spoke)
        await beat(spoke)
        again = await may_start(spoke)
        await spoke.bus.stop()
        return [without, again]

    assert loop.run_until_complete(loop.create_task(drive())) == started


async def test_a_copy_that_was_stopped_is_not_started_when_beats_come_through_again(
    spoke: Spoke,
) -> None:
    await spoke.apply(order("offered"))
    await spoke.bus.publish(order("chosen"))
    found = await spoke.job()
    assert found is not None
    await spoke.spokes.stop(kinds.JOB, found)
    stopped = await spoke.job()
    assert stopped is not None
    assert not await spoke.spokes.may_start(stopped)


async def gadget_with_a_lease(spoke: Spoke) -> Kind:
    """A copy of a kind that only an Integration object of this cluster speaks of."""
    await spoke.kube.create(DEFINITIONS, CRD)
    await spoke.kube.create(kinds.INTEGRATION, document())
    integration = loaded()
    made = copy(lease="600")
    made |= {"apiVersion": integration.kind.api_version, "kind": integration.kind.kind}
    await spoke.kube.create(integration.kind, made)
    return integration.kind


def test_without_the_bus_the_cluster_says_of_which_kinds_there_may_be_copies(
    loop: VirtualLoop,
) -> None:
    async def drive() -> bool:
        spoke = Spoke()
        kind = await gadget_with_a_lease(spoke)
        guard = asyncio.create_task(spoke.lease.guard(spoke.spokes.stop))
        await asyncio.sleep(30)
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
        after = await spoke.kube.get(kind, "default", "train")
        return "deletionTimestamp" in after["metadata"]

    assert loop.run_until_complete(loop.create_task(drive()))


def test_a_patcher_that_starts_without_the_bus_gives_itself_two_beats(loop: VirtualLoop) -> None:
    async def drive() -> list[float]:
        spoke = Spoke()
        await spoke.kube.create(kinds.JOB, copy(lease="600"))
        guard = asyncio.create_task(spoke.lease.guard(spoke.spokes.stop))
        at = []
        for _ in range(30):
            await asyncio.sleep(1)
            found = await spoke.job()
            if found is not None and "deletionTimestamp" in found["metadata"]:
                at.append(loop.time())
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
        return at

    stopped = loop.run_until_complete(loop.create_task(drive()))
    assert 10 <= stopped[0] <= 13


class Elsewhere(LocalKube):
    """A cluster that can be out of reach, or refuse who we are."""

    error: KubeError | None = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        if self.error is not None:
            raise self.error
        return await super().get(kind, namespace, name)


AWAY = UnavailableError("no answer")
REASONS: dict[str, tuple[KubeError | None, bool]] = {
    "it answers": (None, True),
    "it does not answer": (AWAY, False),
    "it does not know us any more": (RefusedError("who?", status=401), False),
    "it answers, but does not tell that": (RefusedError("no", status=403), True),
    "it answers that it has much to do": (ThrottledError("wait", retry_after_seconds=1), True),
}


@pytest.mark.parametrize(("error", "api"), REASONS.values(), ids=list(REASONS))
def test_a_beat_says_which_cluster_it_is_and_whether_it_is_reached(
    loop: VirtualLoop, error: KubeError | None, api: bool
) -> None:
    async def drive() -> None:
        kube = Elsewhere(Api(now=lambda: NOON, random=Random(1)))
        server = MemoryServer()
        bus = MemoryBus(server, instance="patcher")
        lease = Heartbeat(
            kube=kube, bus=bus, cluster="east", quota="hub", now=lambda: NOON, beat_seconds=5
        )

        def said() -> Beat:
            entry = server.latest("SPOKES", "sluice.beat.east._._")
            assert entry is not None
            return entry.read(Beat)

        await bus.start()
        beating = asyncio.create_task(lease.run())
        await asyncio.sleep(1)
        uid = (await kube.get(kinds.NAMESPACE, None, "kube-system"))["metadata"]["uid"]
        assert (said().api, said().identity) == (True, uid), "already with the first"
        kube.error = error
        await asyncio.sleep(6)
        assert said().api, "once is no outage"
        await asyncio.sleep(14)
        assert said().api is api
        kube.error = None
        await asyncio.sleep(11)
        assert (said().api, said().identity) == (True, uid)
        beating.cancel()

    loop.run_until_complete(drive())
