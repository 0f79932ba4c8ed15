"""Keeps ClusterQueues, ResourceFlavors and AdmissionChecks from going while they are in use, as Kueue does.

Each has the finalizer `kueue.x-k8s.io/resource-in-use`. That of a ClusterQueue goes when quota says that
nothing holds quota in it any more (`queue_status.py`); that of a flavor or a check when no ClusterQueue names
it. Objects that Kueue left in deletion are released in the same way.

Until all queues have been read, nobody knows that none names a flavor: the view is still being read, or its
log was made anew and the watcher lists the cluster, or a newer release describes the queues.
"""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Final

from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import add_finalizer, remove_finalizer
from services.patcher.cluster.writer import get_or_none
from shared.bus.follow import dispatch, existing
from shared.bus.port import Bus, Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.kube.queue_specs import check_names, flavor_names
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.subjects import observed_filter, synced_filter
from shared.kube.port import Kube, NotFoundError
from shared.telemetry import probes

PER_SECOND: Final = 20.0
"""Finalizers written per second: a new cluster has some hundreds of these objects."""

BURST: Final = 20

_Key = tuple[Kind, str]


class ConfigurationFinalizers:
    """Adds and removes the finalizers of one cluster's configuration."""

    def __init__(self, *, bus: Bus, kube: Kube, cluster: str, load: WriteLoad) -> None:
        self._bus = bus
        self._kube = kube
        self._cluster = cluster
        self._limiter = RateLimiter(PER_SECOND, burst=BURST, load=load)
        self._backlog: Backlog[_Key, None] = Backlog()
        self._named_by: dict[str, frozenset[_Key]] = {}
        """ClusterQueue to the flavors and checks that it names."""

        self._terminating: set[_Key] = set()
        """Flavors and checks that are being deleted."""

        self._is_read = False
        """What was in the view when reading began has been read."""

        self._is_listed = False
        """A watcher of this release has listed the cluster."""

    async def run(self) -> None:
        """Follow the configuration and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(drain(self._backlog, self._write, self._limiter, what="finalizer"))

    async def _follow(self) -> None:
        filters = [
            synced_filter(self._cluster),
            *(observed_filter(kind, self._cluster) for kind in _KINDS),
        ]
        items = existing(
            self._bus,
            Observed.stream,
            filters,
            kinds=(Observed, Synced),
            on_entry=self._on_entry,
        )
        async with aclosing(items):
            async for _ in items:
                self._is_read = True
                self._recheck()

    def _on_entry(self, entry: Entry) -> bool:
        if Observed.is_of_newer_schema(entry.headers):
            self._is_listed = False
        return dispatch(entry, {Observed: self._observe, Synced: self._on_synced})

    def _on_synced(self, _synced: Synced, _entry: Entry) -> None:
        self._is_listed = True
        self._recheck()

    def _observe(self, observed: Observed, _entry: Entry) -> None:
        kind = _KIND_OF[observed.plural]
        key, body = (kind, observed.name), observed.body
        if observed.deleted or body is None:
            self._terminating.discard(key)
            self._backlog.discard(key)
        elif "deletionTimestamp" in body["metadata"]:
            if kind != kinds.CLUSTER_QUEUE:
                self._terminating.add(key)
                self._backlog.put(key, None)
        elif add_finalizer(body, RESOURCE_IN_USE) is not None:
            self._backlog.put(key, None)
        if kind == kinds.CLUSTER_QUEUE:
            self._note_named(observed.name, None if observed.deleted else body)

    def _note_named(self, name: str, queue: Body | None) -> None:
        before = self._named_by.pop(name, frozenset())
        if queue is not None:
            self._named_by[name] = frozenset(_named(queue))
        if before != self._named_by.get(name, frozenset()):
            self._recheck()

    def _recheck(self) -> None:
        for key in self._terminating:
            self._backlog.put(key, None)

    async def _write(self, key: _Key, _value: None) -> None:
        """Add or remove the finalizer of one object, if that is due. Can be repeated."""
        kind, name = key
        obj = await get_or_none(self._kube, kind, None, name)
        if obj is None:
            return
        patch = add_finalizer(obj, RESOURCE_IN_USE)
        if "deletionTimestamp" in obj["metadata"] and self._is_free(key):
            patch = remove_finalizer(obj, RESOURCE_IN_USE)
        if patch is not None:
            try:
                await self._kube.patch(kind, None, name, patch)
            except NotFoundError:
                return  # It was deleted meanwhile.

    def _is_free(self, key: _Key) -> bool:
        """Whether an object may go: a flavor or a check that no queue names, once all queues are read."""
        if key[0] == kinds.CLUSTER_QUEUE or any(key in named for named in self._named_by.values()):
            return False
        is_known = self._is_read and self._is_listed
        probes.QUEUES_AWAITED.fired += not is_known
        return is_known


_KINDS: Final = (kinds.CLUSTER_QUEUE, kinds.RESOURCE_FLAVOR, kinds.ADMISSION_CHECK)
_KIND_OF: Final = {kind.plural: kind for kind in _KINDS}


def _named(queue: Body) -> Iterable[_Key]:
    """The flavors and checks that a ClusterQueue names, in `v1beta1` or `v1beta2`."""
    spec = spec_of(queue)
    for name in flavor_names(spec):
        yield kinds.RESOURCE_FLAVOR, name
    for name in check_names(spec):
        yield kinds.ADMISSION_CHECK, name
