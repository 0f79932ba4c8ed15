"""The state that every question is answered from, kept up to date from the streams.

The view holds a replica of the quota service's state, the status of the queues and their configuration.
It reads the streams only while somebody asks, and drops everything when nobody does. It compares its
counts with those that the quota leader publishes; if they differ for long, it reads all streams again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, NamedTuple

import structlog

from services.console.idle_tracker import IdleTracker
from services.console.metrics import REBUILDS
from services.quota.forecast import FinishedRun, History, Snapshot
from services.quota.queries.replica import ReadReplica
from services.quota.wire.entries import INPUTS
from services.whatif.inputs import OBSERVED_KINDS
from shared.bus.follow import follow_entries, skip_undecodable
from shared.bus.port import Bus, Entry, LogChangedError
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import QueueRef, WorkloadRef
from shared.contracts.subjects import (
    Stream,
    is_synced,
    observed_filter,
    subject_filter,
    synced_filter,
)
from shared.runtime.memory import give_back

log = structlog.get_logger(__name__)

_QUEUE_KINDS: Final = frozenset(
    (kind.group, kind.plural) for kind in (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE)
)

BATCH_MAX: Final = 1_000
"""Messages that are ingested before other tasks get their turn."""

CHANGES_MAX: Final = 20_000
"""A client that is further behind than this gets a full snapshot."""

AUDIT_SECONDS: Final = 10.0
"""Time between two comparisons with the leader's counts, which it publishes within a second."""

DRIFTS_FIRST: Final = 3
DRIFTS_MAX: Final = 96
"""How many comparisons in a row must differ before the streams are read again. A short difference is
normal, because the leader publishes counts a moment after a decision. The limit starts at DRIFTS_FIRST
and doubles each time that reading again did not help, for instance because no leader publishes counts."""

ENDED_MAX: Final = 50_000
"""How many ended workloads are remembered, so that each run is recorded only once."""


_Item = tuple[str, Entry | None]
"""A stream, and an entry of it; None: the entries that existed at the start are read."""


class _DriftError(Exception):
    """The replica differs from the leader."""


class _IdleError(Exception):
    """No page has asked for the idle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """A workload or queue that has changed."""

    version: int
    what: Literal["workload", "queue"]
    ident: WorkloadRef | QueueRef
    """Cluster, namespace (empty for a ClusterQueue) and name."""


class RowText(NamedTuple):
    """A row as JSON, and the messages that it was made from."""

    sources: tuple[object, ...]
    text: str


@dataclass(slots=True)
class _Reading:
    """The result of reading the streams once."""

    replica: ReadReplica
    queues: dict[QueueRef, QueueStatus] = field(default_factory=dict)
    workloads: dict[WorkloadRef, WorkloadState] = field(default_factory=dict)
    observed: dict[str, Observed] = field(default_factory=dict)
    """By subject."""

    configured: dict[QueueRef, Observed] = field(default_factory=dict)
    """The observed queues."""

    namespaces: set[tuple[str, str]] = field(default_factory=set)
    """Cluster and name of each namespace."""

    parents: dict[tuple[str, str], str] = field(default_factory=dict)
    """Cluster and cohort to the cohort above it."""

    texts: dict[tuple[str, WorkloadRef | QueueRef], RowText] = field(default_factory=dict)
    """The rows that pages were told, so that each is made once and not once for each page."""


class View:
    """The state of the console."""

    def __init__(
        self,
        *,
        bus: Bus,
        now: Callable[[], datetime],
        new_replica: Callable[[], ReadReplica] = ReadReplica,
        idle_seconds: float = 0.0,
    ) -> None:
        self.idle_tracker = IdleTracker(idle_seconds)
        self._bus = bus
        self._now = now
        self._new_replica = new_replica
        self._reading = _Reading(new_replica())
        self._changes: deque[ViewChange] = deque(maxlen=CHANGES_MAX)
        self._updated = asyncio.Event()
        self._read = asyncio.Event()
        self._history = History()
        self._recorded_uids: dict[str, None] = {}
        self._drift_limit = DRIFTS_FIRST
        self._on_idle: list[Callable[[], None]] = []
        self.version = 0
        """Grows with each change."""

    # --- reading -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the streams while somebody asks, until cancelled."""
        while True:
            await self.idle_tracker.wait_until_used()
            idle = False
            try:
                await self._follow()
            except* _DriftError as errors:
                REBUILDS.labels(because="apart").inc()
                log.warning("reading the streams again", because=str(errors.exceptions[0]))
            except* LogChangedError as errors:
                REBUILDS.labels(because="log").inc()
                log.warning("reading the streams again", because=str(errors.exceptions[0]))
            except* _IdleError:
                idle = True
            if idle:
                # Outside of `except`: while it is handled, the exception keeps everything in memory.
                self._reset()
                log.info("nobody asks any more: the streams are no longer read")

    def on_idle(self, forget: Callable[[], None]) -> None:
        """Call `forget` when nobody asks any more."""
        self._on_idle.append(forget)

    def _reset(self) -> None:
        for forget in self._on_idle:
            forget()
        self._read.clear()
        self._reading = _Reading(self._new_replica())
        self._changes.clear()
        self._history = History()
        self._recorded_uids.clear()
        self._drift_limit = DRIFTS_FIRST
        give_back()

    async def _follow(self) -> None:
        reading = _Reading(self._new_replica())
        inbox: asyncio.Queue[_Item] = asyncio.Queue()
        filters = {
            Stream.OBSERVED: (synced_filter(), *map(observed_filter, OBSERVED_KINDS)),
            Stream.QUEUES: (subject_filter("queue"),),
        }
        async with asyncio.TaskGroup() as group:
            group.create_task(self._until_idle())
            for stream in (*INPUTS, Stream.QUEUES):
                group.create_task(self._watch(stream, inbox, *filters.get(stream, ())))
            await self._read_to_end(reading, inbox)
            group.create_task(self._audit(reading))
            while True:
                self._ingest(reading, *await inbox.get())
                for _ in range(min(inbox.qsize(), BATCH_MAX)):
                    self._ingest(reading, *inbox.get_nowait())
                reading.replica.advance(self._now())
                self._notify()
                await asyncio.sleep(0)

    async def _until_idle(self) -> None:
        await self.idle_tracker.wait_until_idle()
        raise _IdleError

    async def _watch(self, stream: str, inbox: asyncio.Queue[_Item], *filters: str) -> None:
        await follow_entries(
            self._bus,
            stream,
            filters,
            on_entry=lambda entry: inbox.put_nowait((stream, entry)),
            on_caught_up=lambda _: inbox.put_nowait((stream, None)),
        )

    async def _read_to_end(self, reading: _Reading, inbox: asyncio.Queue[_Item]) -> None:
        """Ingest what the streams hold now, decisions before workloads, and publish it as the view."""
        order = (*INPUTS, Stream.QUEUES)
        found: list[_Item] = []
        unread = set(order)
        while unread:
            stream, entry = await inbox.get()
            found.append((stream, entry))
            if entry is None:
                unread.discard(stream)
        for number, (stream, entry) in enumerate(sorted(found, key=lambda e: order.index(e[0]))):
            self._ingest(reading, stream, entry)
            if number % BATCH_MAX == 0:
                await asyncio.sleep(0)
        reading.replica.advance(self._now())
        self._reading = reading
        self._changes.clear()
        self.version += 1
        self._read.set()
        self._notify()

    def _ingest(self, reading: _Reading, stream: str, entry: Entry | None) -> None:
        if entry is not None:
            skip_undecodable(partial(self._ingest_entry, reading), stream, entry)

    def _ingest_entry(self, reading: _Reading, stream: str, item: Entry) -> None:
        if stream == Stream.QUEUES:
            status = item.read(QueueStatus)
            ident = QueueRef(status.cluster, status.namespace or "", status.name)
            reading.queues[ident] = status
            self._record_change(reading, "queue", ident)
            return
        if stream == Stream.OBSERVED and not is_synced(item.subject):
            self._ingest_observed(reading, item.read(Observed))
        about = reading.replica.apply(stream, item)
        if about is not None:
            if stream == Stream.WORKLOADS:
                self._ingest_workload(reading, about, item.read(WorkloadState))
            self._record_change(reading, "workload", about)

    def _ingest_observed(self, reading: _Reading, observed: Observed) -> None:
        if observed.deleted:
            reading.observed.pop(observed.subject, None)
        else:
            reading.observed[observed.subject] = observed
        if (observed.group, observed.plural) == (kinds.NAMESPACE.group, kinds.NAMESPACE.plural):
            change = reading.namespaces.discard if observed.deleted else reading.namespaces.add
            change((observed.cluster, observed.name))
        if (observed.group, observed.plural) == (kinds.COHORT.group, kinds.COHORT.plural):
            self._ingest_cohort(reading, observed)
        if (observed.group, observed.plural) not in _QUEUE_KINDS:
            return
        ident = QueueRef(observed.cluster, observed.namespace or "", observed.name)
        if observed.deleted:
            reading.configured.pop(ident, None)
            reading.queues.pop(ident, None)
        else:
            reading.configured[ident] = observed
        self._record_change(reading, "queue", ident)

    def _ingest_cohort(self, reading: _Reading, observed: Observed) -> None:
        place = (observed.cluster, observed.name)
        before = reading.parents.pop(place, None)
        spec = spec_of(observed.object)
        parent = spec.get("parentName") or spec.get("parent")
        if parent and not observed.deleted:
            reading.parents[place] = str(parent)
        if reading.parents.get(place) == before:
            return
        for ident in reading.configured:
            if ident[0] == observed.cluster and not ident[1]:
                self._record_change(reading, "queue", ident)

    def _ingest_workload(self, reading: _Reading, ident: WorkloadRef, state: WorkloadState) -> None:
        if state.phase == "gone":
            reading.workloads.pop(ident, None)
            return
        reading.workloads[ident] = state
        if state.finish is not None and state.finish.at is not None:
            self._record_run(state, reading.replica.admissions.get(ident), state.finish.at)

    def _record_run(
        self, state: WorkloadState, admission: Admission | None, ended: datetime
    ) -> None:
        """Record how long a workload ran, once for each uid."""
        began = state.admitted_at
        if admission is not None and admission.uid == state.uid:
            began = admission.admitted_at or began
        if began is None or ended < began or state.uid in self._recorded_uids:
            return
        self._recorded_uids[state.uid] = None
        if len(self._recorded_uids) > ENDED_MAX:
            del self._recorded_uids[next(iter(self._recorded_uids))]
        self._history.add(FinishedRun(state=state, seconds=(ended - began).total_seconds()))

    def _record_change(
        self, reading: _Reading, what: Literal["workload", "queue"], ident: WorkloadRef | QueueRef
    ) -> None:
        if reading is self._reading:
            self.version += 1
            self._changes.append(ViewChange(version=self.version, what=what, ident=ident))

    def _notify(self) -> None:
        updated, self._updated = self._updated, asyncio.Event()
        updated.set()

    async def _audit(self, reading: _Reading) -> None:
        """Compare counts with the leader; raise `_DriftError` if they differ again and again."""
        drifts = 0
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            before = self.version
            problems = reading.replica.drift([*reading.queues.values()])
            if not problems:
                drifts, self._drift_limit = 0, DRIFTS_FIRST
                continue
            # Under load the two are never equal: a difference counts only if the view did not change.
            await asyncio.sleep(1.0)
            if before != self.version:
                continue
            drifts += 1
            if drifts >= self._drift_limit:
                self._drift_limit = min(DRIFTS_MAX, 2 * self._drift_limit)
                raise _DriftError(problems[0])

    # --- queries -------------------------------------------------------------------------------------

    async def wait_until_read(self, seconds: float) -> bool:
        """Record a question; whether the streams are read to their end within so many seconds."""
        self.idle_tracker.touch()
        try:
            async with asyncio.timeout(seconds):
                await self._read.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_change(self, version: int) -> None:
        """Return once the view is newer than `version`."""
        while self.version <= version:
            await self._updated.wait()

    def changes_since(self, version: int) -> list[ViewChange] | None:
        """The changes after `version`, each object once.

        None if the view no longer knows: the client is too far behind, or the streams were read again.
        """
        if version == self.version:
            return []
        if not self._changes or self._changes[0].version > version + 1 or version > self.version:
            return None
        latest: dict[tuple[str, WorkloadRef | QueueRef], ViewChange] = {}
        for change in reversed(self._changes):
            if change.version <= version:
                break
            latest.setdefault((change.what, change.ident), change)
        return list(latest.values())

    @property
    def texts(self) -> dict[tuple[str, WorkloadRef | QueueRef], RowText]:
        """Rows as JSON, for `rows` alone. They end with what was read."""
        return self._reading.texts

    @property
    def replica(self) -> ReadReplica:
        """The replica, for positions and explanations."""
        return self._reading.replica

    def now(self) -> datetime:
        """The time that ages are computed with."""
        return self._now()

    def states(self) -> Iterator[tuple[WorkloadRef, WorkloadState]]:
        """All workloads, without decisions. The names are the view's own: who keeps them copies nothing."""
        yield from self._reading.workloads.items()

    def workload(self, ident: WorkloadRef) -> tuple[WorkloadState, Admission | None] | None:
        """One workload with the decision in force; None if there is none of this name."""
        state = self._reading.workloads.get(ident)
        if state is None:
            return None
        admission = self._reading.replica.admissions.get(ident)
        return state, (admission if admission and admission.uid == state.uid else None)

    def queue(self, ident: QueueRef) -> tuple[Observed | None, QueueStatus | None]:
        """Configuration and status of a queue; None for each that is unknown."""
        return self._reading.configured.get(ident), self._reading.queues.get(ident)

    def cohorts(self, cluster: str, cohort: str | None) -> list[str]:
        """The cohort, its parent, and so on to the root; a cycle is cut."""
        found: list[str] = []
        while cohort and cohort not in found:
            found.append(cohort)
            cohort = self._reading.parents.get((cluster, cohort))
        return found

    def queues(self) -> Iterator[QueueRef]:
        """All configured queues, ClusterQueues first."""
        yield from sorted(self._reading.configured, key=lambda ident: bool(ident[1]))

    def namespaces(self, cluster: str) -> tuple[list[str], list[str]]:
        """The namespaces of `cluster` with LocalQueues there, and those with LocalQueues elsewhere only.

        What another cluster says of namespaces that `cluster` does not have adds none.
        """
        configured, known = self._reading.configured, self._reading.namespaces
        here = {where for at, where, _ in configured if where and at == cluster}
        elsewhere = {where for _, where, _ in configured if (cluster, where) in known} - here
        return sorted(here), sorted(elsewhere)

    def observed(self, kind: Kind) -> list[Observed]:
        """The objects of one kind, in order of cluster and name."""
        found = [
            each
            for each in self._reading.observed.values()
            if (each.group, each.plural) == (kind.group, kind.plural)
        ]
        return sorted(found, key=lambda each: (each.cluster, each.name))

    def snapshot(self) -> Snapshot:
        """A copy of everything that decides about admission, for simulations."""
        snapshot = Snapshot(
            at=self._now(),
            observed=dict(self._reading.observed),
            policy=self._reading.replica.policy,
        )
        for (cluster, namespace, name), state in self._reading.workloads.items():
            snapshot.workloads[cluster, f"{namespace}/{name}"] = state
        for (cluster, namespace, name), admission in self._reading.replica.admissions.items():
            snapshot.admissions[cluster, f"{namespace}/{name}"] = admission
        return snapshot

    @property
    def history(self) -> History:
        """How long ended workloads ran."""
        return self._history

    def recent_submissions(self, span: timedelta) -> list[WorkloadState]:
        """Workloads submitted in the last `span` that still exist."""
        now = self._now()
        states = self._reading.workloads.values()
        return [state for state in states if now - span <= state.created_at < now]
