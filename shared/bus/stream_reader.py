"""A read-only client that starts fast, for commands of `sluice`.

`NatsBus` serves long-running services; its import takes most of a second. This client has no FastStream,
no workers and no publisher: it reads streams and sends requests.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from shared.bus.direct_read import (
    DirectRead,
    SilentError,
    StreamReaderError,
    parse_block,
    source_sequence,
)
from shared.bus.nats.tls import refuse_plain_text
from shared.bus.order.rulings import (
    DECISIONS,
    TERMS,
    Rulings,
    ruling_in_body,
    ruling_in_header,
)
from shared.contracts.subjects import TERM_SUBJECT, Stream
from shared.settings.access import OPEN, Access, denial, user_of

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from shared.contracts.messages.base import Message

__all__ = ["SilentError", "StreamReaderError"]

CONNECT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.1
CALL_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.3
"""Between two looks for new messages, for who follows a stream."""

SUFFIX: Final = "_NOW"
"""Suffix of a view's name, as in `shared.bus.streams`, whose import would cost more than this module."""

DECISION_LOG: Final = Stream.ADMISSIONS
"""As `Admission.stream`."""

Json = dict[str, Any]
M = TypeVar("M", bound="Message")


def _pass_over(_seen: "Seen", _error: Exception) -> None:
    """Say nothing."""


class JetStreamError(StreamReaderError):
    """JetStream refused a request."""

    def __init__(self, what: str, code: int, description: str) -> None:
        super().__init__(f"{what}: {description} ({code})")
        self.code = code
        """`err_code` of nats-server's `errors.json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One message with its body decoded from JSON but not validated."""

    subject: str
    body: Json
    headers: Mapping[str, str]
    sequence: int
    """Sequence in the stream that was read; a view has sequences of its own."""

    time: datetime
    """When that stream stored it."""

    @property
    def log_sequence(self) -> int:
        """Sequence in the log, also if it was read from the view."""
        return source_sequence(self.headers) or self.sequence

    def is_void(self, terms: Rulings) -> bool:
        """Whether it is a decision of a leader that had been replaced: the bus gives its readers none."""
        if not self.subject.startswith(DECISIONS):
            return False
        is_said, ruling = ruling_in_header(self.headers)
        if not is_said:
            ruling = ruling_in_body(self.body)
        return terms.replaced_by(self.log_sequence, ruling) is not None

    def read(
        self, kind: type[M], unreadable: Callable[["Seen", Exception], object] = _pass_over
    ) -> M | None:
        """Return the message; None if nobody can read it, after `unreadable` was called with why."""
        # What is to be read has it imported: a command that shows bodies as they are does without.
        from pydantic import ValidationError  # noqa: PLC0415

        try:
            return kind.model_validate(self.body)
        except ValidationError as error:
            unreadable(self, error)
            return None


@asynccontextmanager
async def open_stream_reader(url: str, *, access: Access = OPEN) -> AsyncIterator["StreamReader"]:
    """Connect once, without retries. Raises `SilentError` if no server answers."""
    # nats-py needs aiohttp only for websockets, and importing it costs 100 ms.
    borrowed = "aiohttp" not in sys.modules and not url.startswith(("ws://", "wss://"))
    if borrowed:
        sys.modules["aiohttp"] = None  # type: ignore[assignment]  # Python then raises ImportError
    try:
        from nats.aio.client import Client  # noqa: PLC0415
        from nats.errors import Error as NatsError  # noqa: PLC0415
    finally:
        if borrowed:
            del sys.modules["aiohttp"]

    refuse_plain_text(Client)
    errors = _Errors()

    nc = Client()
    try:
        options = access.options()
    except ValueError as error:
        raise StreamReaderError(str(error)) from error
    try:
        await nc.connect(
            [part.strip() for part in url.split(",")],
            name="sluice",
            allow_reconnect=False,
            # Without these the library tries for two minutes.
            max_reconnect_attempts=1,
            reconnect_time_wait=AGAIN_SECONDS,  # type: ignore[arg-type]  # passed on to asyncio
            connect_timeout=CONNECT_SECONDS,  # type: ignore[arg-type]  # passed on to asyncio
            error_cb=errors.observe,
            **options,
        )
    except (NatsError, OSError, TimeoutError, ValueError) as error:
        cause = errors.last or error
        raise SilentError(str(cause) or type(cause).__name__) from error
    # Its own looks at each letter of each name for blanks; there is no public way.
    nc._parse_header_lines = parse_block  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield StreamReader(nc, errors)
    finally:
        await nc.close()


class _Errors:
    """What the server says outside of its answers: also that a request was not permitted."""

    def __init__(self) -> None:
        self.last: Exception | None = None
        self._came = asyncio.Event()

    async def observe(self, error: Exception) -> None:
        """Remember it, instead of printing the library's traceback."""
        self.last = error
        self._came.set()

    async def denial(self, subject: str, user: str) -> str:
        """Wait until the server says that `user` may not send to `subject`; return what to tell."""
        while True:
            self._came.clear()
            await self._came.wait()
            if self.last is not None and (text := denial(self.last, subject, user)):
                return text


class StreamReader:
    """An open connection. All errors of its methods are `StreamReaderError`s, apart from cancellation."""

    def __init__(self, nc: "Client", errors: _Errors) -> None:
        self._nc = nc
        self._errors = errors

    @property
    def nc(self) -> "Client":
        """The connection, for functions of `shared.bus` that need one."""
        return self._nc

    async def ask(
        self, subject: str, data: bytes, *, timeout_seconds: float = CALL_SECONDS
    ) -> bytes:
        """Send a request to `subject` and return the answer. Raises `SilentError` without one in time."""
        from nats.errors import Error as NatsError  # noqa: PLC0415

        denied = asyncio.create_task(self._errors.denial(subject, user_of(self._nc.new_inbox())))
        asked = asyncio.create_task(self._nc.request(subject, data, timeout=timeout_seconds))
        try:
            await asyncio.wait({asked, denied}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise SilentError(denied.result())
            reply = asked.result()
        except (NatsError, TimeoutError, OSError) as error:
            why = "nobody answers" if "no responders" in str(error) else str(error)
            raise SilentError(f"{subject}: {why}") from error
        finally:
            denied.cancel()
            asked.cancel()
            await asyncio.gather(asked, denied, return_exceptions=True)
        if problem := (reply.headers or {}).get("Nats-Service-Error"):
            raise SilentError(f"{subject}: {problem}")
        return bytes(reply.data)

    async def call(self, what: str, body: Json | None = None) -> Json:
        """Send a request to ``$JS.API.<what>``. Raises `JetStreamError` if JetStream refuses it."""
        data = b"" if body is None else json.dumps(body).encode()
        answer: Json = json.loads(await self.ask(f"$JS.API.{what}", data))
        if (problem := answer.get("error")) is not None:
            description = str(problem.get("description", "refused"))
            raise JetStreamError(what, int(problem.get("err_code", 0)), description)
        return answer

    async def now(self, log: str, *filters: str) -> list[Seen]:
        """Return the latest message of each subject of `log`, from its view."""
        return await self._all(log + SUFFIX, filters)

    async def replay(self, log: str, *filters: str, since: datetime | None = None) -> list[Seen]:
        """Return all messages of `log`, oldest first; with `since` only those that it stored since then."""
        return await self._all(log, filters, since)

    async def terms(self) -> Rulings:
        """Return the leaders that began, from the log of decisions and, for what that has lost, its view.

        What was read before can be judged by them.
        """
        terms = Rulings()
        for seen in (
            *await self.replay(DECISION_LOG, TERMS),
            *await self.now(DECISION_LOG, TERM_SUBJECT),
        ):
            terms.learn(seen.log_sequence, ruling_in_body(seen.body))
        return terms

    async def valid(self, read: list[Seen]) -> list[Seen]:
        """Return what was read without void decisions. Costs nothing where there is no decision."""
        if not any(seen.subject.startswith(DECISIONS) for seen in read):
            return read
        terms = await self.terms()
        return [seen for seen in read if not seen.is_void(terms)]

    async def _all(
        self, stream: str, filters: tuple[str, ...], since: datetime | None = None
    ) -> list[Seen]:
        found: list[Seen] = []
        async for seen in self.follow(stream, *filters, since=since):
            if seen is None:
                break
            found.append(seen)
        return found

    async def follow(
        self, stream: str, *filters: str, since: datetime | None = None
    ) -> AsyncGenerator[Seen | None]:
        """Yield existing messages, None, then new ones. Raises `SilentError` when the server is gone."""
        caught_up = False
        await self.call(f"STREAM.INFO.{stream}")  # Raises if there is no such stream.
        direct = DirectRead(self._nc, stream, filters, since=since, denial=self._errors.denial)
        try:
            while True:
                for message in await direct.more():
                    yield _seen(message)
                if direct.pending:
                    continue
                if not caught_up:
                    caught_up = True
                    yield None
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await direct.close()


def _seen(message: "Msg") -> Seen:
    headers = message.headers or {}
    try:
        body = orjson.loads(message.data)
    except ValueError:
        body = None
    return Seen(
        subject=headers["Nats-Subject"],
        body=body if isinstance(body, dict) else {},
        headers=headers,
        sequence=int(headers["Nats-Sequence"]),
        time=datetime.fromisoformat(headers["Nats-Time-Stamp"]),
    )
