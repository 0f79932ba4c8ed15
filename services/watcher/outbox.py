"""Says what was observed: each object's states in order, in bounded memory, never an older one last."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from services.watcher.observe import TRUNCATED, shortened
from shared.bus.port import (
    Bus,
    BusError,
    FencedError,
    PublishFuture,
    TooLargeError,
    UnavailableError,
)
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed

__all__ = ["Outbox", "coalesced"]

log = structlog.get_logger(__name__)

WINDOW: Final = 512
"""Messages on their way at a time: the bus's own window is as large."""

NOTHING: Final[Mapping[str, str]] = {}
PAUSE_SECONDS: Final = 1.0
"""Before trying again what the bus did not take."""


def coalesced(waiting: list[Observed], new: Observed) -> list[Observed]:
    """What must still be said of one object after `new`: at most two messages.

    Of one life only the latest state counts. Where the object was deleted and made anew, the end of
    the life that others may know of goes first; lives that began and ended meanwhile nobody knows of.
    """
    if not waiting or (len(waiting) == 1 and waiting[0].uid == new.uid):
        return [new]
    return [waiting[0], new]


@dataclass(slots=True, kw_only=True)
class _Waiting:
    messages: list[Observed]
    ticket: int


class Outbox:
    """One message of each object is on its way at a time; of the rest, only what `coalesced` leaves.

    A message is fenced on the last one of its subject: where a second watcher of the cluster has said
    something meanwhile, the newer of the two states stays.
    """

    def __init__(
        self, bus: Bus, sequences: Mapping[str, int], bodies: Mapping[str, str] = NOTHING
    ) -> None:
        self._bus = bus
        self._sequences = dict(sequences)
        """Subject to its last message on the log. As many as there are objects."""

        self._bodies = dict(bodies)
        """Subject to the whole body of its last message, where that was too large for one."""

        self._waiting: dict[str, _Waiting] = {}
        self._tickets = 0
        self._on_their_way: list[int] = []
        self._wake = asyncio.Event()
        self._settled = asyncio.Condition()
        self._paused = False

    def recall(self, sequences: Mapping[str, int], bodies: Mapping[str, str]) -> None:
        """Know what was said of more objects, before anything is said of them."""
        self._sequences.update(sequences)
        self._bodies.update(bodies)

    @property
    def waiting(self) -> int:
        """How many objects have something to say that is not on the log."""
        return len(self._waiting) + len(self._on_their_way)

    def put(self, message: Observed) -> None:
        """Say it, as soon as what the same object said before is on the log. Never waits."""
        subject = message.subject
        if (entry := self._waiting.get(subject)) is not None:
            entry.messages = coalesced(entry.messages, message)
            return
        self._tickets += 1
        self._waiting[subject] = _Waiting(messages=[message], ticket=self._tickets)
        self._wake.set()

    async def flush(self) -> None:
        """Return when all that was put before is on the log, or something newer in its place."""
        last = self._tickets
        async with self._settled:
            await self._settled.wait_for(lambda: self._oldest() > last)

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch = self._taken()
            self._on_their_way = [ticket for _, ticket in batch]
            sent = [
                (
                    message,
                    ticket,
                    self._bus.publish(
                        message, expect_subject=self._sequences.get(message.subject, 0)
                    ),
                )
                for message, ticket in batch
            ]
            again = [
                (left, ticket)
                for message, ticket, future in sent
                if (left := await self._left(message, future)) is not None
            ]
            for message, ticket in reversed(again):
                if not self._put_back(message, ticket):
                    await self._drop_body(message.subject, message.object_ref)
            async with self._settled:
                self._on_their_way = []
                self._settled.notify_all()
            if self._paused:
                await asyncio.sleep(PAUSE_SECONDS)
                self._paused = False

    def _taken(self) -> list[tuple[Observed, int]]:
        """The next message of as many objects as go at a time."""
        batch = []
        for subject in [subject for subject, _ in zip(self._waiting, range(WINDOW), strict=False)]:
            entry = self._waiting[subject]
            batch.append((entry.messages.pop(0), entry.ticket))
            if not entry.messages:
                del self._waiting[subject]
        return batch

    def _put_back(self, message: Observed, ticket: int) -> bool:
        """In front of what its object has said since, unless that says more of the same life."""
        entry = self._waiting.get(message.subject)
        kept = entry is None or all(later.uid != message.uid for later in entry.messages)
        if entry is None:
            self._waiting[message.subject] = _Waiting(messages=[message], ticket=ticket)
        else:
            if kept:
                entry.messages = [message, entry.messages[-1]]
            entry.ticket = min(entry.ticket, ticket)
        self._wake.set()
        return kept

    def _oldest(self) -> float:
        tickets = [*self._on_their_way, *(entry.ticket for entry in self._waiting.values())]
        return min(tickets, default=float("inf"))

    async def _left(self, message: Observed, future: PublishFuture) -> Observed | None:
        """Wait for the answer; return what must be published instead, if anything."""
        try:
            sequence = await future
        except FencedError:
            return await self._reconciled(message)
        except TooLargeError as error:
            return await self._short(message, error)
        except BusError as error:
            return self._later(message, error)
        if message.deleted:
            self._sequences.pop(message.subject, None)
        else:
            self._sequences[message.subject] = sequence
        await self._replace_body(message)
        return None

    async def _short(self, message: Observed, error: BusError) -> Observed | None:
        """Its short form, once the whole is where readers find it."""
        subject = message.subject
        if message.object is None or TRUNCATED in (
            message.object["metadata"].get("annotations") or {}
        ):
            log.error("object_cannot_be_said", subject=subject, error=str(error))
            return None
        data = message.encode()
        if message.deleted:  # Of its end, who it was is enough.
            return shortened(message, size=len(data), ref=None)
        try:
            ref = await self._bus.put_body(f"{subject}/{message.resource_version}", data)
        except (UnavailableError, TooLargeError) as failure:
            return self._later(message, failure)
        except (BusError, ValueError) as failure:
            # The bucket is full, or missing: that it is there must be said nevertheless.
            log.warning("object_shortened", subject=subject, bytes=len(data), error=str(failure))
            return shortened(message, size=len(data), ref=None)
        log.info("object_in_store", subject=subject, bytes=len(data))
        return shortened(message, size=len(data), ref=ref)

    async def _replace_body(self, message: Observed) -> None:
        """Nothing on the view refers to the former body any more."""
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
        except BusError as error:  # The next watcher finds it.
            log.info("body_left_behind", subject=subject, error=str(error))

    async def _reconciled(self, message: Observed) -> Observed | None:
        """Its subject has another last message than we knew of: read it, then decide who is right."""
        subject = message.subject
        with suppress(BusError):  # The bus remembers every refusal until somebody asks for it.
            await self._bus.flush()
        try:
            entry = await self._bus.latest("OBSERVED", subject)
        except BusError as error:
            return self._later(message, error)
        if entry is None:  # The log keeps less than we remember.
            self._sequences.pop(subject, None)
            return message
        try:
            theirs = entry.read(Observed)
        except UndecodableError as error:
            log.warning("undecodable_observed", subject=subject, error=str(error))
        else:
            if _newer(theirs, message):
                # The fence stays as it was: what we say next may be older than theirs, too.
                log.info("already_said", subject=subject, version=theirs.resource_version)
                if entry.body_ref != message.object_ref:
                    await self._drop_body(subject, message.object_ref)
                return None
        self._sequences[subject] = entry.sequence
        return message

    def _later(self, message: Observed, error: BusError) -> Observed:
        log.warning("bus_refused", subject=message.subject, error=str(error))
        self._paused = True
        return message


def _newer(theirs: Observed, ours: Observed) -> bool:
    """Whether `theirs` says as much as `ours` or more. Where that cannot be told, ours stands.

    Kubernetes calls resource versions opaque, but orders them by number, and since 1.35 says so.
    """
    if not (theirs.resource_version.isdecimal() and ours.resource_version.isdecimal()):
        return theirs == ours
    their_version, our_version = int(theirs.resource_version), int(ours.resource_version)
    if their_version == our_version:
        return theirs.deleted or not ours.deleted
    return their_version > our_version
