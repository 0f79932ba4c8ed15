"""Durable work: what happens to one delivery, from arrival to its acknowledgement.

FastStream pulls and hands over; here is the policy that holds for every service. An entry is a
state, so a newer one of its subject makes it superfluous, and two of one object are never handled
at once.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from shared.bus.nats.reader import entry_of, position_of
from shared.bus.nats.work.dead_letters import dead_letter
from shared.bus.nats.work.declared import ACK_WAIT_SECONDS
from shared.bus.port import BusError, Entry, Handler, LaterError, NeverError, TooLargeError
from shared.contracts.messages.base import (
    TRACEPARENT,
    Message,
    NewerSchemaError,
    UndecodableError,
)
from shared.telemetry import probes
from shared.telemetry.log_context import trace_of
from shared.telemetry.metrics import WORK

log = structlog.get_logger(__name__)

ACK_SECONDS: Final = 0.05
"""Acknowledgements are collected for this long: no handler waits for them, and one write for each
would cost more. If the process ends before, the server delivers their entries again."""

HEARTBEATS_PER_WAIT: Final = 3
IN_FLIGHT_MAX: Final = 256
"""Entries in our hands, handled or waiting for their key. Each is small; this bounds the rest."""

APPLIED_MAX: Final = 10_000
"""Maximum number of subjects whose last handled sequence is kept; the least recent are dropped.

Forty times fewer are in our hands at once. One that is delivered again after it was forgotten is handled
again, as after a restart."""

BACKOFF_FIRST_SECONDS: Final = 0.25
BACKOFF_MAX_SECONDS: Final = 60.0
NEWER_LOGGED_MAX: Final = 100
"""Different reasons of `_newer` that are logged. The bound keeps a writer from flooding the log."""

PutDead = Callable[[Message, str], "asyncio.Future[int]"]
Whole = Callable[[Entry], Awaitable[Entry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One durable consumer and its handler."""

    stream: str
    """The log; the durable reads its view."""

    durable: str
    handler: Handler
    filters: tuple[str, ...] = ()
    key: Callable[[Entry], str] | None = None


@dataclass(slots=True, eq=False)
class _Job:
    message: Msg
    registration: Registration
    entry: Entry


@dataclass(slots=True)
class _Waiting:
    """Deliveries of one subject in our hands."""

    count: int = 0
    newest: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class _Queue:
    """Who waits for one key."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


def _carried(entry: Entry) -> dict[str, str]:
    """What each log line of a handler carries: whom the entry is about and, if it has one, its trace."""
    return {"subject": entry.subject, **trace_of(entry.headers.get(TRACEPARENT))}


class Worker:
    """All deliveries of one bus: keys, heartbeats and the last sequences are shared."""

    def __init__(
        self,
        *,
        service: str,
        put_dead: PutDead,
        now: Callable[[], datetime],
        rng: Random,
        whole: Whole,
        is_void: Callable[[Entry], bool],
        current: Callable[[str], int],
        ack_wait_seconds: float = ACK_WAIT_SECONDS,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        """`current` tells the generation of a log; `is_void` a decision that no reader may honour."""
        self._is_void = is_void
        self._current = current
        self._beat_seconds = ack_wait_seconds / HEARTBEATS_PER_WAIT
        self._ack_seconds = ack_seconds
        self._service = service
        self._put_dead = put_dead
        self._now = now
        self._whole = whole
        self._rng = rng
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._queues: dict[str, _Queue] = {}
        self._applied: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """Durable and subject to the place of the last entry that was handled."""

        self._latest: dict[str, Entry] = {}
        """Durable to the handled entry of the highest place."""

        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._jobs: dict[_Job, asyncio.Task[None]] = {}
        self._heart: asyncio.Task[None] | None = None
        self._done: deque[Msg] = deque()
        """Handled, not acknowledged yet."""

        self._acking: asyncio.Task[None] | None = None
        self._newer_logged: set[tuple[str, str]] = set()
        """Durable and reason of what was put off because a newer release wrote it."""

    def start(self) -> None:
        """Start sending progress acknowledgements for handlers that run long."""
        self._heart = asyncio.create_task(self._beat())

    async def stop(self, *, seconds: float) -> None:
        """Wait up to `seconds` for running handlers; the server delivers other entries to another replica."""
        if self._jobs:
            await asyncio.wait(list(self._jobs.values()), timeout=seconds)
        tasks = list(self._jobs.values())
        tasks += [task for task in (self._heart, self._acking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._acknowledge()

    async def accept(self, registration: Registration, message: Msg) -> None:
        """Accept one delivery. Returns when there is room for the next, not when this one is handled."""
        generation = self._current(registration.stream)
        entry = entry_of(message, position_of(message.reply), generation)
        job = _Job(message, registration, entry)
        track = (registration.durable, entry.subject)
        waiting = self._waiting.setdefault(track, _Waiting())
        waiting.count += 1
        waiting.newest = max(entry.place, waiting.newest)
        self._jobs[job] = asyncio.create_task(self._run(job))
        await self._room.acquire()

    def room(self) -> int:
        """How many deliveries can be accepted before a running one ends."""
        return IN_FLIGHT_MAX - len(self._jobs)

    def latest(self, durable: str) -> Entry | None:
        """The entry of the highest place that was handled for `durable`; None: there was none."""
        return self._latest.get(durable)

    async def _run(self, job: _Job) -> None:
        try:
            await self._handle(job)
        except (NatsError, JetStreamError) as error:
            # The answer did not reach the server: it gives the entry out again.
            log.warning(
                "the acknowledgement did not reach NATS",
                subject=job.entry.subject,
                error=repr(error),
            )
        finally:
            del self._jobs[job]
            self._room.release()
            track = (job.registration.durable, job.entry.subject)
            waiting = self._waiting[track]
            waiting.count -= 1
            if waiting.count == 0:
                del self._waiting[track]

    async def _handle(self, job: _Job) -> None:
        entry, registration = job.entry, job.registration
        try:
            key = entry.subject if registration.key is None else registration.key(entry)
            await self._handle_alone(job, key)
        except LaterError as error:
            await self._later(job, str(error), delay_seconds=error.delay_seconds)
        except NewerSchemaError as error:
            await self._newer(job, str(error))
        except (NeverError, UndecodableError) as error:
            await self._never(job, str(error))
        except Exception as error:  # the entry must not be lost after any error
            log.exception("a handler failed", durable=registration.durable, **_carried(entry))
            await self._later(job, repr(error), delay_seconds=None)

    async def _handle_alone(self, job: _Job, key: str) -> None:
        queue = self._queues.setdefault(key, _Queue())
        queue.users += 1
        try:
            async with queue.lock:
                if not self._superfluous(job):
                    whole = await self._whole(job.entry)
                    with structlog.contextvars.bound_contextvars(**_carried(job.entry)):
                        await job.registration.handler(whole)
                    self._remember(job)
                self._end(job)
        finally:
            queue.users -= 1
            if queue.users == 0:
                del self._queues[key]

    def _end(self, job: _Job) -> None:
        """Queue the acknowledgement of a handled entry."""
        WORK.labels(durable=job.registration.durable, result="done").inc()
        if self._is_past(job):
            return
        self._done.append(job.message)
        if self._acking is None:
            self._acking = asyncio.create_task(self._acknowledge_soon())

    def _is_past(self, job: _Job) -> bool:
        """Whether its log is another one now: the answer would be taken for one about a new message."""
        return job.entry.generation != self._current(job.registration.stream)

    async def _acknowledge_soon(self) -> None:
        while self._done:
            await asyncio.sleep(self._ack_seconds)
            await self._acknowledge()
        self._acking = None

    async def _acknowledge(self) -> None:
        while self._done:
            message = self._done.popleft()
            try:
                await message.ack()
            except (NatsError, JetStreamError) as error:
                # The answer did not reach the server: it gives the entry out again.
                log.warning(
                    "the acknowledgement did not reach NATS",
                    subject=message.subject,
                    error=repr(error),
                )

    def _superfluous(self, job: _Job) -> bool:
        track = (job.registration.durable, job.entry.subject)
        if self._waiting[track].newest > job.entry.place:
            probes.NEWER_DELIVERED.fired += 1
            return True
        if self._applied.get(track, (0, 0)) >= job.entry.place:
            probes.DUPLICATE_DROPPED.fired += 1
            return True
        return self._is_void(job.entry)

    def _remember(self, job: _Job) -> None:
        track = (job.registration.durable, job.entry.subject)
        self._applied[track] = max(job.entry.place, self._applied.get(track, (0, 0)))
        self._applied.move_to_end(track)
        latest = self._latest.get(job.registration.durable)
        if latest is None or latest.place < job.entry.place:
            self._latest[job.registration.durable] = job.entry
        if len(self._applied) > APPLIED_MAX:
            self._applied.popitem(last=False)

    async def _later(self, job: _Job, reason: str, *, delay_seconds: float | None) -> None:
        entry = job.entry
        delay = (
            backoff_seconds(entry.deliveries, self._rng) if delay_seconds is None else delay_seconds
        )
        log.info(
            "an entry is handled again later",
            reason=reason,
            delay_seconds=delay,
            deliveries=entry.deliveries,
            **_carried(entry),
        )
        WORK.labels(durable=job.registration.durable, result="later").inc()
        probes.PUT_OFF.fired += 1
        if not self._is_past(job):
            await job.message.nak(delay=delay)

    async def _newer(self, job: _Job, reason: str) -> None:
        """Delay it until a replica of the newer release handles it; it is never given up."""
        durable = job.registration.durable
        if (durable, reason) not in self._newer_logged and len(
            self._newer_logged
        ) < NEWER_LOGGED_MAX:
            self._newer_logged.add((durable, reason))
            log.warning(
                "putting off an entry of a newer release", reason=reason, **_carried(job.entry)
            )
        WORK.labels(durable=durable, result="newer").inc()
        probes.NEWER_SCHEMA.fired += 1
        if not self._is_past(job):
            await job.message.nak(delay=backoff_seconds(job.entry.deliveries, self._rng))

    async def _never(self, job: _Job, reason: str) -> None:
        entry = job.entry
        log.error(
            "an entry becomes a dead letter",
            sequence=entry.sequence,
            reason=reason,
            **_carried(entry),
        )
        identity = f"dead:{job.registration.durable}:{entry.subject}:{entry.sequence}"
        try:
            await self._put_dead(dead_letter(self._service, entry, reason, self._now()), identity)
        except TooLargeError:
            # Its subject is too long for a dead letter. It would be delivered again forever.
            log.exception(
                "a dead letter is lost: its subject is too long",
                subject=entry.subject,
                sequence=entry.sequence,
            )
        except BusError as error:
            await self._later(job, f"dead letter not stored: {error}", delay_seconds=None)
            return
        self._remember(job)
        WORK.labels(durable=job.registration.durable, result="never").inc()
        probes.DEAD_LETTER.fired += 1
        if not self._is_past(job):
            await job.message.term()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_seconds)
            for job in [job for job in self._jobs if not self._is_past(job)]:
                try:
                    await job.message.in_progress()
                except (NatsError, JetStreamError) as error:
                    log.debug(
                        "cannot tell NATS that an entry is still handled",
                        subject=job.entry.subject,
                        error=repr(error),
                    )


def backoff_seconds(deliveries: int, rng: Random) -> float:
    """Double for each delivery up to a minute, less up to a quarter so that they spread."""
    whole = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(deliveries - 1, 16))
    return whole * (1.0 - rng.random() / 4)
