"""The protocol of the bus: publish, watch, durable work, leases, requests and large bodies.

Two classes implement it: `shared.bus.nats.bus.NatsBus` over a real NATS server, and
`shared.testing.world.memory_bus.MemoryBus`. `tests/contract/bus` tests both.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol, TypeVar

from shared.contracts.messages.base import BODY_REF, Message, UndecodableError
from shared.contracts.subjects import UnusableNameError

M = TypeVar("M", bound=Message)

ROOM_FOR_ENDS: Final = 0.8
"""From this fullness of a log on, new work and admissions wait: the rest is for work that ends."""


class BusError(Exception):
    """Base of all errors that the bus raises."""


class FencedError(BusError):
    """Another writer was faster: the expected last sequence is not the last one (error 10071).

    This message may be stored nevertheless: read the end of the log before you go on.
    """


class StreamFullError(BusError):
    """The log is full (`discard: new`). Nothing is lost; publish again later."""


class TooLargeError(BusError):
    """Body or headers exceed a limit of the server. A retry cannot succeed."""


class UnavailableError(BusError):
    """No acknowledgement within the retry time. The message may be stored or not."""


class DeniedError(UnavailableError):
    """The user of this connection may not ask that, until an operator grants it. Nothing was stored."""


class NewerFormatError(BusError):
    """The streams are committed to a format that this release does not know: it may serve no more."""

    to_do: Final = (
        "install the newer release again, or restore a backup made before the commit "
        "(docs/how-to/upgrade.md#go-back)"
    )

    def __init__(self, stream: str, committed: str, known: int) -> None:
        """`committed`: as the metadata of `stream` has it. `known`: the format of this release."""
        self.problem = (
            f"stream {stream} is committed to format {committed[:20]} of the logs, "
            f"and this release has format {known}"
        )
        super().__init__(f"{self.problem}: {self.to_do}")


class LogChangedError(BusError):
    """The log that was read was made anew, or lost its tail: throw away what was read, and begin again."""


class LaterError(Exception):
    """A handler raises it to get the message again after `delay_seconds`."""

    def __init__(self, reason: str, *, delay_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.delay_seconds = delay_seconds
        """None: back off by the number of deliveries so far."""


class NeverError(Exception):
    """A handler raises it when a retry cannot succeed. The message goes to `DEAD` with the reason."""


class AnswerError(Exception):
    """A responder raises it to answer a request with an error.

    The requester gets an `UnavailableError`. NATS carries it as `Nats-Service-Error` with its code.
    """

    def __init__(self, text: str, *, code: int = 400) -> None:
        super().__init__(text)
        self.code = code
        """HTTP status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message as read from a log or a view."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    sequence: int
    """Sequence in the log, also if the entry was read from the view."""

    time: datetime
    """When the log stored it."""

    generation: int = 0
    """How often this process has seen the log become another one, or lose its tail."""

    deliveries: int = 1
    """How often it was delivered to a worker, this time included."""

    @property
    def place(self) -> tuple[int, int]:
        """(generation, sequence). Of two entries of a subject the one with the higher place is newer."""
        return (self.generation, self.sequence)

    def read(self, kind: type[M]) -> M:
        """Decode it as a message of `kind`. Raises `UndecodableError`.

        Also raises it if the body names another object than the subject: the server restricts subjects
        only, so this check keeps a spoke from writing for other clusters.
        """
        message = kind.decode(self.data, self.headers)
        try:
            subject = message.subject
        except UnusableNameError as error:
            raise UndecodableError(kind.type, str(error)) from error
        if subject != self.subject:
            raise UndecodableError(kind.type, f"under {self.subject} it speaks of {subject}")
        return message

    @property
    def body_ref(self) -> str | None:
        """Reference of the whole body, if the log holds only a short form of it; else None.

        `data` is the whole body nevertheless, unless it has been deleted.
        """
        return self.headers.get(BODY_REF)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """All entries that the log had when reading began have been delivered."""

    sequence: int
    """The log's last sequence at that moment, 0 for an empty log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidEntry:
    """A decision that is the last one of its subject, and that every reader drops."""

    entry: Entry
    valid: Entry | None
    """The last valid decision of the subject in the log; None: the log has none."""


class LogEnd(NamedTuple):
    """How far a log is, and how full."""

    last: int
    """Sequence of the last message; 0 if there was none."""

    fullness: float
    """The used share of the maximum size: 1.0 is full; 0.0 also if it has no limit."""


PublishFuture = Awaitable[int]
"""Its result is the sequence in the log. It raises one of the errors above."""

Handler = Callable[[Entry], Awaitable[None]]
"""Returns when done. `NeverError` gives a dead letter; `LaterError` and all others a later delivery."""


class Lease(Protocol):
    """A lock that one replica holds while it renews it in time. It saves work; the fence gives safety."""

    @property
    def held(self) -> bool:
        """Whether this replica holds it, as far as it knows."""

    async def lost(self) -> None:
        """Return when this replica has lost it."""

    async def release(self) -> None:
        """Release it, so that another replica gets it at once."""


class Bus(Protocol):
    """The connection of one process. Delivery is at least once, in order within a log."""

    @property
    def instance(self) -> str:
        """Name of this process: `ce-source`, the holder of leases, the prefix of message ids."""

    @property
    def connected(self) -> bool:
        """Whether the server answers. Readiness uses it."""

    async def start(self) -> None:
        """Connect, retrying and logging without end; then start the registered work.

        Raises `NewerFormatError` where this release may not serve.
        """

    async def stop(self) -> None:
        """Wait for running handlers, acknowledge, flush, disconnect."""

    def publish(
        self, message: Message, *, expect_last: int | None = None, expect_subject: int | None = None
    ) -> PublishFuture:
        """Publish `message` to its log without waiting: pipelined, in the order of the calls.

        It is retried with the same id for at least 30 s. `expect_last` fences on the log's last
        sequence, `expect_subject` on the last sequence of the message's subject (0: none yet).
        Await the result, or `flush`, which awaits all.
        """

    async def flush(self) -> None:
        """Wait until all published messages are acknowledged; raise the first error."""

    def watch(self, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp, None]:
        """List and watch the view of `stream`: the latest entry of each subject, `CaughtUp`, then changes.

        It survives reconnects: an entry may come twice, but never an older one after a newer one of the
        same subject. It never ends by itself. Raises `LogChangedError` when the log is another one.
        """

    def replay(
        self, stream: str, *filters: str, start: int = 1
    ) -> AsyncGenerator[Entry | CaughtUp, None]:
        """Yield each entry of the log from sequence `start`, `CaughtUp`, then new entries.

        Raises `LogChangedError` when the log is another one.
        """

    async def last_sequence(self, stream: str) -> int:
        """Return the log's last sequence, 0 if it is empty."""

    async def epoch(self, stream: str) -> int:
        """Return the epoch of the log: `sluice bus apply` wrote it when it made it. 0 for none."""

    async def log_lost(self) -> str:
        """Return the name of a log once it lacks what this bus has published, and had acknowledged.

        It was set back or made anew. What its writer knows of it is void: read, and list, once more.
        """

    async def outdated(self) -> NewerFormatError:
        """Return why this release may go on no more, once it has found that.

        It looks when it connects, and whenever it asks how a stream stands. Then nothing is published, read
        or worked on any more, and `connected` is False; `start`, `publish`, `flush` and whatever asks how a
        stream stands raise the same error.
        """

    async def highest_term(self, stream: str) -> tuple[int, int]:
        """Return the highest (epoch, term) of the leaders that the log names; (0, 0) if it names none.

        The decisions of a leader that is not above it are void.
        """

    async def void(self, stream: str) -> list[VoidEntry]:
        """Return each subject whose last decision that this bus has read is void.

        A decision is void if its leader had been replaced before it was stored: `watch`, `replay` and
        `work` drop it. Raises `UnavailableError` where the answer may be old.
        """

    async def log_end(self, stream: str) -> LogEnd:
        """Return how far the log is, and how full. Raises `UnavailableError` where that may be old."""

    async def latest(self, stream: str, subject: str, *, current: bool = False) -> Entry | None:
        """Return the last message of one subject in the log; of a decision the last valid one (see `void`).

        None: the log has none. Of decisions, the last one costs requests of its own to be judged where it
        is behind everything that this bus has read of the log.

        `current`: raise `UnavailableError` where the answer may be old, because it is of one of several
        servers that was cut off and does not know yet that another one leads the log. Costs one more
        request on several servers.
        """

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

        Call it before `start`. Handlers run concurrently, but one at a time for each key (default: the
        subject) over all registrations of this bus. An entry that is older than a handled one of its
        subject is dropped.
        """

    async def lease(self, name: str) -> Lease:
        """Wait until this process holds the lease `name`."""

    async def request(self, subject: str, data: bytes, *, timeout_seconds: float) -> bytes:
        """Send a request to `subject`, return the answer. Raises `UnavailableError` without one."""

    async def respond(
        self, subject: str, answer: Callable[[bytes], Awaitable[bytes]], *, alone: bool = True
    ) -> Callable[[], Awaitable[None]]:
        """Answer requests to `subject` until the bus stops, or until the returned function is called.

        `alone`: each request goes to one of all responders. Otherwise it goes to all of them, and the
        first answer counts.
        """

    async def put_body(self, name: str, data: bytes) -> str:
        """Store a body that is too large for a message; return its reference, for `Message.body_ref`.

        It replaces a body of the same name. Raises `StreamFullError` if the store is full.
        """

    async def get_body(self, ref: str) -> bytes | None:
        """Return the body of a reference; None if it was deleted or replaced."""

    async def drop_body(self, ref: str) -> None:
        """Delete a body to which no newer message refers."""

    async def keep_bodies(
        self, prefix: str, refs: Collection[str], *, older_than_seconds: float
    ) -> int:
        """Delete old bodies named `prefix…` that are not in `refs`; return how many were deleted."""

    async def purge(self, stream: str, subject: str, *, up_to: int) -> None:
        """Delete a tombstone from the view of `stream`, unless the subject has a newer entry.

        Asks no durable: only for subjects that none reads, as keys that were fetched, and dead letters
        that an operator drops. Everything else leaves by `sweep`.
        """

    async def sweep(self, stream: str, ended: Mapping[str, int]) -> Collection[str]:
        """Delete ended subjects from the view of `stream`, each up to a sequence of the log.

        A subject that a durable consumer has not passed stays, and so does the view's last message.
        Returns the subjects of which the view has nothing left up to that sequence. Can be repeated.
        """

    async def tombstones(self, stream: str, *, before: datetime, most: int) -> dict[str, int]:
        """Return the tombstones of objects in the view of `stream` that are older than `before`.

        Subject to sequence of the log, `most` of them at a time. Reads headers only.
        """

    async def trim(self, stream: str, subject: str, *, up_to: int) -> int:
        """Delete a subject's messages up to a sequence from the log itself; return how many there were.

        Only for a subject that is not in the view any more: a log must not lack what its view has.
        """

    async def long_histories(self, stream: str, subjects: str, *, most: int) -> list[str]:
        """Return those of `subjects` of which the log has more than `most` messages, the longest first."""

    async def shorten(self, stream: str, subject: str, *, keep: int) -> int:
        """Delete all but the newest `keep` messages of a subject from the log itself; return how many."""

    async def at_or_after(
        self, stream: str, sequence: int, *, subject: str = ">", valid: bool = False
    ) -> Entry | None:
        """Return the first entry of the log from `sequence` on; None: there is none.

        `subject`: only entries of this subject, or of the subjects that this filter selects. `valid`: pass
        over decisions that are void (see `void`), for who believes what it reads (`follow`, where the last
        entry cannot be read). Who deletes old entries, or looks for a time or a place, needs every one.
        """
