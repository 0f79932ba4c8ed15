"""Heartbeats renew leases; copies with an expired lease are stopped."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.patcher.multikueue.heartbeat import HeartbeatSender
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.spokes import Heartbeat
from shared.kube.port import (
    KubeError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from shared.testing.world.loop import VirtualLoop
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from tests.simulation.kinds.test_integrations import CRD, DEFINITIONS
from tests.unit.integrations.gadgets import document, loaded
from tests.unit.patcher.copy_stage import Spoke, copy, order
from tests.unit.patcher.stage import NOON


@pytest.fixture
async def spoke() -> Any:
    one = Spoke()
    await one.bus.start()
    yield one
    await one.bus.stop()


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
def test_copy_with_an_expired_lease_is_stopped(
    loop: VirtualLoop, down_at: float | None, lease: str | None, stopped: bool
) -> None:
    async def drive() -> bool:
        spoke = Spoke()
        await spoke.bus.start()
        await spoke.kube.create(kinds.JOB, copy(lease=lease))
        tasks = [
            asyncio.create_task(spoke.heartbeat.run()),
            asyncio.create_task(spoke.heartbeat.guard(spoke.copies.stop)),
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


def test_copy_deleted_in_the_background_is_stopped_with_its_pods(
    loop: VirtualLoop,
) -> None:
    async def drive() -> int:
        spoke = Spoke()
        owner = await spoke.kube.create(kinds.JOB, copy(lease="60"))
        await spoke.kube.create(kinds.POD, pod_of(owner))
        await spoke.kube.delete(kinds.JOB, "default", "train")
        assert (await spoke.kube.list(kinds.POD)).items, "its finalizer keeps it, and them"
        guard = asyncio.create_task(spoke.heartbeat.guard(spoke.copies.stop))
        with capture_logs() as said:
            await asyncio.sleep(60)
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
        assert len(said) == 1, "once is enough"
        return len((await spoke.kube.list(kinds.POD)).items)

    assert loop.run_until_complete(loop.create_task(drive())) == 0


def test_copy_that_cannot_be_stopped_does_not_block_others(loop: VirtualLoop) -> None:
    async def drive() -> list[str]:
        spoke = Spoke()
        for name in ("a", "b", "c"):
            named = copy(lease="60")
            named["metadata"]["name"] = name
            await spoke.kube.create(kinds.JOB, named)

        async def stop(kind: Kind, found: Object) -> None:
            if found["metadata"]["name"] == "b":
                raise RefusedError("denied the request: not on my watch", status=403)
            await spoke.copies.stop(kind, found)

        guard = asyncio.create_task(spoke.heartbeat.guard(stop))
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
def test_chosen_copy_with_an_expired_lease_starts_after_the_next_heartbeat(
    loop: VirtualLoop, state: str, started: list[object]
) -> None:
    async def may_start(spoke: Spoke) -> object:
        try:
            return await spoke.copies.may_start(copy(lease="10"))
        except LaterError:
            return "later"

    async def beat(spoke: Spoke) -> None:
        beating = asyncio.create_task(spoke.heartbeat.run())
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


async def test_stopped_copy_is_not_started_by_later_heartbeats(
    spoke: Spoke,
) -> None:
    await spoke.apply(order("offered"))
    await spoke.bus.publish(order("chosen"))
    found = await spoke.job()
    assert found is not None
    await spoke.copies.stop(kinds.JOB, found)
    stopped = await spoke.job()
    assert stopped is not None
    assert not await spoke.copies.may_start(stopped)


async def gadget_with_a_lease(spoke: Spoke) -> Kind:
    """A copy of a kind that only an Integration object of this cluster speaks of."""
    await spoke.kube.create(DEFINITIONS, CRD)
    await spoke.kube.create(kinds.INTEGRATION, document())
    integration = loaded()
    made = copy(lease="600")
    made |= {"apiVersion": integration.kind.api_version, "kind": integration.kind.kind}
    await spoke.kube.create(integration.kind, made)
    return integration.kind


def test_guard_reads_the_kinds_of_copies_from_the_cluster(
    loop: VirtualLoop,
) -> None:
    async def drive() -> bool:
        spoke = Spoke()
        kind = await gadget_with_a_lease(spoke)
        guard = asyncio.create_task(spoke.heartbeat.guard(spoke.copies.stop))
        await asyncio.sleep(30)
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
        after = await spoke.kube.get(kind, "default", "train")
        return "deletionTimestamp" in after["metadata"]

    assert loop.run_until_complete(loop.create_task(drive()))


def test_patcher_started_without_the_bus_waits_two_heartbeats(loop: VirtualLoop) -> None:
    async def drive() -> list[float]:
        spoke = Spoke()
        await spoke.kube.create(kinds.JOB, copy(lease="600"))
        guard = asyncio.create_task(spoke.heartbeat.guard(spoke.copies.stop))
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


class UnreachableKube(LocalKube):
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
def test_heartbeat_names_the_cluster_and_whether_its_api_server_answers(
    loop: VirtualLoop, error: KubeError | None, api: bool
) -> None:
    async def drive() -> None:
        kube = UnreachableKube(Api(now=lambda: NOON, random=Random(1)))
        server = MemoryServer()
        bus = MemoryBus(server, instance="patcher")
        lease = HeartbeatSender(
            kube=kube, bus=bus, cluster="east", quota="hub", now=lambda: NOON, beat_seconds=5
        )

        def said() -> Heartbeat:
            entry = server.latest("SPOKES", "sluice.beat.east._._")
            assert entry is not None
            return entry.read(Heartbeat)

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
