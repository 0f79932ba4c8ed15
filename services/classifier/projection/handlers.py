"""Connects the projection to the bus: reads OBSERVED and HOSTS, publishes to WORKLOADS."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from services.classifier.metrics import POSTPONED
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.projector import Projector
from shared.bus.follow import dispatch, follow, last_readable, read, recall_entries, why_unreadable
from shared.bus.headers import WRITER
from shared.bus.kind_follower import KindFollower
from shared.bus.leadership import lead
from shared.bus.port import (
    ROOM_FOR_ENDS,
    Bus,
    BusError,
    Entry,
    FencedError,
    LogChangedError,
    LogEnd,
    StreamFullError,
    UnavailableError,
)
from shared.contracts.kube.kinds import INTEGRATION
from shared.contracts.messages.base import NewerSchemaError
from shared.contracts.messages.hosts import HostState, PlatformOffer
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import (
    PROJECTION_LEASE,
    encode,
    is_synced,
    observed_filter,
    subject_filter,
    synced_filter,
    workload_of,
)
from shared.telemetry import probes

log = structlog.get_logger(__name__)

ROOM_SECONDS: Final = 5.0
"""How often the log is asked how full it is."""

RETRY_SECONDS: Final = 5.0
"""Pause after a publish that the bus did not accept."""

DECISION_DELAY_SECONDS: Final = 10.0
"""Delay of a state that only records our own decision. Most short workloads end before, which saves
one publish in three."""

TURN: Final = 50
"""Workloads that are projected in a row. Then other tasks have a turn: to project all workloads of a large
cluster takes longer than the lease lasts, and reviews are answered meanwhile."""

MACHINE_FILTERS: Final = (subject_filter("host"), subject_filter("offer"))


class _LateListError(Exception):
    """A cluster was listed during a term that knows workloads of it: the next one reads all of it first.

    An object that has changed behind the list is in the view only there: a late reader takes it for gone.
    """


@dataclass(frozen=True, slots=True)
class Projection:
    """Projects while this replica holds the lease."""

    bus: Bus
    cluster: str
    """Of the hub: only its Integration objects are evaluated."""

    policy: Policy = DEFAULT_POLICY

    async def run(self) -> None:
        """Project whenever the lease is ours, until cancelled. Each term starts from the streams."""
        survives = (FencedError, LogChangedError, _LateListError)
        await lead(self.bus, PROJECTION_LEASE, self._serve, survives=survives)

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            await Term(self.bus, self.cluster, group, self.policy).run()


class Term:
    """The state of one term of leadership, rebuilt from the streams."""

    def __init__(self, bus: Bus, cluster: str, group: asyncio.TaskGroup, policy: Policy) -> None:
        self._bus = bus
        self._cluster = cluster
        self._group = group
        self._policy = policy
        self._projectors: dict[str, Projector] = {}
        self._documents: dict[str, Observed] = {}
        """The Integration objects of the hub, by name. They describe the jobs of every cluster."""

        self._synced: dict[str, int] = {}
        """Cluster to the sequence at which all of its objects had been listed."""

        self._newer: dict[str, int] = {}
        """Cluster, as in subjects, to the last entry that a newer release had written before this term."""

        self._caught_up = False
        self._machines_read = asyncio.Event()
        self._sequences: dict[str, int] = {}
        """Last sequence of each subject. The bus refuses a publish that expects another one."""

        self._restored = 0
        """Last sequence of the log whose state this term has read, or which left the view before that."""

        self._stored = 0
        """Number of messages that this term has put on the log, as far as it knows."""

        self._is_foreign = False
        """True once the log has more messages than this term has read and written."""

        self._in_flight: set[str] = set()
        self._next: dict[str, WorkloadState] = {}
        """Subject to its latest state, to publish after the acknowledgement of the one in flight."""

        self._alive_in_flight: dict[str, str] = {}
        """Uid of each workload whose present state is in flight, to the subject of that state."""

        self._behind: dict[str, dict[str, WorkloadState]] = {}
        """Uid of each workload in flight to the tombstones of the names that it had before, by subject."""

        self._has_room = True
        """False while the log is so full that only workloads that are known already are written."""

        self._known: set[str] = set()
        """Subjects of workloads that are published and not gone."""

        self._postponed: dict[str, WorkloadState] = {}
        """Subject to the latest state of a new workload that waits for room in the log."""

        self._in_turns: set[str] = set()
        """Clusters of which more has changed than one turn can tell."""

        self._at_once: set[str] = set()
        """Clusters that were listed: nothing of what changed thereby is deferred."""

        self._deferred: dict[str, asyncio.TimerHandle] = {}
        """Subject to the timer of its deferred state. A later state of the subject cancels it."""

    async def run(self) -> None:
        """Restore what is published, read the machines, then follow what is observed."""
        log.info("this replica leads the projection", lease=PROJECTION_LEASE)
        await self._restore()
        self._group.create_task(self._follow_machines())
        self._group.create_task(self._watch_room())
        # Machines come first, or a restart could admit what they block.
        await self._machines_read.wait()
        watched = (kind for kind in Projector.watched() if kind != INTEGRATION)
        try:
            await KindFollower(
                bus=self._bus,
                cluster=None,
                filters=[*map(observed_filter, watched), synced_filter()],
                kinds=lambda: [k for p in self._projectors.values() for k in p.integration_kinds()],
                on_integration=self._on_integration,
                on_entry=self._on_entry,
                on_caught_up=self._on_caught_up,
            ).run()
        finally:
            for timer in self._deferred.values():
                timer.cancel()

    async def _restore(self) -> None:
        unreadable: dict[str, Entry] = {}

        def on_entry(entry: Entry) -> None:
            # Also of an unreadable state: its successor must expect this sequence.
            self._sequences[entry.subject] = entry.sequence
            if (state := read(entry, WorkloadState)) is not None:
                unreadable.pop(entry.subject, None)
                self._note_known(state)
                self._projector(state.cluster).restore(state)
            else:
                unreadable[entry.subject] = entry

        self._restored = await recall_entries(self._bus, WorkloadState.stream, on_entry=on_entry)
        for entry in unreadable.values():
            await self._restore_earlier(entry)

    async def _restore_earlier(self, entry: Entry) -> None:
        """Take up a workload whose last message cannot be read, so that its state or end is published again.

        Without this the end of a job that is deleted meanwhile would be lost, and it would keep its quota.
        """
        while True:
            try:
                before = await last_readable(self._bus, entry, WorkloadState)
                break
            except BusError as error:
                log.warning("cannot read earlier states", subject=entry.subject, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        state = before or _unknown_state(entry)
        if state is not None:
            probes.UNREADABLE_REPLACED.fired += 1
            self._known.add(state.subject)
            self._projector(state.cluster).restore(state, repeat=True)

    async def _follow_machines(self) -> None:
        await follow(
            self._bus,
            {HostState: self._on_machines, PlatformOffer: self._on_machines},
            filters=MACHINE_FILTERS,
            on_caught_up=self._machines_read.set,
        )

    def _on_machines(self, message: HostState | PlatformOffer, _entry: Entry) -> None:
        self._projector(message.cluster).observe_machines(message)
        self._publish_if_synced(message.cluster)

    def _on_entry(self, entry: Entry) -> bool:
        """Apply what was observed; False if it cannot be read."""
        is_read = dispatch(entry, {Observed: self._on_observed, Synced: self._on_synced})
        if not is_read and not self._caught_up:
            self._note_newer(entry)
        return is_read

    def _on_caught_up(self, _sequence: int) -> None:
        self._caught_up = True
        for cluster in sorted(self._synced):
            if self._is_listed(cluster):
                self._projector(cluster).on_synced()
                self._publish_changes(cluster, at_once=True)
            else:
                probes.NEWER_LISTING.fired += 1
                log.warning("a newer release describes a cluster: upgrade", cluster=cluster)

    def _note_newer(self, entry: Entry) -> None:
        """Remember that a newer release describes the cluster of an entry that cannot be read."""
        kind = Synced if is_synced(entry.subject) else Observed
        try:
            why_unreadable(entry, lambda one: one.read(kind))
        except NewerSchemaError:
            cluster = entry.subject.split(".")[2]
            self._newer[cluster] = max(entry.sequence, self._newer.get(cluster, 0))

    def _is_listed(self, cluster: str) -> bool:
        """Whether all objects of a cluster are known. States of others are not published.

        1. A newer release lists the cluster, and is replaced by this one again.
        2. The last list that this release can read is of the time before.
        3. What came since would be taken for gone, and its quota for free.
        """
        return self._synced.get(cluster, 0) > self._newer.get(encode(cluster), 0)

    def _knows(self, cluster: str) -> bool:
        """Whether there are workloads of a cluster that would be taken for gone."""
        return any(subject.split(".")[2] == encode(cluster) for subject in self._known)

    def _on_integration(self, observed: Observed) -> None:
        """Apply an Integration object: of the hub to all clusters, of a spoke to that one as a choice."""
        of_hub, clusters = observed.cluster == self._cluster, [observed.cluster]
        if of_hub:
            self._documents[observed.name] = observed
            if observed.deleted:
                del self._documents[observed.name]
            # Its own first, even before anything else of it is known: its kinds have to be followed.
            clusters = [*dict.fromkeys((self._cluster, *self._projectors))]
        for cluster in clusters:
            self._projector(cluster).observe(observed)
            self._publish_if_synced(cluster)

    def _on_observed(self, observed: Observed, _entry: Entry | None = None) -> None:
        self._projector(observed.cluster).observe(observed)
        self._publish_if_synced(observed.cluster)

    def _on_synced(self, synced: Synced, entry: Entry) -> None:
        cluster = synced.cluster
        was_listed = self._is_listed(cluster)
        self._synced[cluster] = max(entry.sequence, self._synced.get(cluster, 0))
        if self._caught_up and not was_listed and self._is_listed(cluster) and self._knows(cluster):
            raise _LateListError(f"{cluster} was listed after this term began")
        if not was_listed:
            self._projector(cluster).on_synced()
        if self._caught_up and self._is_listed(cluster):
            # Defer nothing after a list: if the log of decisions was lost, the recorded ones replace it.
            self._publish_changes(cluster, at_once=True)

    def _projector(self, cluster: str) -> Projector:
        if cluster not in self._projectors:
            made = Projector(cluster, self._policy, hub=self._cluster)
            for document in self._documents.values():
                made.observe(document)
            self._projectors[cluster] = made
        return self._projectors[cluster]

    def _publish_if_synced(self, cluster: str) -> None:
        if self._caught_up and self._is_listed(cluster):
            self._publish_changes(cluster)

    def _publish_changes(self, cluster: str, *, at_once: bool = False) -> None:
        """Publish what has changed: at once, or in turns if it is much."""
        if at_once:
            self._at_once.add(cluster)
        if cluster not in self._in_turns and not self._publish_for_a_turn(cluster):
            self._in_turns.add(cluster)
            self._group.create_task(self._publish_in_turns(cluster))

    async def _publish_in_turns(self, cluster: str) -> None:
        while True:
            await asyncio.sleep(0)
            if self._publish_for_a_turn(cluster):
                break
        self._in_turns.discard(cluster)

    def _publish_for_a_turn(self, cluster: str) -> bool:
        """Publish what has changed, until the turn is over; return whether that was all."""
        projector, at_once = self._projector(cluster), cluster in self._at_once
        for state, deferrable in projector.changes(TURN):
            if (timer := self._deferred.pop(state.subject, None)) is not None:
                timer.cancel()
            if deferrable and not at_once:
                probes.ECHO_DEFERRED.fired += 1
                loop = asyncio.get_running_loop()
                timer = loop.call_later(DECISION_DELAY_SECONDS, self._publish_deferred, state)
                self._deferred[state.subject] = timer
            else:
                self._enqueue(state)
        if projector.has_changes:
            return False
        self._at_once.discard(cluster)
        return True

    def _publish_deferred(self, state: WorkloadState) -> None:
        del self._deferred[state.subject]
        self._enqueue(state)

    async def _watch_room(self) -> None:
        """Keep new workloads back while the log is nearly full, so that the ends of others find room.

        Raises `FencedError` if the log has messages that this term did not write: the next term takes up the
        workloads that they are about.
        """
        while True:
            with suppress(BusError):
                self._observe_end(await self._bus.log_end(WorkloadState.stream))
            if self._is_foreign:
                probes.PROJECTION_FENCED.fired += 1
                raise FencedError(f"somebody else has written to {WorkloadState.stream}")
            if self._has_room and self._postponed:
                postponed, self._postponed = self._postponed, {}
                for state in postponed.values():
                    self._enqueue(state)
            POSTPONED.set(len(self._postponed))
            await asyncio.sleep(ROOM_SECONDS)

    def _observe_end(self, end: LogEnd) -> None:
        has_room = end.fullness < ROOM_FOR_ENDS
        if has_room != self._has_room:
            full = end.fullness
            log.error("WORKLOADS has room" if has_room else "WORKLOADS is full", fullness=full)
        self._has_room = has_room
        # What is in flight may be stored, or not yet.
        self._is_foreign = end.last > self._restored + self._stored + len(self._in_flight)

    def _postpones(self, state: WorkloadState) -> bool:
        """Whether the state of a new workload waits for room. What runs already is never kept back."""
        begins = state.subject not in self._known and state.phase == "waiting"
        if begins and not self._has_room:
            probes.NEW_WORK_POSTPONED.fired += 1
            self._postponed[state.subject] = state
            return True
        waited = self._postponed.pop(state.subject, None) is not None
        return waited and state.phase == "gone"  # Nobody knows of it.

    def _note_known(self, state: WorkloadState) -> None:
        if state.phase == "gone":
            self._known.discard(state.subject)
        else:
            self._known.add(state.subject)

    def _enqueue(self, state: WorkloadState) -> None:
        if self._postpones(state):
            return
        if self._comes_behind(state):
            return
        self._note_known(state)
        replaced = self._next.get(state.subject)
        if replaced is not None and replaced.uid != state.uid:
            self._on_landed(replaced)
        if state.phase != "gone":
            self._alive_in_flight[state.uid] = state.subject
        if state.subject in self._in_flight:
            self._next[state.subject] = state
        else:
            self._in_flight.add(state.subject)
            self._group.create_task(self._publish(state))

    def _comes_behind(self, state: WorkloadState) -> bool:
        """Whether the state is the tombstone of an earlier name, and the present one is not on the log yet.

        1. A running job gets another name. Quota frees what the old one had, and counts it under the new one.
        2. The new name was there before: its message is refused once, because it expects no message before.
        3. The tombstone would overtake it, and somebody else could get what still runs.
        """
        for held in self._behind.values():
            held.pop(state.subject, None)
        ahead = self._alive_in_flight.get(state.uid, state.subject)
        if state.phase != "gone" or ahead == state.subject:
            return False
        self._behind.setdefault(state.uid, {})[state.subject] = state
        return True

    async def _publish(self, state: WorkloadState) -> None:
        """Publish one state at a time of a subject: the next one must expect this one's sequence."""
        subject = state.subject
        while True:
            try:
                sequence = await self._bus.publish(
                    state, expect_subject=self._sequences.get(subject, 0)
                )
                break
            except (StreamFullError, UnavailableError) as error:
                log.warning("cannot publish a workload yet", subject=subject, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                if (newer := self._next.pop(subject, None)) is not None:
                    if newer.uid != state.uid:
                        self._on_landed(state)
                    state = newer
            except FencedError:
                try:
                    await self._resolve_fence(state)
                except UnavailableError as error:
                    # Try again: without the answer the bus refuses the publish once more.
                    log.warning("cannot ask who wrote a state", subject=subject, error=str(error))
        self._stored += 1
        if state.phase == "gone":
            self._sequences.pop(
                subject, None
            )  # If the name comes again, `_resolve_fence` finds it.
        else:
            self._sequences[subject] = sequence
        self._in_flight.discard(subject)
        self._on_landed(state)
        if (following := self._next.pop(subject, None)) is not None:
            self._enqueue(following)

    def _on_landed(self, state: WorkloadState) -> None:
        """A state is on the log, or never will be, because another workload has its name now."""
        if self._alive_in_flight.get(state.uid) == state.subject:
            del self._alive_in_flight[state.uid]
            for tombstone in self._behind.pop(state.uid, {}).values():
                self._enqueue(tombstone)

    async def _resolve_fence(self, state: WorkloadState) -> None:
        """Find out which write came first: our own of a moment ago, or another writer's.

        Raises `FencedError` for another writer's; the term then ends.
        """
        last = await self._bus.latest(WorkloadState.stream, state.subject)
        known = self._sequences.get(state.subject, 0)
        if last is None:
            if known == 0:
                raise FencedError(f"{state.subject} refuses its first message")
            # The message grew too old for the stream, but the view still has it.
            self._sequences[state.subject] = 0
        elif last.headers.get(WRITER) == self._bus.instance and last.sequence > known:
            probes.PROJECTION_OWN_WRITE.fired += 1
            if known or not _is_tombstone(last):  # Else it was acknowledged, and counted then.
                self._stored += 1
            self._sequences[state.subject] = last.sequence
        elif last.sequence <= self._restored:
            # The view had it no more. A killed server brings back what was there before (ADR 139).
            (probes.REVIVED if known else probes.SWEPT_NAME_REUSED).fired += 1
            self._sequences[state.subject] = last.sequence
        else:
            probes.PROJECTION_FENCED.fired += 1
            raise FencedError(f"{state.subject} was written by somebody else")


def _unknown_state(entry: Entry) -> WorkloadState | None:
    """A state of which only the name is known; None: the subject names no workload."""
    ref = workload_of(entry.subject, "workload")
    if ref is None:
        return None
    return WorkloadState(
        cluster=ref.cluster,
        namespace=ref.namespace,
        name=ref.name,
        uid="",
        phase="waiting",
        created_at=entry.time,
    )


def _is_tombstone(entry: Entry) -> bool:
    """Whether it says that a workload is gone. Quota deletes such entries from the view."""
    state = read(entry, WorkloadState)
    return state is not None and state.phase == "gone"
