"""Publishes observed objects: the states of each object in order, with bounded memory.

A message is fenced with the last sequence of its subject. If a second watcher of the cluster has published
meanwhile, the newer of the two states stays.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import structlog

from services.watcher.observe import remains, shortened, truncated
from services.watcher.shares import NOTE, NamespaceShares
from shared.bus.follow import read
from shared.bus.port import (
    Bus,
    BusError,
    FencedError,
    PublishFuture,
    TooLargeError,
    UnavailableError,
)
from shared.contracts.kube.bodies import annotations_of
from shared.contracts.kube.names import TRUNCATED
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import Stream
from shared.telemetry import probes

log = structlog.get_logger(__name__)

WINDOW: Final = 512
"""Messages in flight at a time: as many as the bus itself allows."""

RETRY_SECONDS: Final = 1.0
"""Pause after the bus refused a message."""

EMPTY: Final[Mapping[str, int]] = MappingProxyType({})


def coalesced(queued: list[Observed], new: Observed) -> list[Observed]:
    """What remains to be published of one object when `new` is queued: two messages at most.

    Of one uid only the latest state counts. If the object was deleted and created again, the tombstone of the
    uid that is on the log comes first. Objects that were created and deleted meanwhile are left out.
    """
    if not queued or (len(queued) == 1 and queued[0].uid == new.uid):
        return [new]
    return [queued[0], new]


@dataclass(slots=True, kw_only=True)
class _Queued:
    """What remains to be published of one object."""

    messages: list[Observed]
    ticket: int
    """Place in the order of all messages that were put."""


class _Restated(Observed):
    """An observation under an id of its own: the server would take it for the first one, and drop it."""

    @property
    def message_id(self) -> str | None:
        """None: the publisher makes one."""
        return None


class ObservedPublisher:
    """Publishes one message of each object at a time; later ones of the same object are coalesced."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sequences: dict[str, int] = {}
        self._bodies: dict[str, str] = {}
        self._shares = NamespaceShares(bus)
        self._short: set[str] = set()
        """Subjects of which the last message has no contents, because of the share of a namespace."""

        self._queue: dict[str, _Queued] = {}
        """By subject."""

        self._tickets = 0
        self._in_flight: dict[str, int] = {}
        """Subject to ticket of each message whose acknowledgement is awaited."""

        self._wake = asyncio.Event()
        self._settled = asyncio.Condition()
        self._paused = False

    def add_published(
        self,
        sequences: Mapping[str, int],
        bodies: Mapping[str, str],
        sizes: Mapping[str, int] = EMPTY,
    ) -> None:
        """Add what is on the log, before a message of these subjects is put.

        `sequences`: subject to the sequence of its last message. `bodies`: subject to the reference of the
        whole body of its last message, if that was too large for the log. `sizes`: subject to the size of its
        last message.
        """
        self._sequences.update(sequences)
        self._bodies.update(bodies)
        for subject, size in sizes.items():
            self._shares.record(subject, size)

    def is_short(self, subject: str) -> bool:
        """Whether an object was published without its contents: it is to be published again when listed."""
        return subject in self._short

    @property
    def waiting(self) -> int:
        """How many objects have a state that is not on the log."""
        return len(self._queue) + len(self._in_flight)

    def is_on_its_way(self, subject: str) -> bool:
        """Whether a state of an object, or its end, is not on the log yet."""
        return subject in self._queue or subject in self._in_flight

    def put(self, message: Observed) -> None:
        """Queue a message: a tombstone with what remains of its object. Never waits."""
        if message.deleted:
            message = remains(message)
        subject = message.subject
        if (queued := self._queue.get(subject)) is not None:
            probes.COALESCED.fired += 1
            queued.messages = coalesced(queued.messages, message)
            return
        self._tickets += 1
        self._queue[subject] = _Queued(messages=[message], ticket=self._tickets)
        self._wake.set()

    async def flush(self) -> None:
        """Return when everything that was put before is on the log, or a newer state instead."""
        last = self._tickets
        async with self._settled:
            await self._settled.wait_for(lambda: self._oldest_ticket() > last)

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await self._publish_batch()
            if self._paused:
                await asyncio.sleep(RETRY_SECONDS)
                self._paused = False

    async def _publish_batch(self) -> None:
        batch = self._next_batch()
        self._in_flight = {message.subject: ticket for message, ticket in batch}
        fitting = [(await self._fitting(message), ticket) for message, ticket in batch]
        sent = [
            (message, ticket, self._bus.publish(message, expect_subject=self._fence(message)))
            for message, ticket in fitting
        ]
        again = [
            (remaining, ticket)
            for message, ticket, future in sent
            if (remaining := await self._settle(message, future)) is not None
        ]
        for message, ticket in reversed(again):
            if not self._put_back(message, ticket):
                await self._drop_body(message.subject, message.object_ref)
        async with self._settled:
            self._in_flight = {}
            self._settled.notify_all()

    async def _fitting(self, message: Observed) -> Observed:
        """A message without contents if its namespace has its share of the view, else the message itself."""
        subject, was_short = message.subject, message.subject in self._short
        self._short.discard(subject)
        if message.deleted:
            self._shares.record(subject, 0)
            return message
        if NOTE in str(annotations_of(message.object).get(TRUNCATED)):
            self._short.add(subject)  # The bus has refused it, and it comes again.
        size = len(message.encode())
        if not await self._shares.has_room(subject, size):
            message = shortened(message, NOTE, None)
            self._short.add(subject)
            if not was_short:
                log.warning(
                    "an object is published shortened",
                    subject=subject,
                    bytes=size,
                    reason=NOTE,
                )
            size = len(message.encode())
        self._shares.record(subject, size)
        return message

    def _fence(self, message: Observed) -> int:
        return self._sequences.get(message.subject, 0)

    def _next_batch(self) -> list[tuple[Observed, int]]:
        """The next message of up to `WINDOW` objects."""
        batch = []
        for subject in [subject for subject, _ in zip(self._queue, range(WINDOW), strict=False)]:
            queued = self._queue[subject]
            batch.append((queued.messages.pop(0), queued.ticket))
            if not queued.messages:
                del self._queue[subject]
        return batch

    def _put_back(self, message: Observed, ticket: int) -> bool:
        """Queue a message first again; return False if a newer state of the same uid replaces it."""
        queued = self._queue.get(message.subject)
        kept = queued is None or all(later.uid != message.uid for later in queued.messages)
        if queued is None:
            self._queue[message.subject] = _Queued(messages=[message], ticket=ticket)
        else:
            if kept:
                queued.messages = [message, queued.messages[-1]]
            queued.ticket = min(queued.ticket, ticket)
        self._wake.set()
        return kept

    def _oldest_ticket(self) -> float:
        tickets = [*self._in_flight.values(), *(queued.ticket for queued in self._queue.values())]
        return min(tickets, default=float("inf"))

    async def _settle(self, message: Observed, future: PublishFuture) -> Observed | None:
        """Await the acknowledgement; return what has to be published instead, or None."""
        try:
            sequence = await future
        except FencedError:
            return await self._reconciled(message)
        except TooLargeError as error:
            return await self._shortened(message, error)
        except BusError as error:
            return self._retried(message, error)
        if sequence <= self._fence(message):
            # A message that nobody can read has come behind this state, which the server has had before.
            probes.RESTATED.fired += 1
            log.warning(
                "publishing an object again: a message that nobody can read came behind it",
                subject=message.subject,
            )
            return _Restated.model_construct(**message.__dict__)
        if message.deleted:
            self._sequences.pop(message.subject, None)
        else:
            self._sequences[message.subject] = sequence
        await self._replace_body(message)
        return None

    async def _shortened(self, message: Observed, error: BusError) -> Observed | None:
        """Store the whole message; return a truncated one that refers to it."""
        subject = message.subject
        if message.object is None or TRUNCATED in annotations_of(message.object):
            log.error("an object cannot be published", subject=subject, error=str(error))
            return None
        data = message.encode()
        try:
            ref = await self._bus.put_body(f"{subject}/{message.resource_version}", data)
        except (UnavailableError, TooLargeError) as failure:
            return self._retried(message, failure)
        except (BusError, ValueError) as failure:
            # The bucket is full or missing: publish the truncated message alone.
            log.warning(
                "an object is published shortened",
                subject=subject,
                bytes=len(data),
                error=str(failure),
            )
            return truncated(message, size=len(data), ref=None)
        log.info("a large body went to the object store", subject=subject, bytes=len(data))
        return truncated(message, size=len(data), ref=ref)

    async def _replace_body(self, message: Observed) -> None:
        """Delete the former body of a subject: no message refers to it any more."""
        former = self._bodies.pop(message.subject, None)
        if message.object_ref is not None:
            self._bodies[message.subject] = message.object_ref
        if former != message.object_ref:
            await self._drop_body(message.subject, former)

    async def _drop_body(self, subject: str, ref: str | None) -> None:
        if ref is None:
            return
        try:
            await self._bus.drop_body(ref)
        except BusError as error:  # The next term finds and deletes it.
            log.info(
                "a body that nobody needs stays in the object store for now",
                subject=subject,
                error=str(error),
            )

    async def _reconciled(self, message: Observed) -> Observed | None:
        """The fence failed: return `message` if the last one of its subject is older, else None."""
        subject = message.subject
        with suppress(BusError):  # The bus keeps a refusal until the next flush.
            await self._bus.flush()
        try:
            entry = await self._bus.latest(Stream.OBSERVED, subject)
        except BusError as error:
            return self._retried(message, error)
        if entry is None:
            # The log has dropped what this watcher knows. The server may know the id of our state still.
            self._sequences.pop(subject, None)
            return _Restated.model_construct(**message.__dict__)
        theirs = read(entry, Observed)
        if theirs is not None and _is_newer(theirs, message):
            # The fence does not change: the next message may be older than theirs, too.
            probes.NEWER_PUBLISHED.fired += 1
            log.info(
                "the log has a newer state of an object already",
                subject=subject,
                version=theirs.resource_version,
            )
            if entry.body_ref != message.object_ref:
                await self._drop_body(subject, message.object_ref)
            return None
        self._sequences[subject] = entry.sequence
        return message

    def _retried(self, message: Observed, error: BusError) -> Observed:
        log.warning(
            "the bus does not take a message; trying again",
            subject=message.subject,
            error=str(error),
        )
        self._paused = True
        return message


def _is_newer(theirs: Observed, ours: Observed) -> bool:
    """Whether `theirs` is as new as `ours` or newer. If that is unknown, `ours` is published.

    Resource versions are opaque, but Kubernetes orders them by number, and documents that since 1.35.
    """
    their_version, our_version = map(whole_number, (theirs.resource_version, ours.resource_version))
    if their_version is None or our_version is None:
        return theirs == ours
    if their_version == our_version:
        return theirs.deleted or not ours.deleted
    return their_version > our_version
