"""What the watcher does about what the cluster shows. Nothing here waits for anything but the bus."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from random import Random
from typing import Final

import structlog

from services.watcher.ledger import Ledger, Mark
from services.watcher.observe import observed, tombstone
from services.watcher.outbox import Outbox
from services.watcher.scopes import Scope
from shared.bus.port import Bus, BusError, CaughtUp
from shared.contracts import subjects
from shared.contracts.kube.kinds import INTEGRATION, Kind, Object
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Synced
from shared.contracts.subjects import observed_filter
from shared.integrations import Integrations
from shared.kube.port import Kube
from shared.kube.reflector import Changed, Deleted, Listed, Reflector, Unserved

__all__ = ["Observation"]

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0

BROUGHT_SECONDS: Final = 10.0
"""How long a kind that an Integration brings may keep everything else waiting when watching begins: it
may be one that we may not list."""

BODY_ORPHAN_SECONDS: Final = 3600.0
"""What is younger may be about to be referred to, by a watcher that has just lost its lease."""


class Observation:
    """One term of watching one cluster. What others know of it is read first; nothing outlives it."""

    def __init__(
        self,
        *,
        cluster: str,
        stages: list[list[Scope]],
        bus: Bus,
        kube: Kube,
        now: Callable[[], datetime],
        random: Random,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._cluster = cluster
        self._namespaces = tuple(namespaces)
        self._bus = bus
        self._kube = kube
        self._random = random
        self._now = now
        self._stages = [[_Followed(scope, kube, random) for scope in stage] for stage in stages]
        self._integrations = Integrations()
        self._brought: dict[tuple[str, str], _Brought] = {}
        """By group and plural: what is watched because an Integration says so."""

        self._bring = asyncio.Event()
        self._ledger = Ledger(cluster)
        self._outbox: Outbox | None = None
        self._synced = False
        self._relisted = asyncio.Event()
        self._epochs = 0

    def not_synced(self) -> str | None:
        """None once all was listed and said; else what is missing."""
        if self._synced:
            return None
        missing = [one for stage in self._stages for one in stage if not one.settled.is_set()]
        if not missing:
            return "publishing what was listed"
        trouble = next((one for one in missing if one.reflector.trouble), missing[0])
        return f"not listed yet: {trouble.scope} ({trouble.reflector.trouble or 'waiting'})"

    async def run(self) -> None:
        """Read what has been said, list, say what is new, and go on with what changes."""
        followed = (one.scope.kind for stage in self._stages for one in stage)
        sequences, bodies = await self._read(followed)
        self._outbox = Outbox(self._bus, sequences, bodies)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run())
            group.create_task(self._sweep(frozenset(bodies.values())))
            for stage in self._stages:
                for one in stage:
                    group.create_task(self._follow(one, self._outbox))
                for one in stage:
                    await one.settled.wait()
            await self._bring_kinds(group, self._outbox)
            await self._settle_brought()
            group.create_task(self._keep_bringing(group, self._outbox))
            while True:
                await self._announce(self._outbox)
                await self._relisted.wait()

    async def _keep_bringing(self, group: asyncio.TaskGroup, outbox: Outbox) -> None:
        while True:
            await self._bring.wait()
            await self._bring_kinds(group, outbox)

    async def _bring_kinds(self, group: asyncio.TaskGroup, outbox: Outbox) -> None:
        """Watch what the Integrations in force speak of and is not watched yet, in that version."""
        self._bring.clear()
        shipped = {one.scope.kind for stage in self._stages for one in stage}
        for kind in self._integrations.brought():
            resource = (kind.group, kind.plural)
            before = self._brought.get(resource)
            if kind in shipped or (before is not None and before.kind == kind):
                continue
            if before is not None:
                before.stop()
            outbox.recall(*await self._read([kind]))
            scopes = [Scope(kind=kind, namespace=name) for name in self._namespaces or (None,)]
            found = [_Followed(scope, self._kube, self._random) for scope in scopes]
            tasks = [group.create_task(self._follow(one, outbox)) for one in found]
            self._brought[resource] = _Brought(kind, found, tasks)
            log.info("kind_brought", kind=str(scopes[0]))

    async def _settle_brought(self) -> None:
        try:
            async with asyncio.timeout(BROUGHT_SECONDS):
                for brought in self._brought.values():
                    for one in brought.followed:
                        await one.settled.wait()
        except TimeoutError:
            log.warning(
                "brought_kinds_not_listed",
                kinds=[str(b.kind.plural) for b in self._brought.values()],
            )

    async def _sweep(self, refs: frozenset[str]) -> None:
        """Delete the large bodies that nothing refers to: a watcher died between two steps."""
        prefix = f"{subjects.ROOT}.observed.{subjects.encode(self._cluster)}."
        try:
            deleted = await self._bus.keep_bodies(
                prefix, refs, older_than_seconds=BODY_ORPHAN_SECONDS
            )
        except BusError as error:  # The next one sweeps.
            log.warning("bodies_not_swept", error=str(error))
        else:
            if deleted:
                log.info("bodies_swept", deleted=deleted)

    async def _read(self, kinds: Iterable[Kind]) -> tuple[dict[str, int], dict[str, str]]:
        """Fill the ledger from the view.

        Return the last sequence of each subject that exists, and the body of those that are too
        large for a message.
        """
        followed = {kind.detail: kind for kind in kinds}
        sequences: dict[str, int] = {}
        bodies: dict[str, str] = {}
        filters = [observed_filter(kind, self._cluster) for kind in followed.values()]
        entries = self._bus.watch("OBSERVED", *filters)
        async with aclosing(entries) as reading:
            async for entry in reading:
                if isinstance(entry, CaughtUp):
                    break
                try:
                    mark = Mark.read(entry.data)
                except UndecodableError as error:
                    log.warning("undecodable_observed", subject=entry.subject, error=str(error))
                    continue
                kind = followed[f"{mark.plural}_{mark.group.replace('.', '_')}"]
                if mark.version != kind.version:
                    # Said by an older release, in another form: it has to be said again.
                    mark = mark.model_copy(update={"resource_version": ""})
                self._ledger.note(kind, mark)
                if entry.body_ref is not None:
                    bodies[entry.subject] = entry.body_ref
                else:
                    bodies.pop(entry.subject, None)
                if mark.deleted:
                    sequences.pop(entry.subject, None)
                else:
                    sequences[entry.subject] = entry.sequence
        log.info("view_read", objects=len(self._ledger))
        return sequences, bodies

    async def _follow(self, followed: "_Followed", outbox: Outbox) -> None:
        scope = followed.scope
        async with aclosing(followed.reflector.run()) as reflections:
            async for reflection in reflections:
                match reflection:
                    case Changed():
                        self._on_changed(scope, reflection.object, outbox)
                    case Deleted():
                        self._on_deleted(scope, reflection.object, outbox)
                    case Listed():
                        self._on_listed(scope, reflection.items, outbox)
                        followed.settle(served=True)
                        self._relisted.set()
                    case Unserved():
                        if reflection.certain:
                            self._on_listed(scope, [], outbox)
                        if followed.served:
                            self._relisted.set()
                        followed.settle(served=False)

    def _on_changed(self, scope: Scope, obj: Object, outbox: Outbox) -> None:
        said = observed(self._cluster, scope.kind, obj)
        if scope.kind == INTEGRATION and self._integrations.take(said):
            self._bring.set()
        known = self._ledger.known(scope.kind, said.namespace, said.name)
        if known is not None and known.uid != said.uid:
            # Its end was never seen: deleted and made anew between two watches.
            self._bury(scope, (said.namespace, said.name), outbox)
        elif known is not None and known.resource_version == said.resource_version:
            return
        self._ledger.note(scope.kind, said)
        outbox.put(said)

    def _on_deleted(self, scope: Scope, obj: Object, outbox: Outbox) -> None:
        said = tombstone(self._cluster, scope.kind, obj)
        known = self._ledger.known(scope.kind, said.namespace, said.name)
        if known is None or known.uid != said.uid:
            return  # The end of a life of which nothing was said, or whose end was.
        self._ledger.note(scope.kind, said)
        outbox.put(said)

    def _on_listed(self, scope: Scope, items: list[Object], outbox: Outbox) -> None:
        there = {(item["metadata"].get("namespace"), item["metadata"]["name"]) for item in items}
        for name in self._ledger.names(scope.kind, scope.namespace):
            if name not in there:
                self._bury(scope, name, outbox)
        for item in items:
            self._on_changed(scope, item, outbox)

    def _bury(self, scope: Scope, name: tuple[str | None, str], outbox: Outbox) -> None:
        if (said := self._ledger.gone(scope.kind, name)) is not None:
            self._ledger.note(scope.kind, said)
            outbox.put(said)

    async def _announce(self, outbox: Outbox) -> None:
        """Say that all that was listed is on the log."""
        self._relisted.clear()
        self._epochs += 1
        await outbox.flush()
        at = self._now()
        followed = [one for stage in self._stages for one in stage]
        followed += [one for brought in self._brought.values() for one in brought.followed]
        message = Synced(
            cluster=self._cluster,
            epoch=f"{at.isoformat()}/{self._epochs}",
            kinds=list(dict.fromkeys(one.scope.kind.detail for one in followed if one.served)),
            at=at,
        )
        while True:
            try:
                await self._bus.publish(message)
            except BusError as error:
                log.warning("bus_refused", subject=message.subject, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        unserved = [str(one.scope) for one in followed if not one.served]
        log.info("synced", epoch=message.epoch, objects=len(self._ledger), unserved=unserved)
        self._synced = True


class _Followed:
    """One scope and how far it is."""

    def __init__(self, scope: Scope, kube: Kube, random: Random) -> None:
        self.scope = scope
        self.reflector = Reflector(
            kube=kube,
            kind=scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            random=random,
        )
        self.settled = asyncio.Event()
        self.served = False

    def settle(self, *, served: bool) -> None:
        self.served = served
        self.settled.set()


class _Brought:
    """A kind that is watched because an Integration speaks of it."""

    def __init__(
        self, kind: Kind, followed: list[_Followed], tasks: list[asyncio.Task[None]]
    ) -> None:
        self.kind = kind
        self.followed = followed
        self._tasks = tasks

    def stop(self) -> None:
        """Watch it no longer: it is to be watched in another version."""
        for task in self._tasks:
            task.cancel()
