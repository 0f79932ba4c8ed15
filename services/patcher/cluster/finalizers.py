"""Keeps ClusterQueues, ResourceFlavors and AdmissionChecks from going while they are in use, as Kueue does.

Each has the finalizer `kueue.x-k8s.io/resource-in-use`. That of a ClusterQueue goes when quota says that
nothing holds quota in it any more (`queue_status.py`); that of a flavor or a check when no ClusterQueue names
it. Objects that Kueue left in deletion are released in the same way.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import add_finalizer, remove_finalizer
from services.patcher.cluster.writer import get_or_none
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import observed_filter
from shared.kube.port import Kube, NotFoundError

PER_SECOND: Final = 20.0
"""Finalizers written per second: a new cluster has some hundreds of these objects."""

BURST: Final = 20

_Key = tuple[Kind, str]


class ConfigurationFinalizers:
    """Adds and removes the finalizers of one cluster's configuration."""

    def __init__(
        self, *, bus: Bus, kube: Kube, cache: ObjectCache, cluster: str, load: WriteLoad
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._cache = cache
        self._cluster = cluster
        self._limiter = RateLimiter(PER_SECOND, burst=BURST, load=load)
        self._backlog: Backlog[_Key, None] = Backlog()
        self._named_by: dict[str, frozenset[_Key]] = {}
        """ClusterQueue to the flavors and checks that it names."""

        self._terminating: set[_Key] = set()
        """Flavors and checks that are being deleted."""

    async def run(self) -> None:
        """Follow the configuration and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            filters = [observed_filter(kind, self._cluster) for kind in _KINDS]
            handlers = {Observed: self._observe}
            group.create_task(
                follow(self._bus, handlers, filters=filters, on_caught_up=self._recheck)
            )
            group.create_task(drain(self._backlog, self._write, self._limiter, what="finalizer"))

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
        if self._cache.not_synced() is not None:
            self._backlog.put(key, None)
            return
        kind, name = key
        obj = await get_or_none(self._kube, kind, None, name)
        if obj is None:
            return
        patch = add_finalizer(obj, RESOURCE_IN_USE)
        is_in_use = any(key in named for named in self._named_by.values())
        if kind != kinds.CLUSTER_QUEUE and "deletionTimestamp" in obj["metadata"] and not is_in_use:
            patch = remove_finalizer(obj, RESOURCE_IN_USE)
        if patch is not None:
            try:
                await self._kube.patch(kind, None, name, patch)
            except NotFoundError:
                return  # It was deleted meanwhile.


_KINDS: Final = (kinds.CLUSTER_QUEUE, kinds.RESOURCE_FLAVOR, kinds.ADMISSION_CHECK)
_KIND_OF: Final = {kind.plural: kind for kind in _KINDS}


def _named(queue: Body) -> Iterable[_Key]:
    """The flavors and checks that a ClusterQueue names, in `v1beta1` or `v1beta2`."""
    spec = spec_of(queue)
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            yield kinds.RESOURCE_FLAVOR, str(flavor.get("name"))
    strategy = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or []
    for name in (*(check.get("name") for check in strategy), *(spec.get("admissionChecks") or [])):
        yield kinds.ADMISSION_CHECK, str(name)
