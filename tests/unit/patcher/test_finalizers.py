"""ClusterQueues, flavors and checks stay while they are in use."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from services.patcher.cluster.finalizers import ConfigurationFinalizers
from services.patcher.cluster.pacing import WriteLoad
from shared.bus.headers import TYPE
from shared.bus.port import Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.messages.base import SCHEMA_VERSION
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.subjects import synced_filter
from shared.kube.port import NotFoundError
from shared.telemetry import probes
from shared.testing.builders import observed_object
from shared.testing.probing import acts
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup

QUEUE = (kinds.CLUSTER_QUEUE, "cq")
FLAVOR = (kinds.RESOURCE_FLAVOR, "spot")
CHECK = (kinds.ADMISSION_CHECK, "theirs")
SPECS: dict[Kind, dict[str, Any]] = {
    kinds.RESOURCE_FLAVOR: {},
    kinds.ADMISSION_CHECK: {"controllerName": "example.com/theirs"},
    kinds.CLUSTER_QUEUE: {
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "spot"}]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "theirs"}]},
    },
}


class Cluster(Setup):
    """With a queue that names a flavor and a check."""

    async def get(self, kind: Kind, name: str) -> dict[str, Any] | None:
        try:
            return dict(await self.kube.get(kind, None, name))
        except NotFoundError:
            return None

    async def see(self, kind: Kind, name: str) -> None:
        """What the watcher publishes now."""
        obj = await self.get(kind, name)
        if obj is not None:
            await self.observe(kind, obj)

    async def delete(self, kind: Kind, name: str) -> None:
        obj = await self.get(kind, name)
        assert obj is not None
        await self.kube.delete(kind, None, name, uid=obj["metadata"]["uid"])
        await self.see(kind, name)

    async def has_finalizer(self, kind: Kind, name: str) -> bool:
        obj = await self.get(kind, name) or {"metadata": {}}
        return RESOURCE_IN_USE in obj["metadata"].get("finalizers", [])

    async def is_gone(self, kind: Kind, name: str) -> bool:
        return await self.get(kind, name) is None

    async def list_all(self) -> None:
        """What the watcher says once it has listed everything."""
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))

    async def quota_says(self, reserving: int, reason: str = "Terminating") -> None:
        await self.bus.publish(
            QueueStatus(
                cluster="hub", kind="ClusterQueue", name="cq", pending=0, reserving=reserving,
                admitted=reserving, active=False, reason=reason, message="", at=NOON,
            )
        )  # fmt: skip

    async def shows(self, reserving: int) -> bool:
        obj = await self.get(*QUEUE) or {}
        return (obj.get("status") or {}).get("reservingWorkloads") == reserving


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    subject = Cluster()
    await subject.bus.start()
    await subject.start_patcher()
    await subject.list_all()
    for kind, name in (FLAVOR, CHECK, QUEUE):
        await subject.kube.create(kind, as_body({"metadata": {"name": name}, "spec": SPECS[kind]}))
        await subject.see(kind, name)
        await eventually(partial(subject.has_finalizer, kind, name))
        await subject.see(kind, name)
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


async def test_deleted_queue_goes_when_nothing_holds_its_quota(cluster: Cluster) -> None:
    await cluster.quota_says(0, reason="Ready")
    await eventually(partial(cluster.shows, 0))
    await cluster.delete(*QUEUE)
    for reserving in (3, 0):
        await cluster.quota_says(reserving, reason="Ready")
        await eventually(partial(cluster.shows, reserving))
    assert await cluster.has_finalizer(*QUEUE), "quota has not seen that it is deleted"
    await cluster.quota_says(2)
    await eventually(partial(cluster.shows, 2))
    assert await cluster.has_finalizer(*QUEUE)
    await cluster.quota_says(0)
    await eventually(partial(cluster.is_gone, *QUEUE))


async def test_queue_that_lives_keeps_its_finalizer_whatever_quota_says(cluster: Cluster) -> None:
    await cluster.quota_says(0)
    await eventually(partial(cluster.shows, 0))
    assert await cluster.has_finalizer(*QUEUE)


@pytest.mark.parametrize("named", [FLAVOR, CHECK], ids=["flavor", "check"])
@pytest.mark.parametrize("changed", [True, False], ids=["queue changes", "queue goes"])
async def test_deleted_flavor_or_check_goes_when_no_queue_names_it(
    cluster: Cluster, named: tuple[Kind, str], changed: bool
) -> None:
    await cluster.delete(*named)
    other = (kinds.RESOURCE_FLAVOR, "other")
    await cluster.kube.create(other[0], as_body({"metadata": {"name": "other"}, "spec": {}}))
    await cluster.see(*other)
    await eventually(partial(cluster.has_finalizer, *other))  # The deletion was handled before.
    assert await cluster.has_finalizer(*named)
    if changed:
        without: dict[str, Any] = {"spec": {"resourceGroups": [], "admissionChecksStrategy": None}}
        await cluster.kube.patch(QUEUE[0], None, QUEUE[1], without)
        await cluster.see(*QUEUE)
    else:
        obj = await cluster.get(*QUEUE)
        assert obj is not None
        await cluster.bus.publish(observed_object(QUEUE[0], obj, deleted=True))
    await eventually(partial(cluster.is_gone, *named))


async def test_deleted_flavor_goes_once_all_queues_are_listed() -> None:
    """And not while the view is still being read, though it has that they were."""
    cluster = Cluster()
    await cluster.bus.start()
    metadata = {"name": "spot", "finalizers": [RESOURCE_IN_USE]}
    await cluster.kube.create(FLAVOR[0], as_body({"metadata": metadata, "spec": {}}))
    await cluster.delete(*FLAVOR)
    await cluster.start_patcher()
    other = (kinds.RESOURCE_FLAVOR, "other")
    await cluster.kube.create(other[0], as_body({"metadata": {"name": "other"}, "spec": {}}))
    await cluster.see(*other)
    await eventually(partial(cluster.has_finalizer, *other))  # The deletion was handled before.
    assert await cluster.has_finalizer(*FLAVOR)
    await cluster.list_all()
    await eventually(partial(cluster.is_gone, *FLAVOR))
    await cluster.kill_patcher()
    finalizers = ConfigurationFinalizers(
        bus=cluster.bus, kube=cluster.kube, cluster="hub", load=WriteLoad()
    )
    async with aclosing(cluster.bus.replay("OBSERVED", synced_filter("hub"))) as items:
        listed = await anext(items)
    assert isinstance(listed, Entry)
    assert finalizers._on_entry(listed)
    assert not finalizers._is_free(FLAVOR), "its queue may come next"
    await cluster.bus.stop()


UNREAD = {
    "the log is new": (),
    "a newer release describes the queue": (QUEUE,),
}


@pytest.mark.parametrize("named", [FLAVOR, CHECK], ids=["flavor", "check"])
@pytest.mark.parametrize("newer", UNREAD.values(), ids=UNREAD.keys())
async def test_flavor_or_check_stays_until_all_queues_are_read(
    named: tuple[Kind, str], newer: tuple[tuple[Kind, str], ...]
) -> None:
    cluster = Cluster()
    await cluster.bus.start()
    for kind, name in (named, QUEUE):
        metadata = {"name": name, "finalizers": [RESOURCE_IN_USE]}
        await cluster.kube.create(kind, as_body({"metadata": metadata, "spec": SPECS[kind]}))
    if newer:
        await cluster.list_all()
    for kind, name in newer:
        said = observed_object(kind, await cluster.kube.get(kind, None, name))
        cluster.server.publish(said.subject, b"{}", {TYPE: Observed.type, SCHEMA_VERSION: "99"})
    await cluster.delete(*named)
    with acts(probes.QUEUES_AWAITED):
        await cluster.start_patcher()
        other = (kinds.RESOURCE_FLAVOR, "other")
        await cluster.kube.create(other[0], as_body({"metadata": {"name": "other"}, "spec": {}}))
        await cluster.see(*other)
        await eventually(partial(cluster.has_finalizer, *other))  # The deletion was handled before.
    assert await cluster.has_finalizer(*named)

    await cluster.see(*QUEUE)
    await cluster.list_all()
    another = (kinds.RESOURCE_FLAVOR, "another")
    await cluster.kube.create(another[0], as_body({"metadata": {"name": "another"}, "spec": {}}))
    await cluster.see(*another)
    await eventually(partial(cluster.has_finalizer, *another))
    assert await cluster.has_finalizer(*named), "the queue names it"
    obj = await cluster.get(*QUEUE)
    assert obj is not None
    await cluster.bus.publish(observed_object(QUEUE[0], obj, deleted=True))
    await eventually(partial(cluster.is_gone, *named))
    await cluster.kill_patcher()
    await cluster.bus.stop()
