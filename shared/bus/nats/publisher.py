"""A pipelined publisher: in order, retrying with the same id, with distinct errors.

nats-py's `publish_async` never resolves on an error acknowledgement (nats.py #985), and one round
trip for each message is twelve times slower.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.bus import headers as wire
from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import PASSING
from shared.bus.order.chains import Chains, Link
from shared.bus.order.overtaken import Overtaken
from shared.bus.order.receipts import Receipt
from shared.bus.port import (
    BusError,
    FencedError,
    StreamFullError,
    TooLargeError,
    UnavailableError,
)
from shared.telemetry import probes
from shared.telemetry.metrics import FOREIGN_ID, GIVEN_UP

log = structlog.get_logger(__name__)

WINDOW_MAX: Final = 512
"""Unacknowledged messages. More gains nothing."""

WINDOW_BYTES_MAX: Final = 16 << 20
"""Large bodies reach this before `WINDOW_MAX`: what is unacknowledged stays in memory."""

RETRY_SECONDS: Final = 60.0
"""How long a message is sent again. Shorter than the logs' duplicate window."""

ACK_SECONDS: Final = 5.0
"""Longer than a cluster needs to elect (5.6 s was seen once); then it counts as lost."""

PAUSE_SECONDS: Final = 0.2
"""Pause before a retry of a message that the server could not store."""

FAILED_MAX: Final = 1000
"""While the server is away each message fails: `flush` raises the first ones, and needs no more."""

_TICK_SECONDS: Final = 0.25

# `err_code` of nats-server's errors.json.
_WRONG_LAST: Final = frozenset({10070, 10071})
FULL: Final = frozenset({10023, 10047, 10077})
_TOO_LARGE: Final = frozenset({10054, 10097})

OnStored = Callable[[str, int, Mapping[str, str], bool], None]
"""Called with log, sequence, headers, and whether it had been stored before."""

ReadLast = Callable[[str, int], Awaitable[str | None]]
"""Returns the `Nats-Msg-Id` of the message at a sequence of a stream; None without message or id.

Raises a `BusError` where nobody answers.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class _Letter:
    """One message on its way."""

    token: int
    subject: str
    stream: str
    data: bytes
    headers: dict[str, str]
    link: Link | None  # None: it is not fenced by the log's sequence.
    repeated: bool  # A replica may have published it under the same id.
    give_up_at: float
    done: Receipt
    sent_at: float = 0.0
    sent: int = 0
    """Number of sends. If above one, the server may have stored it without an acknowledgement."""

    trouble: str = field(default="not sent yet")

    @property
    def fenced(self) -> bool:
        return self.link is not None

    @property
    def size(self) -> int:
        return len(self.data) + 500


class Publisher:
    """Keeps order and loses nothing while the server is away.

    Letters wait in `_queue`, are in `_window` until acknowledged, and go back to the front of
    `_queue`, in their order, when the connection or the server fails them.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        look_back: ReadLast,
        before_sending: Callable[[], Awaitable[None]] | None = None,
        on_stored: OnStored | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`before_sending`: awaited on each connection before anything is sent."""
        self._before_sending = before_sending
        self._on_stored = on_stored
        self._connection = connection
        self._look_back = look_back
        self._retry_seconds = retry_seconds
        self._queue: deque[_Letter] = deque()
        self._window: dict[int, _Letter] = {}
        self._window_bytes = 0
        self._token = 0
        self._wake = asyncio.Event()
        self._busy = asyncio.Event()
        """Set while something is on its way; the rest of the time nothing needs to be noticed."""

        self._open = False
        self._failed: list[Receipt] = []
        """Errors for `flush`, first to fail first, bounded by `FAILED_MAX`."""

        self._setbacks: dict[int, str] = {}
        """Letters of the window that the server could not store at present."""

        self._acked: dict[str, tuple[int, int]] = {}
        """Subject to (token, sequence) of its last letter that was stored, while another one of the
        subject is in the window."""

        self._under_way: dict[str, int] = {}
        """Subject to the number of its letters in the window."""

        self._chains = Chains()
        self._overtaken = Overtaken()
        self._inbox = ""
        self._nc: Client | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._resume_at: float | None = None

    async def start(self) -> None:
        """Begin to send. The connection must be there."""
        self._connection.up.append(self._on_up)
        self._connection.down.append(self._on_down)
        await self._attach()
        self._tasks = [asyncio.create_task(self._pump()), asyncio.create_task(self._tick())]

    async def stop(self) -> None:
        """Stop sending. Whatever is not acknowledged by now fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for letter in self._letters():
            self._fail(letter, UnavailableError(f"{letter.subject}: the bus was stopped"))
        self._window.clear()
        self._queue.clear()

    def publish(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str],
        *,
        stream: str,
        repeated: bool = True,
    ) -> Receipt:
        """Queue it behind earlier letters; the result is its sequence, or a `BusError`."""
        loop = asyncio.get_running_loop()
        done = Receipt(loop=loop)
        fenced = wire.EXPECT_LAST in headers
        self._token += 1
        letter = _Letter(
            token=self._token,
            subject=subject,
            stream=stream,
            data=data,
            headers=headers,
            link=self._chains.add(stream, headers, done) if fenced else None,
            repeated=repeated,
            give_up_at=loop.time() + self._retry_seconds,
            done=done,
        )
        limit = self._nc.max_payload if self._nc is not None else wire.PAYLOAD_BYTES_DEFAULT
        try:
            wire.check_size(subject, data, headers, max_payload=limit)
        except TooLargeError as error:
            self._fail(letter, error)
            return letter.done
        self._queue.append(letter)
        self._busy.set()
        self._wake.set()
        return letter.done

    async def flush(self) -> None:
        """Wait for all earlier letters; raise the first error that no caller has awaited."""
        last, waiting = self._token, [x.done for x in self._letters() if not x.done.done()]
        if waiting:
            await asyncio.wait(waiting)
        # Nobody waits for these any more, and they may be stored yet.
        while any(x.done.cancelled() and x.token <= last for x in self._letters()):  # noqa: ASYNC110 - seldom
            await asyncio.sleep(_TICK_SECONDS)
        failed, self._failed = self._failed, []
        errors = [error for done in failed if (error := done.unseen()) is not None]
        for done in failed:
            done.seen = True
        if errors:
            raise errors[0]

    def _letters(self) -> tuple[_Letter, ...]:
        return (*self._window.values(), *self._queue)

    @property
    def open(self) -> bool:
        """Whether it may send: connected, and every log that it writes is as far as its view."""
        return self._open

    async def _attach(self) -> None:
        nc = self._connection.nc
        if nc is not self._nc:
            self._inbox = nc.new_inbox() + "."
            await nc.subscribe(
                self._inbox + "*", cb=self._on_reply, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            self._nc = nc
        if self._before_sending is not None:
            epoch = self._connection.epoch
            await self._before_sending()
            if self._connection.epoch != epoch:
                return  # Lost meanwhile: another attempt belongs to the next connection.
        self._open = True
        self._wake.set()

    def _on_up(self) -> None:
        self._tasks.append(asyncio.create_task(self._attach()))
        self._tasks = [task for task in self._tasks if not task.done()]

    def _on_down(self) -> None:
        """All that is unacknowledged is sent again once the connection is back."""
        self._open = False
        self._again("connection lost")

    def _again(self, why: str) -> None:
        self._drop_superseded()
        letters = sorted(self._window.values(), key=lambda letter: letter.token)
        for letter in letters:
            letter.trouble = self._setbacks.get(letter.token, why)
        self._queue.extendleft(reversed(letters))
        self._window.clear()
        self._window_bytes = 0
        self._setbacks.clear()
        self._acked.clear()
        self._under_way.clear()
        self._wake.set()

    @property
    def _may_send(self) -> bool:
        return (
            self._open
            and bool(self._queue)
            and not self._setbacks
            and self._resume_at is None
            and len(self._window) < WINDOW_MAX
            and self._window_bytes < WINDOW_BYTES_MAX
        )

    async def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._may_send:
                self._wake.clear()
                await self._wake.wait()
            letter = self._queue.popleft()
            if letter.link is not None and not letter.link.prepare():
                self._drop_behind_failed(letter)
                continue
            letter.sent_at = loop.time()
            letter.sent += 1
            self._window[letter.token] = letter
            self._under_way[letter.subject] = self._under_way.get(letter.subject, 0) + 1
            self._window_bytes += letter.size
            assert self._nc is not None
            try:
                await self._nc.publish(
                    letter.subject, letter.data, f"{self._inbox}{letter.token}", letter.headers
                )
            except NatsError as error:
                # Closing or closed: `_on_down` queues it again, or the next try gives a clearer error.
                self._set_back(letter, repr(error))

    async def _on_reply(self, message: Msg) -> None:
        letter = self._window.get(int(message.subject[len(self._inbox) :]))
        if letter is None:
            return
        if not message.data:
            self._set_back(letter, "no stream takes it, or JetStream is not up")
            return
        answer: dict[str, Any] = orjson.loads(message.data)
        problem = answer.get("error")
        if problem is None:
            again = bool(answer.get("duplicate"))
            foreign = again and letter.sent == 1 and not letter.repeated
            self._rename(letter) if foreign else self._succeed(letter, answer["seq"], again=again)
            return
        code, description = problem.get("err_code", 0), problem.get("description", "refused")
        if code in _WRONG_LAST and letter.sent > 1:
            # Acknowledgements are still processed meanwhile.
            self._tasks = [task for task in self._tasks if not task.done()]
            question = self._was_it_stored(letter, code, description)
            self._tasks.append(asyncio.create_task(question))
        else:
            self._refuse(letter, code, description)

    def _rename(self, letter: _Letter) -> None:
        """The server has dropped a new message as a duplicate: another writer has used its id."""
        FOREIGN_ID.inc()
        letter.headers[wire.MESSAGE_ID] = uuid4().hex
        self._set_back(letter, "taken for a duplicate of another's message")

    async def _was_it_stored(self, letter: _Letter, code: int, description: str) -> None:
        """A fence also refuses a retry of a stored message: compare with the last message of the log.

        The server weighs the fence before it recognises a duplicate (measured on nats-server 2.15.1).
        """
        expected = letter.headers.get(wire.EXPECT_LAST)
        if expected is None:
            self._refuse(letter, code, description)
            return
        sent = letter.sent
        try:
            found = await self._look_back(letter.stream, int(expected) + 1)
        except BusError as error:
            if letter.token in self._window and letter.sent == sent:
                self._set_back(letter, str(error))
            return
        if letter.token not in self._window or letter.sent != sent:
            return  # It is on its way once more, and will be answered again.
        if found == letter.headers[wire.MESSAGE_ID]:
            probes.OWN_WRITE_FOUND.fired += 1
            self._succeed(letter, int(expected) + 1, again=True)
        else:
            self._refuse(letter, code, description)

    def _succeed(self, letter: _Letter, sequence: int, *, again: bool) -> None:
        self._take_out(letter)
        if self._on_stored is not None:
            self._on_stored(letter.stream, sequence, letter.headers, again)
        if letter.sent > 1 and self._is_overtaken(letter, sequence):
            self._send_anew(letter)
            return
        if letter.subject in self._under_way:
            last = self._acked.get(letter.subject, (0, 0))
            self._acked[letter.subject] = max(last, (letter.token, sequence))
        if letter.link is not None:
            letter.link.settle(stored=True)
        if not letter.done.done():
            letter.done.set_result(sequence)
        self._settle()

    def _is_overtaken(self, letter: _Letter, sequence: int) -> bool:
        """Whether an older state is the last one of its subject now, and no newer one follows."""
        return (
            self._overtaken.observe(letter.subject, token=letter.token, sequence=sequence)
            and not letter.fenced
            and wire.EXPECT_SUBJECT not in letter.headers
            and letter.subject not in self._under_way
            and all(other.subject != letter.subject for other in self._queue)
        )

    def _send_anew(self, letter: _Letter) -> None:
        """Send it once more, first of all, under an id that the server does not know."""
        probes.OVERTAKEN.fired += 1
        log.warning(
            "a message was stored before an older state of its subject; sending it again",
            subject=letter.subject,
        )
        identity = f"{letter.headers[wire.MESSAGE_ID]}:again"
        letter.headers = letter.headers | {wire.MESSAGE_ID: identity}
        self._queue.appendleft(letter)
        self._wake.set()
        self._settle()

    def _refuse(self, letter: _Letter, code: int, description: str) -> None:
        if code in PASSING:
            self._set_back(letter, f"{description} ({code})")
            return
        kind = (
            FencedError
            if code in _WRONG_LAST
            else StreamFullError
            if code in FULL
            else TooLargeError
            if code in _TOO_LARGE
            else BusError
        )
        probes.FENCE_REFUSED.fired += kind is FencedError
        self._take_out(letter)
        self._fail(letter, kind(f"{letter.subject}: {description} ({code})"))
        self._fail_fenced_behind(letter)
        self._settle()

    def _take_out(self, letter: _Letter) -> None:
        if self._window.pop(letter.token, None) is not None:
            self._window_bytes -= letter.size
            self._under_way[letter.subject] -= 1
            if self._under_way[letter.subject] == 0:
                del self._under_way[letter.subject]
                self._acked.pop(letter.subject, None)
        self._setbacks.pop(letter.token, None)
        if len(self._window) <= WINDOW_MAX // 2:
            self._wake.set()

    def _fail(self, letter: _Letter, error: BusError) -> None:
        if letter.link is not None:
            letter.link.settle(stored=False)
        if not letter.done.done():
            letter.done.set_exception(error)
            # Reading the exception keeps asyncio from logging errors that only `flush` reports.
            letter.done.unseen()
            if len(self._failed) < FAILED_MAX:
                self._failed.append(letter.done)

    def _fail_fenced_behind(self, letter: _Letter) -> None:
        """Letters behind a fenced letter that failed must not be stored without it.

        The server refuses those that are on the way: they name the one before them.
        """
        if not letter.fenced:
            return
        kept: deque[_Letter] = deque()
        for other in self._queue:
            if other.fenced and other.stream == letter.stream and other.token > letter.token:
                self._drop_behind_failed(other)
            else:
                kept.append(other)
        self._queue = kept

    def _drop_behind_failed(self, letter: _Letter) -> None:
        probes.WINDOW_DROPPED.fired += 1
        self._fail(letter, FencedError(f"{letter.subject}: one before it failed"))

    def _set_back(self, letter: _Letter, why: str) -> None:
        """Resend from this letter on, once all others in flight are acknowledged or failed."""
        self._setbacks[letter.token] = why
        self._settle()

    def _settle(self) -> None:
        if self._setbacks and len(self._setbacks) == len(self._window):
            self._again("set back")
            self._resume_at = asyncio.get_running_loop().time() + PAUSE_SECONDS

    def _drop_superseded(self) -> None:
        # A later state of the same subject came through: sending this one again would put the
        # older state on top. Whoever waits learns the sequence of the later.
        for letter in list(self._window.values()):
            token, sequence = self._acked.get(letter.subject, (0, 0))
            if token > letter.token and not letter.fenced:
                probes.LATER_STATE_STORED.fired += 1
                self._take_out(letter)
                log.warning("a message was superseded before it was stored", subject=letter.subject)
                if not letter.done.done():
                    letter.done.set_result(sequence)

    async def _tick(self) -> None:
        """Handle missing acknowledgements and letters whose retry time is over."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._window and not self._queue:
                self._busy.clear()
                await self._busy.wait()
            await asyncio.sleep(_TICK_SECONDS)
            now = loop.time()
            if self._resume_at is not None and now >= self._resume_at:
                self._resume_at = None
                self._wake.set()
            for letter in list(self._window.values()):
                if now < min(letter.sent_at + ACK_SECONDS, letter.give_up_at):
                    break
                self._setbacks.setdefault(letter.token, "no answer")
            self._settle()
            while self._queue and self._queue[0].give_up_at <= now:
                self._give_up(self._queue.popleft())

    def _give_up(self, letter: _Letter) -> None:
        denied = self._connection.refused
        because = letter.trouble + (f"; {denied}" if denied and letter.subject in denied else "")
        GIVEN_UP.labels(stream=letter.stream).inc()
        text = f"{letter.subject}: not acknowledged within {self._retry_seconds:g} s: {because}"
        self._fail(letter, UnavailableError(text))
        self._fail_fenced_behind(letter)
