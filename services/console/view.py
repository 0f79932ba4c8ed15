"""All that is shown, in memory: fed by the bus, asked by every request, changed by nobody else.

The view is a follower of the deciding quota service, and beside it what the queues' statuses and the
configuration say. It reads for as long as somebody asks, and keeps nothing when nobody does. Whether it
still is what the leader has is checked against the counts that the leader publishes; where both stay apart,
everything is read anew.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

import structlog

from services.console.idle_tracker import Demand
from services.console.metrics import REBUILDS
from services.quota.forecast import Past, Picture, Run
from services.quota.queries.replica import INPUTS, Follower, Ident
from services.whatif.reading import OBJECTS
from shared.bus.port import Bus, CaughtUp, Entry
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import observed_filter
from shared.runtime.memory import give_back

__all__ = ["Change", "View"]

log = structlog.get_logger(__name__)

QUEUES: Final = "QUEUES"
SYNCED_FILTER: Final = "sluice.observed.*._._.synced"
_QUEUE_KINDS: Final = frozenset(
    (kind.group, kind.plural) for kind in (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE)
)

BATCH_MAX: Final = 1_000
"""Messages that are taken in before others get their turn."""

CHANGES_MAX: Final = 20_000
"""Of these who falls further behind is shown everything anew."""

AUDIT_SECONDS: Final = 10.0
"""Between two comparisons with the leader's counts, which it publishes within a second."""

APART_FIRST: Final = 3
APART_MAX: Final = 96
"""So many comparisons in a row must differ: between a decision and its count lies a moment. The number
doubles each time that reading anew was of no use, as where nobody leads and counts."""

ENDED_MAX: Final = 50_000
"""Lives whose length was learned already; older ones are deleted in the cluster."""


class _ApartError(Exception):
    """What is known here is not what the leader knows."""


class _UnwantedError(Exception):
    """Nobody looks any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something is not what it was."""

    version: int
    what: Literal["workload", "queue"]
    ident: Ident
    """Of a queue: cluster, namespace (empty: a ClusterQueue) and name."""


@dataclass(slots=True)
class _Memory:
    """One reading of the streams."""

    follower: Follower
    queues: dict[Ident, QueueStatus] = field(default_factory=dict)
    workloads: dict[Ident, WorkloadState] = field(default_factory=dict)
    observed: dict[str, Observed] = field(default_factory=dict)
    """By subject."""

    configured: dict[Ident, Observed] = field(default_factory=dict)
    """Of these the queues."""


class View:
    """What every question is answered from."""

    def __init__(
        self,
        *,
        bus: Bus,
        now: Callable[[], datetime],
        new_follower: Callable[[], Follower] = Follower,
        idle_seconds: float = 0.0,
    ) -> None:
        self.demand = Demand(idle_seconds)
        self._bus = bus
        self._now = now
        self._new_follower = new_follower
        self._memory = _Memory(new_follower())
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self._news = asyncio.Event()
        self._read = asyncio.Event()
        self._past = Past()
        self._ended: dict[str, None] = {}
        self._apart_limit = APART_FIRST
        self.version = 0
        """Grows with each change."""

    # --- fed -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the streams while somebody looks, until cancelled."""
        while True:
            await self.demand.begun()
            wanted = True
            try:
                await self._follow()
            except* _ApartError as errors:
                REBUILDS.labels(because="apart").inc()
                log.warning("reading everything anew", because=str(errors.exceptions[0]))
            except* _UnwantedError:
                wanted = False
            if not wanted:
                # Not above: an exception that is being handled holds all that was read.
                self._forget()
                log.info("nobody looks: following no more")

    def _forget(self) -> None:
        self._read.clear()
        self._memory = _Memory(self._new_follower())
        self._changes.clear()
        self._past = Past()
        self._ended.clear()
        self._apart_limit = APART_FIRST
        give_back()

    async def _follow(self) -> None:
        memory = _Memory(self._new_follower())
        inbox: asyncio.Queue[tuple[str, Entry | CaughtUp]] = asyncio.Queue()
        filters = [SYNCED_FILTER, *map(observed_filter, OBJECTS)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._until_unwanted())
            for stream in (*INPUTS, QUEUES):
                watching = self._watch(stream, inbox, *(filters if stream == "OBSERVED" else ()))
                group.create_task(watching)
            await self._take_all(memory, inbox)
            group.create_task(self._audit(memory))
            while True:
                self._take(memory, *await inbox.get())
                for _ in range(min(inbox.qsize(), BATCH_MAX)):
                    self._take(memory, *inbox.get_nowait())
                memory.follower.settle(self._now())
                self._tell()
                await asyncio.sleep(0)

    async def _until_unwanted(self) -> None:
        await self.demand.over()
        raise _UnwantedError

    async def _watch(
        self, stream: str, inbox: asyncio.Queue[tuple[str, Entry | CaughtUp]], *filters: str
    ) -> None:
        async with aclosing(self._bus.watch(stream, *filters)) as items:
            async for item in items:
                inbox.put_nowait((stream, item))

    async def _take_all(
        self, memory: _Memory, inbox: asyncio.Queue[tuple[str, Entry | CaughtUp]]
    ) -> None:
        """Take in what is there, decisions before what runs by them, and only then show it."""
        order = (*INPUTS, QUEUES)
        found: list[tuple[str, Entry | CaughtUp]] = []
        unread = set(order)
        while unread:
            stream, item = await inbox.get()
            found.append((stream, item))
            if isinstance(item, CaughtUp):
                unread.discard(stream)
        for number, (stream, item) in enumerate(sorted(found, key=lambda e: order.index(e[0]))):
            self._take(memory, stream, item)
            if number % BATCH_MAX == 0:
                await asyncio.sleep(0)
        memory.follower.settle(self._now())
        self._memory = memory
        self._changes.clear()
        self.version += 1
        self._read.set()
        self._tell()

    def _take(self, memory: _Memory, stream: str, item: Entry | CaughtUp) -> None:
        if isinstance(item, CaughtUp):
            return
        try:
            if stream == QUEUES:
                status = item.read(QueueStatus)
                ident = (status.cluster, status.namespace or "", status.name)
                memory.queues[ident] = status
                self._changed(memory, "queue", ident)
                return
            if stream == "OBSERVED" and not item.subject.endswith(".synced"):
                self._take_observed(memory, item.read(Observed))
            about = memory.follower.take(stream, item)
            if about is not None:
                if stream == "WORKLOADS":
                    self._take_workload(memory, about, item.read(WorkloadState))
                self._changed(memory, "workload", about)
        except UndecodableError as error:
            log.warning("skipping what cannot be read", subject=item.subject, error=str(error))

    def _take_observed(self, memory: _Memory, observed: Observed) -> None:
        if observed.deleted:
            memory.observed.pop(observed.subject, None)
        else:
            memory.observed[observed.subject] = observed
        if (observed.group, observed.plural) not in _QUEUE_KINDS:
            return
        ident = (observed.cluster, observed.namespace or "", observed.name)
        if observed.deleted:
            memory.configured.pop(ident, None)
            memory.queues.pop(ident, None)
        else:
            memory.configured[ident] = observed
        self._changed(memory, "queue", ident)

    def _take_workload(self, memory: _Memory, ident: Ident, state: WorkloadState) -> None:
        if state.phase == "gone":
            memory.workloads.pop(ident, None)
            return
        memory.workloads[ident] = state
        if state.finish is not None and state.finish.at is not None:
            self._learn(state, memory.follower.admissions.get(ident), state.finish.at)

    def _learn(self, state: WorkloadState, admission: Admission | None, ended: datetime) -> None:
        """How long it ran, once for each life."""
        began = state.admitted_at
        if admission is not None and admission.uid == state.uid:
            began = admission.admitted_at or began
        if began is None or ended < began or state.uid in self._ended:
            return
        self._ended[state.uid] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._past.learn(Run(state=state, seconds=(ended - began).total_seconds()))

    def _changed(self, memory: _Memory, what: Literal["workload", "queue"], ident: Ident) -> None:
        if memory is self._memory:
            self.version += 1
            self._changes.append(Change(version=self.version, what=what, ident=ident))

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _audit(self, memory: _Memory) -> None:
        """Read everything anew where the leader has counted otherwise again and again."""
        apart = 0
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            before = self.version
            problems = memory.follower.drift([*memory.queues.values()])
            if not problems:
                apart, self._apart_limit = 0, APART_FIRST
                continue
            # Where much happens both are never the same: a difference counts only once it is quiet.
            await asyncio.sleep(1.0)
            if before != self.version:
                continue
            apart += 1
            if apart >= self._apart_limit:
                self._apart_limit = min(APART_MAX, 2 * self._apart_limit)
                raise _ApartError(problems[0])

    # --- asked ---------------------------------------------------------------------------------------

    async def ready(self, seconds: float) -> bool:
        """Somebody asks: whether everything that is there has been read, within so many seconds."""
        self.demand.ask()
        try:
            async with asyncio.timeout(seconds):
                await self._read.wait()
        except TimeoutError:
            return False
        return True

    async def wait(self, version: int) -> None:
        """Return once there is something newer than `version`."""
        while self.version <= version:
            await self._news.wait()

    def since(self, version: int) -> list[Change] | None:
        """What changed after `version`, each once; None: too much, or another reading."""
        if version == self.version:
            return []
        if not self._changes or self._changes[0].version > version + 1 or version > self.version:
            return None
        latest: dict[tuple[str, Ident], Change] = {}
        for change in reversed(self._changes):
            if change.version <= version:
                break
            latest.setdefault((change.what, change.ident), change)
        return list(latest.values())

    @property
    def follower(self) -> Follower:
        """For positions and explanations."""
        return self._memory.follower

    def now(self) -> datetime:
        """The clock of whoever shows it."""
        return self._now()

    def workloads(self) -> Iterator[tuple[WorkloadState, Admission | None]]:
        """All workloads, each with the decision about it that is in force."""
        for ident in self._memory.workloads:
            found = self.workload(ident)
            if found is not None:
                yield found

    def workload(self, ident: Ident) -> tuple[WorkloadState, Admission | None] | None:
        """One workload; None: there is none."""
        state = self._memory.workloads.get(ident)
        if state is None:
            return None
        admission = self._memory.follower.admissions.get(ident)
        return state, (admission if admission and admission.uid == state.uid else None)

    def queue(self, ident: Ident) -> tuple[Observed | None, QueueStatus | None]:
        """A queue as it is configured and as it stands; None for what is not known."""
        return self._memory.configured.get(ident), self._memory.queues.get(ident)

    def queues(self) -> Iterator[Ident]:
        """All queues that are configured, ClusterQueues first."""
        yield from sorted(self._memory.configured, key=lambda ident: bool(ident[1]))

    def picture(self) -> Picture:
        """A copy of all that decides about work, to be changed and played at will."""
        picture = Picture(
            at=self._now(),
            observed=dict(self._memory.observed),
            policy=self._memory.follower.policy,
        )
        for (cluster, namespace, name), state in self._memory.workloads.items():
            picture.workloads[cluster, f"{namespace}/{name}"] = state
        for (cluster, namespace, name), admission in self._memory.follower.admissions.items():
            picture.admissions[cluster, f"{namespace}/{name}"] = admission
        return picture

    @property
    def past(self) -> Past:
        """How long ended workloads ran."""
        return self._past

    def recent(self, span: timedelta) -> list[WorkloadState]:
        """What was submitted in the last `span`, as far as it is still there."""
        now = self._now()
        states = self._memory.workloads.values()
        return [state for state in states if now - span <= state.created_at < now]
