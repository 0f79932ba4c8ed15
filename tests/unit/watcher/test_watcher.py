"""The whole watcher, over a simulated cluster and a bus in memory, in virtual time."""

import asyncio
from collections.abc import AsyncIterator

from typing_extensions import override

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from services.watcher.observe import observed
from shared.contracts.kube.kinds import (
    CLUSTER_QUEUE,
    CONFIGURATION_KINDS,
    JOB,
    LOCAL_QUEUE,
    NAMESPACE,
    RESOURCE_FLAVOR,
    SECRET,
    WORKLOAD,
    Kind,
)
from shared.contracts.messages.observed import Synced
from shared.kube.port import Listing, RefusedError, WatchEvent
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.watcher.harness import Harness, job, run_harness

WATCHED = (*CONFIGURATION_KINDS, WORKLOAD, JOB)


def test_all_objects_are_published_and_then_synced() -> None:
    async def drive(harness: Harness) -> None:
        for number in range(600):
            await harness.job(f"j{number}")
        watcher = await harness.start()
        await asyncio.sleep(5)
        assert watcher.ready() is None
        assert harness.view() == await harness.truth(*WATCHED)
        last = harness.log()[-1]
        synced = Synced.decode(last.data, last.headers)
        assert synced.epoch
        assert "jobs_batch" in synced.kinds
        assert harness.synced() == 1

    run_harness(drive)


def test_configuration_is_published_before_jobs() -> None:
    async def drive(harness: Harness) -> None:
        await harness.job("j")
        await harness.kube.create(RESOURCE_FLAVOR, {"metadata": {"name": "f"}, "spec": {}})
        await harness.start()
        await asyncio.sleep(5)
        plurals = [one.plural for one in harness.published()]
        assert plurals.index("resourceflavors") < plurals.index("jobs")

    run_harness(drive)


def test_each_change_is_published_once_and_deletion_as_tombstone() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("j")
        await asyncio.sleep(1)
        await harness.touch("j", "1")
        await asyncio.sleep(1)
        await harness.delete("j")
        await asyncio.sleep(1)
        messages = harness.published(JOB)
        assert [one.deleted for one in messages] == [False, False, True]
        assert len({one.resource_version for one in messages}) == 3
        assert messages[-1].object is not None
        assert messages[-1].object["metadata"].keys() == {
            "name",
            "namespace",
            "uid",
            "resourceVersion",
        }

    run_harness(drive)


def test_restart_publishes_only_changes() -> None:
    async def drive(harness: Harness) -> None:
        await harness.job("stays")
        await harness.job("changes")
        await harness.job("goes")
        first = await harness.job("returns")
        await harness.start()
        await asyncio.sleep(5)
        before = len(harness.published())
        await harness.kill()
        await harness.touch("changes", "1")
        await harness.delete("goes")
        await harness.delete("returns")
        second = await harness.job("returns")
        await harness.start()
        await asyncio.sleep(60)
        new = [(one.name, one.deleted, one.uid) for one in harness.published()[before:]]
        uid = {item["metadata"]["name"]: item["metadata"]["uid"] for item in (first, second)}
        assert sorted(name for name, _, _ in new) == ["changes", "goes", "returns", "returns"]
        returns = [(deleted, uid_) for name, deleted, uid_ in new if name == "returns"]
        assert returns == [(True, first["metadata"]["uid"]), (False, uid["returns"])]
        assert harness.view() == await harness.truth(*WATCHED)
        assert harness.synced() == 2

    run_harness(drive)


def test_object_recreated_between_watches_gets_tombstone_first() -> None:
    async def drive(harness: Harness) -> None:
        first = await harness.job("j")
        await harness.start()
        await asyncio.sleep(5)
        harness.break_watches()
        await harness.delete("j")
        second = await harness.job("j")
        harness.api.store.forget_events()
        await asyncio.sleep(60)
        assert [(one.deleted, one.uid) for one in harness.published(JOB)] == [
            (False, first["metadata"]["uid"]),
            (True, first["metadata"]["uid"]),
            (False, second["metadata"]["uid"]),
        ]

    run_harness(drive)


def test_states_are_coalesced_while_bus_is_away() -> None:
    async def drive(harness: Harness) -> None:
        first = await harness.job("j")
        await harness.start()
        await asyncio.sleep(5)
        before = len(harness.published(JOB))
        harness.server.restart(down_seconds=20)
        for number in range(500):
            await harness.touch("j", str(number))
            await asyncio.sleep(0.01)
        for _ in range(20):
            await harness.delete("j")
            last = await harness.job("j")
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        new = harness.published(JOB)[before:]
        assert len(new) <= 4
        assert (new[-2].uid, new[-2].deleted) == (first["metadata"]["uid"], True)
        assert (new[-1].uid, new[-1].deleted) == (last["metadata"]["uid"], False)
        assert harness.view() == await harness.truth(*WATCHED)

    run_harness(drive)


def test_tombstone_of_published_uid_comes_first_after_long_bus_outage() -> None:
    """Longer than the bus itself tries: what was on its way comes back behind newer states."""

    async def drive(harness: Harness) -> None:
        first = await harness.job("j")
        await harness.start()
        await asyncio.sleep(5)
        harness.server.restart(down_seconds=150)
        await asyncio.sleep(0.1)
        await harness.touch("j", "on-its-way")
        await asyncio.sleep(0.1)
        await harness.delete("j")
        second = await harness.job("j")
        await asyncio.sleep(300)
        messages = [(one.deleted, one.uid) for one in harness.published(JOB)]
        assert messages == [
            (False, first["metadata"]["uid"]),
            (True, first["metadata"]["uid"]),
            (False, second["metadata"]["uid"]),
        ]
        assert harness.view() == await harness.truth(*WATCHED)

    run_harness(drive)


def test_unacknowledged_state_is_replaced_by_newer_one() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await asyncio.sleep(5)
        harness.server.restart(down_seconds=150)
        await asyncio.sleep(0.1)
        await harness.job("j")
        await asyncio.sleep(0.1)
        await harness.touch("j", "1")
        await asyncio.sleep(300)
        (message,) = harness.published(JOB)
        assert message.object is not None
        assert message.object["metadata"]["labels"] == {"touched": "1"}

    run_harness(drive)


def test_second_watcher_stands_by() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await asyncio.sleep(5)
        other = await harness.start()
        await asyncio.sleep(5)
        assert other.ready() is None
        await harness.job("j")
        await asyncio.sleep(1)
        assert len(harness.published(JOB)) == 1
        assert harness.synced() == 1

    run_harness(drive)


def test_older_state_does_not_follow_newer_one_of_other_watcher() -> None:
    """The lease was lost unnoticed: another watcher has published the newer state and the tombstone."""

    async def drive(harness: Harness) -> None:
        await harness.job("j")
        await harness.start(kube=Delayed(harness.api, seconds=5))
        await asyncio.sleep(30)
        await harness.touch("j", "1")
        await harness.delete("j")
        after = harness.published(JOB)[-1].model_copy(update={"resource_version": "999999"})
        harness.server.publish(
            after.subject,
            after.model_copy(update={"deleted": True, "object": None}).encode(),
            {},
        )
        await asyncio.sleep(30)
        assert harness.published(JOB)[-1].resource_version == "999999"
        assert harness.view() == await harness.truth(*WATCHED)

    run_harness(drive)


def test_object_that_a_term_of_before_had_on_its_way_does_not_outlive_it() -> None:
    """Nobody leads the log for a while; meanwhile the lease changes hands twice, and the object goes."""

    async def drive(harness: Harness) -> None:
        await harness.start()
        await asyncio.sleep(10)
        holder = harness.server.holder("watcher-hub")
        assert holder is not None
        harness.server.elect("OBSERVED", seconds=20)
        await asyncio.sleep(2)
        await harness.job("j")
        await asyncio.sleep(1)
        harness.server.release("watcher-hub", holder)
        assert harness.server.acquire("watcher-hub", "another", ttl_seconds=5)
        await asyncio.sleep(3)
        await harness.delete("j")
        await asyncio.sleep(20)  # Before the term looks for what others have published.
        assert harness.server.holder("watcher-hub") == holder
        assert [one.deleted for one in harness.published(JOB)] in ([], [False, True])
        assert harness.view() == await harness.truth(*WATCHED)

    run_harness(drive)


class Delayed(LocalKube):
    """Its watch is late."""

    def __init__(self, api: Api, *, seconds: float) -> None:
        super().__init__(api)
        self._seconds = seconds

    @override
    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        async for event in super().watch(
            kind, resource_version=resource_version, namespace=namespace, labels=labels
        ):
            await asyncio.sleep(self._seconds)
            yield event


def test_no_secret_is_published_and_those_of_earlier_versions_end() -> None:
    async def drive(harness: Harness) -> None:
        label = {"build.appstudio.redhat.com/multi-platform-secret": "true"}
        metadata = {"namespace": "default", "name": "machine", "labels": label}
        secret = await harness.kube.create(
            SECRET, {"metadata": metadata, "stringData": {"k": "hidden"}}
        )
        bus = MemoryBus(harness.server, instance="earlier version")
        await bus.start()
        await bus.publish(observed("hub", SECRET, secret))
        await bus.stop()
        await harness.start()
        await asyncio.sleep(5)
        assert [one.deleted for one in harness.published(SECRET)] == [False, True]

    run_harness(drive)


def test_named_namespaces_and_cluster_scoped_kinds_are_watched() -> None:
    async def drive(harness: Harness) -> None:
        for name in ("a", "b", "c"):
            await harness.kube.create(NAMESPACE, {"metadata": {"name": name}})
            obj = job("j")
            obj["metadata"]["namespace"] = name
            await harness.kube.create(JOB, obj)
        await harness.start(namespaces=("a", "c"))
        await asyncio.sleep(5)
        assert {one.namespace for one in harness.published(JOB)} == {"a", "c"}
        assert {"a", "b", "c"} <= {one.name for one in harness.published(NAMESPACE)}

    run_harness(drive)


def test_synced_is_published_only_after_every_kind_is_listed() -> None:
    async def drive(harness: Harness) -> None:
        kube = Forbidding(harness.api)
        watcher = await harness.start(kube=kube)
        await harness.job("j")
        await asyncio.sleep(600)
        assert harness.synced() == 0
        assert "localqueues" in (watcher.ready() or "")
        assert "not allowed" in (watcher.ready() or "")
        kube.allowed = True
        await asyncio.sleep(60)
        assert harness.synced() == 1
        assert harness.published(JOB)

    run_harness(drive)


class Forbidding(LocalKube):
    """One kind may not be listed."""

    allowed = False

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        if kind == LOCAL_QUEUE and not self.allowed:
            raise RefusedError("not allowed", status=403)
        return await super().list(kind, namespace=namespace, labels=labels)


def test_message_of_cluster_queue_has_kind_and_group() -> None:
    async def drive(harness: Harness) -> None:
        await harness.kube.create(
            CLUSTER_QUEUE, {"metadata": {"name": "q"}, "spec": {"resourceGroups": []}}
        )
        await harness.start()
        await asyncio.sleep(5)
        (message,) = harness.published(CLUSTER_QUEUE)
        assert message.subject == "sluice.observed.hub._.q.clusterqueues_kueue_x-k8s_io"
        assert message.object is not None
        assert message.object["kind"] == "ClusterQueue"

    run_harness(drive)
