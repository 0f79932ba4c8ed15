"""JetStream's JSON API by plain requests: only the calls that we make, errors by code.

nats-py wraps the same calls, but drops fields that it does not know and turns errors into classes
by HTTP-like code, where what matters is `err_code`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from shared.bus.nats.cancellation import cancellable
from shared.bus.port import BusError, DeniedError, UnavailableError
from shared.settings.access import denial, user_of

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037
WRONG_LAST_SEQUENCE: Final = 10071
PASSING: Final = frozenset({10004, 10005, 10006, 10008, 10009, 10164})
"""No leader or no peers just now, or a conflict with one that is on the way."""

TIMEOUT_SECONDS: Final = 5.0

Json = dict[str, Any]
"""A request to JetStream, or its answer; also a part of either."""


class ApiError(BusError):
    """JetStream refused a request."""

    def __init__(self, what: str, code: int, description: str) -> None:
        super().__init__(f"{what}: {description} ({code})")
        self.code = code
        """`err_code` of nats-server's `errors.json`."""


async def call(
    nc: Client, what: str, body: Json | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Json:
    """Send a request to ``$JS.API.<what>``.

    Raises `ApiError` or, without answer, `UnavailableError`; `DeniedError` if the user may not ask it. Of a
    stream that no release of ours may use, `NewerFormatError`: see `look_at_streams`.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    try:
        reply = await ask(nc, f"$JS.API.{what}", payload, timeout_seconds=timeout_seconds)
    except NoRespondersError as error:
        raise UnavailableError(f"{what}: no JetStream answers (is it enabled, and up?)") from error
    except (NatsTimeoutError, ConnectionClosedError) as error:
        raise UnavailableError(f"{what}: no answer within {timeout_seconds:g} s") from error
    except NatsError as error:
        raise UnavailableError(f"{what}: {error}") from error
    answer: Json = json.loads(reply.data)
    if (problem := answer.get("error")) is not None:
        raise ApiError(what, problem.get("err_code", 0), problem.get("description", "refused"))
    if what.startswith("STREAM.INFO.") and (on_config := _LOOKS.get(nc)) is not None:
        on_config(answer["config"])
    return answer


def look_at_streams(nc: Client, on_config: Callable[[Json], None]) -> None:
    """Have `on_config` see the configuration of each stream that `call` asks for on this connection.

    What `on_config` raises, `call` raises.
    """
    _LOOKS[nc] = on_config


async def ask(nc: Client, subject: str, data: bytes, *, timeout_seconds: float) -> Msg:
    """As `nc.request`. Raises `DeniedError` as soon as the server says that the user may not ask it."""
    denials = _DENIALS.get(nc)
    if denials is None:
        denials = _DENIALS[nc] = _Denials(nc)
    denied = denials.expect(subject)
    with cancellable():
        asked = asyncio.create_task(nc.request(subject, data, timeout=timeout_seconds))
        try:
            both: tuple[asyncio.Future[Any], ...] = (asked, denied)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise DeniedError(denied.result())
        finally:
            denied.cancel()
            if not asked.done():
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
            elif not asked.cancelled():
                asked.exception()  # Looked at, also where who asked was cancelled as it came.


class _Denials:
    """Tells those who wait for an answer on one connection that their request was not permitted.

    The server does not answer such a request. It sends an error for the connection that names the subject.
    """

    def __init__(self, nc: Client) -> None:
        # There is no public way to listen beside the one who opened the connection.
        self._before: Callable[[Exception], Awaitable[None]] = nc._error_cb  # noqa: SLF001
        nc._error_cb = self._on_error  # noqa: SLF001
        self._user = user_of(nc.new_inbox())
        self._waiting: dict[asyncio.Future[str], str] = {}

    def expect(self, subject: str) -> "asyncio.Future[str]":
        """Its result is the sentence about the refusal, if there is one."""
        denied: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[denied] = subject
        denied.add_done_callback(lambda done: self._waiting.pop(done, None))
        return denied

    async def _on_error(self, error: Exception) -> None:
        await self._before(error)
        for denied, subject in tuple(self._waiting.items()):
            if not denied.done() and (text := denial(error, subject, self._user)):
                denied.set_result(text)


_DENIALS: Final[WeakKeyDictionary[Client, _Denials]] = WeakKeyDictionary()
_LOOKS: Final[WeakKeyDictionary[Client, Callable[[Json], None]]] = WeakKeyDictionary()
