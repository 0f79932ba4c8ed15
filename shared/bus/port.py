"""What the services need from the bus, in their own words.

Two things keep this protocol: `shared.bus.nats.bus.NatsBus` over a real NATS server, and
`shared.testing.world.memory_bus.MemoryBus`. One suite, `tests/contract/bus`, holds for both.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar

from shared.contracts.messages.base import BODY_REF, Message, UndecodableError

__all__ = [
    "ROOM_FOR_ENDS",
    "AnswerError",
    "Bus",
    "BusError",
    "CaughtUp",
    "Entry",
    "FencedError",
    "Handler",
    "LaterError",
    "Lease",
    "NeverError",
    "PublishFuture",
    "StreamFullError",
    "TooLargeError",
    "UnavailableError",
]


M = TypeVar("M", bound=Message)

ROOM_FOR_ENDS: Final = 0.8
"""From this fullness of a log on, new work and admissions wait: the rest is for work that ends."""


class BusError(Exception):
    """The base of what the bus may raise."""


class FencedError(BusError):
    """Somebody else has written since: the expected last sequence is not the last (10071).

    It does not prove that this message was not stored: read the tail before going on.
    """


class StreamFullError(BusError):
    """The log refuses more (`discard: new`). Nothing is lost; publish again when there is room."""


class TooLargeError(BusError):
    """Body or headers exceed what the server takes. Publishing again will not help."""


class UnavailableError(BusError):
    """No acknowledgement for the whole retry time. It may or may not have been stored."""


class LaterError(Exception):
    """Raised by a handler: not now. The message comes again after `delay_seconds`."""

    def __init__(self, reason: str, *, delay_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.delay_seconds = delay_seconds
        """None: back off by the number of deliveries so far."""


class NeverError(Exception):
    """Raised by a handler: asking again will not help. The message goes to `DEAD` with the reason."""


class AnswerError(Exception):
    """Raised by whoever answers a question: there is no answer, and whoever asked is told this instead.

    It reaches the other side as `UnavailableError`, over NATS with `Nats-Service-Error` and its code.
    """

    def __init__(self, text: str, *, code: int = 400) -> None:
        super().__init__(text)
        self.code = code
        """As of HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message as read from a log or a view."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    sequence: int
    """In the log, also when it was read from the view."""

    time: datetime
    """When the log took it."""

    deliveries: int = 1
    """How often a worker has been given it, this time included."""

    def read(self, kind: type[M]) -> M:
        """What it says, as a message of `kind`. Raises `UndecodableError`.

        Also where it speaks of something else than its subject: the server lets a spoke write under its
        own name only, and nobody may speak for others from there.
        """
        said = kind.decode(self.data, self.headers)
        if said.subject != self.subject:
            raise UndecodableError(kind.type, f"under {self.subject} it speaks of {said.subject}")
        return said

    @property
    def body_ref(self) -> str | None:
        """Where the whole body is kept, if the message on the log is a short form of it.

        `data` is the whole body nevertheless, unless that is gone.
        """
        return self.headers.get(BODY_REF)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """Everything that was in the log when reading began has been delivered."""

    sequence: int
    """The log's last sequence at that moment, 0 for an empty log."""


PublishFuture = Awaitable[int]
"""Ends with the sequence in the log, or raises one of the errors above."""

Handler = Callable[[Entry], Awaitable[None]]
"""Returns: done. `LaterError`: again, later. `NeverError`: dead letter. Anything else: again, later."""


class Lease(Protocol):
    """Somebody is the one, for as long as it renews in time. Efficiency only: safety is the fence."""

    @property
    def held(self) -> bool:
        """True while it is ours as far as we know."""

    async def lost(self) -> None:
        """Return when it is ours no more."""

    async def release(self) -> None:
        """Let somebody else have it at once."""


class Bus(Protocol):
    """One process's connection. All of it is at-least-once; order holds per log."""

    @property
    def instance(self) -> str:
        """Who is speaking: `ce-source`, the holder of leases, the prefix of message ids."""

    @property
    def connected(self) -> bool:
        """Whether the server answers. For readiness."""

    async def start(self) -> None:
        """Connect, for as long as it takes, saying so; then begin the work registered so far."""

    async def stop(self) -> None:
        """Finish the handlers that run, acknowledge, flush, disconnect."""

    def publish(
        self, message: Message, *, expect_last: int | None = None, expect_subject: int | None = None
    ) -> PublishFuture:
        """Put `message` on its log without waiting: pipelined, in the order of the calls.

        It is sent again with the same id for at least 30 s. `expect_last` fences on the log's last
        sequence, `expect_subject` on the last sequence of the message's subject (0: none yet).
        Never leave the result unawaited for good: `flush` awaits all.
        """

    async def flush(self) -> None:
        """Wait until all that was published is acknowledged; raise the first error there was."""

    def watch(self, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp, None]:
        """List and watch the view of `stream`: the latest of each subject, `CaughtUp`, then what comes.

        Survives reconnects: the same entry may come twice, an older one never after a newer one of
        its subject. It never ends by itself.
        """

    def replay(
        self, stream: str, *filters: str, start: int = 1
    ) -> AsyncGenerator[Entry | CaughtUp, None]:
        """Every message of the log from sequence `start`, `CaughtUp`, then what comes."""

    async def last_sequence(self, stream: str) -> int:
        """Return the log's last sequence, 0 if it is empty."""

    async def fullness(self, stream: str) -> float:
        """Return how much of the bytes that the log may hold is used: 1.0 is full, 0.0 no limit."""

    async def latest(self, stream: str, subject: str) -> Entry | None:
        """Return the last message of one subject in the log."""

    def work(
        self,
        stream: str,
        durable: str,
        handler: Handler,
        *,
        filters: tuple[str, ...] = (),
        key: Callable[[Entry], str] | None = None,
    ) -> None:
        """Register `handler` for the view of `stream`, through the durable consumer `durable`.

        Call it before `start`. Handlers run concurrently, but one at a time for each key (default:
        the subject) over all registrations of this bus, and an entry older than one already handled
        of its subject is dropped.
        """

    async def lease(self, name: str) -> Lease:
        """Wait until the lease `name` is ours."""

    async def request(self, subject: str, data: bytes, *, timeout_seconds: float) -> bytes:
        """Ask whoever answers `subject`. Raises `UnavailableError` where nobody does in time."""

    async def respond(
        self, subject: str, answer: Callable[[bytes], Awaitable[bytes]], *, alone: bool = True
    ) -> Callable[[], Awaitable[None]]:
        """Answer requests to `subject` until the bus stops, or until what is returned is called.

        `alone`: of those who answer one is asked. Otherwise each is, and the first answer counts.
        """

    async def put_body(self, name: str, data: bytes) -> str:
        """Keep a body that is too large for a message; return its reference, for `Message.body_ref`.

        It takes the place of what had that name. Raises `StreamFullError` where there is no room.
        """

    async def get_body(self, ref: str) -> bytes | None:
        """The body behind a reference; None where it is gone or is another one now."""

    async def drop_body(self, ref: str) -> None:
        """Delete a body that nothing newer refers to."""

    async def keep_bodies(
        self, prefix: str, refs: Collection[str], *, older_than_seconds: float
    ) -> int:
        """Of the bodies named `prefix…`, delete the older ones but `refs`; return how many."""

    async def purge(self, stream: str, subject: str, *, up_to: int) -> None:
        """Drop a tombstone from the view of `stream`, unless the subject has something newer."""
