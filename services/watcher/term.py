"""One term of leadership: reads what is on the log, lists the cluster, and publishes every change.

Reading from the API server never waits for anything but the bus.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Final

import structlog

from services.watcher import shares, stale_objects
from services.watcher.departures import Departures
from services.watcher.observe import observed, tombstone
from services.watcher.published import ObjectName, PublishedObjects
from services.watcher.publisher import ObservedPublisher
from services.watcher.scopes import LOOKED_FOR, RETIRED, Scope
from services.watcher.withheld import Withheld
from shared.bus.follow import read, recall
from shared.bus.port import Bus, BusError, Entry, UnavailableError
from shared.contracts import subjects
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import DEPARTURE, INTEGRATION, Kind
from shared.contracts.messages.observed import Observed, ObservedHeader, Synced
from shared.contracts.subjects import observed_filter
from shared.integrations import Integrations
from shared.kube.port import Kube, KubeError
from shared.kube.reflector import Changed, Deleted, Listed, Reflector, Unserved
from shared.telemetry import probes

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0

LOOK_SECONDS: Final = 60.0
"""Interval of the question which kinds the API server serves, while there are some to look for."""

INTEGRATION_KINDS_SECONDS: Final = 10.0
"""How long the first `Synced` waits for the kinds of Integration objects: the watcher may not be allowed to
list one of them."""

BODY_ORPHAN_SECONDS: Final = 3600.0
"""Age of a large body without a message before it is deleted. A watcher that has just lost its lease may be
about to publish the message of a younger one."""


_HAS_CONTROLLER: Final = re.compile(rb'"controller":\s*true')
"""In the body of an object that another one controls; the others need not be decoded."""

_SHORT: Final = re.compile(shares.NOTE.encode())
"""In the body of an object that was published without its contents: it is published again."""


@dataclass(slots=True, kw_only=True)
class _WatchedScope:
    """A scope, and whether it was listed."""

    scope: Scope
    reflector: Reflector
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Listed, or not served."""

    served: bool = False

    def settle(self, *, served: bool) -> None:
        self.served = served
        self.settled.set()


@dataclass(slots=True, kw_only=True)
class _IntegrationKind:
    """A kind that is watched because an Integration object describes it, or because it is served."""

    kind: Kind
    scopes: list[_WatchedScope]
    tasks: list[asyncio.Task[None]]

    def stop(self) -> None:
        """Stop watching: the kind is to be watched in another version."""
        for task in self.tasks:
            task.cancel()


class Term:
    """From the start of a lease to its loss. Nothing is kept for the next term."""

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
        until_pods_gone: bool = True,
    ) -> None:
        self._cluster = cluster
        self._namespaces = tuple(namespaces)
        self._bus = bus
        self._kube = kube
        self._random = random
        self._now = now
        self._stages = [
            [self._watched(scope) for scope in stage if scope.kind not in LOOKED_FOR]
            for stage in stages
        ]
        self._looked_for = frozenset(
            scope.kind for stage in stages for scope in stage if scope.kind in LOOKED_FOR
        )
        self._served: frozenset[Kind] = frozenset()
        """Those of them that the API server serves, or of which objects are on the log."""

        self._integrations = Integrations()
        self._departures = Departures(
            kube=kube,
            integrations=self._integrations,
            release=self._on_departed,
            show=self._on_changed,
            tell=self._tell,
            enabled=until_pods_gone,
        )
        self._integration_kinds: dict[tuple[str, str], _IntegrationKind] = {}
        """By group and plural."""

        self._integrations_changed = asyncio.Event()
        self._published = PublishedObjects(cluster)
        self._publisher = ObservedPublisher(bus)
        self._withheld = Withheld()
        self._synced = False
        self._relisted = asyncio.Event()
        self._epochs = 0

    def not_synced(self) -> str | None:
        """What is not listed or published yet; None after the first `Synced`."""
        if self._synced:
            return None
        missing = [one for one in self._shipped() if not one.settled.is_set()]
        if not missing:
            return "publishing what was listed"
        failing = next((one for one in missing if one.reflector.trouble), missing[0])
        return f"not listed yet: {failing.scope} ({failing.reflector.trouble or 'waiting'})"

    async def run(self) -> None:
        """Read the log, list every kind stage by stage, then publish changes until cancelled."""
        kinds = [
            *(one.scope.kind for one in self._shipped()),
            *self._looked_for,
            *RETIRED,
            DEPARTURE,
        ]
        bodies = await self._read_published(kinds)
        # What was published of a kind that is served no more gets tombstones.
        self._served = frozenset(k for k in self._looked_for if self._published.names(k, None))
        for kind in RETIRED:
            self._on_listed(Scope(kind=kind), [])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publisher.run())
            group.create_task(self._departures.run())
            group.create_task(self._delete_orphaned_bodies(frozenset(bodies)))
            for stage in self._stages:
                for one in stage:
                    group.create_task(self._follow(one))
                for one in stage:
                    await one.settled.wait()
            await self._look()
            await self._watch_integration_kinds(group)
            await self._await_integration_kinds()
            if self._looked_for:
                group.create_task(self._keep_looking())
            group.create_task(self._keep_watching_integration_kinds(group))
            group.create_task(self._keep_ending_stale())
            while True:
                await self._publish_synced()
                await self._relisted.wait()

    def _watched(self, scope: Scope) -> _WatchedScope:
        reflector = Reflector(
            kube=self._kube,
            kind=scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            random=self._random,
        )
        return _WatchedScope(scope=scope, reflector=reflector)

    def _shipped(self) -> list[_WatchedScope]:
        """The scopes of the settings, without those of Integration objects."""
        return [one for stage in self._stages for one in stage]

    # --- kinds of Integration objects ---

    async def _keep_looking(self) -> None:
        while self._looked_for - self._served:
            await asyncio.sleep(LOOK_SECONDS * self._random.uniform(0.75, 1.25))
            before = self._served
            await self._look()
            if self._served != before:
                self._integrations_changed.set()

    async def _look(self) -> None:
        """Ask which of the kinds that few clusters have are served. One request, however many there are."""
        if not self._looked_for - self._served:
            return
        try:
            served = await self._kube.served()
        except KubeError as error:
            log.warning("cannot ask which kinds the cluster serves", error=str(error))
            return
        self._served |= {
            kind for kind in self._looked_for if (kind.group, kind.version, kind.plural) in served
        }

    def _brought_kinds(self) -> list[Kind]:
        """The kinds to watch because they are served or because Integrations describe them."""
        added = self._integrations.added_kinds()
        resources = {(kind.group, kind.plural) for kind in added}
        served = sorted(self._served, key=lambda kind: kind.detail)
        return [*(k for k in served if (k.group, k.plural) not in resources), *added]

    async def _keep_watching_integration_kinds(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._integrations_changed.wait()
            await self._watch_integration_kinds(group)

    async def _watch_integration_kinds(self, group: asyncio.TaskGroup) -> None:
        """Watch each kind that is brought, in the version that its Integration names."""
        self._integrations_changed.clear()
        shipped = {one.scope.kind for one in self._shipped()}
        for kind in self._brought_kinds():
            resource = (kind.group, kind.plural)
            before = self._integration_kinds.get(resource)
            if kind in shipped or (before is not None and before.kind == kind):
                continue
            if before is not None:
                before.stop()
            await self._read_published([kind])
            integration = self._integrations.find(group=kind.group, plural=kind.plural)
            labels = None if integration is None else integration.selector
            found = [
                Scope(kind=kind, namespace=name, labels=labels)
                for name in self._namespaces or (None,)
            ]
            scopes = [self._watched(scope) for scope in found]
            tasks = [group.create_task(self._follow(one)) for one in scopes]
            self._integration_kinds[resource] = _IntegrationKind(
                kind=kind, scopes=scopes, tasks=tasks
            )
            log.info("watching the kind of an Integration", kind=str(found[0]))

    async def _await_integration_kinds(self) -> None:
        try:
            async with asyncio.timeout(INTEGRATION_KINDS_SECONDS):
                for each in self._integration_kinds.values():
                    for one in each.scopes:
                        await one.settled.wait()
        except TimeoutError:
            log.warning(
                "kinds of Integrations are not listed yet; going on without them",
                kinds=[each.kind.plural for each in self._integration_kinds.values()],
            )

    # --- the log ---

    async def _read_published(self, kinds: Iterable[Kind]) -> list[str]:
        """Read which objects of these kinds are on the log; return the references of their large bodies."""
        sequences: dict[str, int] = {}
        sizes: dict[str, int] = {}
        bodies: dict[str, str] = {}
        by_detail = {kind.detail: kind for kind in kinds}

        def on_state(state: ObservedHeader, entry: Entry) -> None:
            kind = by_detail[state.subject.rsplit(".", 1)[1]]
            self._published.record(kind, state)
            if _SHORT.search(entry.data):
                self._published.doubt(kind, stale_objects.name_of(state))
            is_needed = kind == DEPARTURE or self._departures.remembers(kind)
            is_needed = is_needed or bool(_HAS_CONTROLLER.search(entry.data))
            if is_needed and (whole := read(entry, Observed)) is not None:
                self._departures.restore(kind, whole)
            if entry.body_ref is not None:
                bodies[entry.subject] = entry.body_ref
            else:
                bodies.pop(entry.subject, None)
            if state.deleted:
                sequences.pop(entry.subject, None)
                sizes.pop(entry.subject, None)
            else:
                sequences[entry.subject] = entry.sequence
                sizes[entry.subject] = len(entry.data)

        def on_unreadable(entry: Entry) -> None:
            """Say again what hides behind the entry: what it was, or that it is gone."""
            sequences[entry.subject] = entry.sequence
            if (name := subjects.observed_of(entry.subject)) is not None:
                self._published.doubt(by_detail[entry.subject.rsplit(".", 1)[1]], ObjectName(*name))

        filters = [observed_filter(kind, self._cluster) for kind in by_detail.values()]
        await recall(
            self._bus, {ObservedHeader: on_state}, filters=filters, on_unreadable=on_unreadable
        )
        self._publisher.add_published(sequences, bodies, sizes)
        log.info("the watcher has read what is published", objects=len(self._published))
        return list(bodies.values())

    async def _keep_ending_stale(self) -> None:
        pause = grown = again = stale_objects.FIRST_SECONDS
        while True:
            await asyncio.sleep(pause)
            if await self._end_stale():
                again = stale_objects.FIRST_SECONDS
                pause = grown = grown * stale_objects.FACTOR
            else:
                pause = again
                again *= stale_objects.FACTOR

    async def _end_stale(self) -> bool:
        """Publish tombstones of objects that an earlier watcher reported and this term's list lacks.

        What departs is gone when its pods are. Returns False if nobody could be asked.
        """
        brought = [one for each in self._integration_kinds.values() for one in each.scopes]
        scopes = [one.scope for one in (*self._shipped(), *brought) if one.served]
        try:
            found = await stale_objects.find_stale(
                self._bus, self._kube, self._cluster, scopes, self._is_known
            )
        except (KubeError, UnavailableError) as error:
            log.warning("cannot look for published objects that are gone", error=str(error))
            return False
        for scope, state, entry in found:
            if self._publisher.is_on_its_way(entry.subject):
                continue  # Its end is what this term says itself.
            probes.STALE_ENDED.fired += 1
            log.warning("an earlier watcher spoke of an object that is gone", subject=entry.subject)
            bodies = {} if entry.body_ref is None else {entry.subject: entry.body_ref}
            self._publisher.add_published({entry.subject: entry.sequence}, bodies)
            self._published.record(scope.kind, state)
            if scope.kind == DEPARTURE and (whole := read(entry, Observed)) is not None:
                self._departures.restore(DEPARTURE, whole)
            else:
                self._depart(scope, stale_objects.name_of(state))
        return True

    def _is_known(self, kind: Kind, name: ObjectName) -> bool:
        return self._published.state(kind, name) is not None

    async def _delete_orphaned_bodies(self, refs: frozenset[str]) -> None:
        """Delete large bodies without a message: a watcher died between storing and publishing."""
        prefix = subjects.subject_filter("observed", self._cluster).removesuffix(">")
        try:
            deleted = await self._bus.keep_bodies(
                prefix, refs, older_than_seconds=BODY_ORPHAN_SECONDS
            )
        except BusError as error:  # The next term tries again.
            log.warning("cannot delete bodies that nobody needs", error=str(error))
        else:
            if deleted:
                log.info("deleted bodies that nobody needs", deleted=deleted)

    # --- the cluster ---

    async def _follow(self, watched: _WatchedScope) -> None:
        scope = watched.scope
        async with aclosing(watched.reflector.run()) as reflections:
            async for reflection in reflections:
                match reflection:
                    case Changed():
                        self._on_changed(scope, reflection.object)
                    case Deleted():
                        self._on_deleted(scope, reflection.object)
                    case Listed():
                        self._on_listed(scope, reflection.items)
                        watched.settle(served=True)
                        self._relisted.set()
                    case Unserved():
                        if reflection.certain:
                            self._on_listed(scope, [])
                        if watched.served:
                            self._relisted.set()
                        watched.settle(served=False)

    def _on_changed(self, scope: Scope, obj: Body) -> None:
        if self._departures.observe(scope, obj):
            return
        state = observed(self._cluster, scope.kind, obj)
        if scope.kind == INTEGRATION and self._integrations.observe(state):
            self._integrations_changed.set()
        name = ObjectName(state.namespace, state.name)
        known = self._published.state(scope.kind, name)
        if known is not None and known.uid != state.uid:
            # The object was deleted and created again between two watches.
            probes.RECREATED.fired += 1
            if self._depart(scope, name, later=obj):
                if (
                    not known.resource_version
                ):  # Nobody of this release can read what was said last.
                    self._withheld.add(known.uid)
                return
        elif (
            known is not None
            and known.resource_version == state.resource_version
            and not self._publisher.is_short(state.subject)
        ):
            return
        self._publish(scope, state)

    def _on_deleted(self, scope: Scope, obj: Body) -> None:
        state = tombstone(self._cluster, scope.kind, obj)
        if self._departures.forget_later(scope, state):
            return
        known = self._published.state(scope.kind, ObjectName(state.namespace, state.name))
        if known is None or known.uid != state.uid:
            return  # This uid was never published, or its tombstone was.
        if not self._departures.depart(scope, state):
            self._publish(scope, state)

    def _on_listed(self, scope: Scope, items: list[Body]) -> None:
        existing = {(item["metadata"].get("namespace"), item["metadata"]["name"]) for item in items}
        for name in self._published.names(scope.kind, scope.namespace):
            if name not in existing:
                probes.TOMBSTONE_AT_LIST.fired += 1
                self._depart(scope, name)
        for item in items:
            self._on_changed(scope, item)

    def _depart(self, scope: Scope, name: ObjectName, later: Body | None = None) -> bool:
        """Publish a tombstone now, or hold it back with the next object of that name (True)."""
        state = self._published.tombstone(scope.kind, name)
        if state is None:
            return False
        if self._departures.depart(scope, state, later):
            return True
        if later is None or not self._departures.is_succeeded(scope.kind, state, later):
            self._publish(scope, state)
        return False

    def _on_departed(self, scope: Scope, state: Observed, later: Body | None) -> None:
        self._withheld.discard(state.uid)
        if later is not None and self._departures.is_succeeded(scope.kind, state, later):
            self._departures.observe(scope, later)
            self._publish(scope, observed(self._cluster, scope.kind, later))
            return
        self._publish(scope, state)
        if later is not None:
            self._on_changed(scope, later)

    async def _tell(self, scope: Scope, state: Observed) -> None:
        self._publish(scope, state)
        await self._publisher.flush()

    def _publish(self, scope: Scope, state: Observed) -> None:
        self._published.record(scope.kind, state)
        self._publisher.put(state)

    async def _publish_synced(self) -> None:
        """Publish that everything that was listed is on the log."""
        self._relisted.clear()
        self._epochs += 1
        await self._withheld.settle()
        await self._publisher.flush()
        at = self._now()
        watched = self._shipped()
        watched += [one for each in self._integration_kinds.values() for one in each.scopes]
        message = Synced(
            cluster=self._cluster,
            epoch=f"{at.isoformat()}/{self._epochs}",
            kinds=list(dict.fromkeys(one.scope.kind.detail for one in watched if one.served)),
            at=at,
        )
        while True:
            try:
                await self._bus.publish(message)
            except BusError as error:
                log.warning(
                    "the bus does not take a message; trying again",
                    subject=message.subject,
                    error=str(error),
                )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        unserved = [str(one.scope) for one in watched if not one.served]
        log.info(
            "every kind is listed and published",
            epoch=message.epoch,
            objects=len(self._published),
            unserved=unserved,
        )
        self._synced = True
