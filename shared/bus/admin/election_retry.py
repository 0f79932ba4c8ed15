"""Asks again while servers elect a leader: what each command does that declares, copies or moves streams.

A leader that is gone is missed within seconds. Until there is another one, servers do not answer, or say that
they cannot just now.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from nats.aio.client import Client
from nats.errors import NoRespondersError

from shared.bus.nats.jetstream_api import PASSING, STREAM_NOT_FOUND, ApiError, Json, call
from shared.bus.port import BusError, DeniedError, UnavailableError

RETRY_SECONDS: Final = 60.0
"""How long one command asks again, in all: an election takes seconds."""

PAUSE_SECONDS: Final = 0.5

T = TypeVar("T")
Tell = Callable[[str], None]


class ElectionRetry:
    """Repeats what one command asks, while no server leads. All its questions share `RETRY_SECONDS`."""

    def __init__(self, tell: Tell | None = None) -> None:
        """`tell` gets a sentence when the command begins to wait, once for each question."""
        self._tell = tell
        self._left = RETRY_SECONDS

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of `question`, which is called again while no server leads.

        `question` must be idempotent: an answer may be lost after the server has acted. Raises its `BusError`
        if a repetition cannot help, or if `RETRY_SECONDS` are used up.
        """
        loop = asyncio.get_running_loop()
        has_warned = False
        while True:
            began = loop.time()
            try:
                return await question()
            except BusError as error:
                if self._left <= 0 or not _is_passing(error):
                    raise
                if self._tell is not None and not has_warned:
                    self._tell(f"{error}: asking again, servers may be electing a leader")
                has_warned = True
            await asyncio.sleep(PAUSE_SECONDS)
            self._left -= loop.time() - began

    async def call(self, nc: Client, what: str, body: Json | None = None) -> Json:
        """As `jetstream_api.call`."""
        return await self.ask(lambda: call(nc, what, body))

    async def delete(self, nc: Client, stream: str) -> None:
        """Delete a stream. If it is gone, the server did so and the answer was lost."""
        try:
            await self.call(nc, f"STREAM.DELETE.{stream}")
        except ApiError as error:
            if error.code != STREAM_NOT_FOUND:
                raise


def _is_passing(error: BusError) -> bool:
    if isinstance(error, ApiError):
        return error.code in PASSING
    # Where JetStream is off, or not for this user, nobody listens: that is no election.
    where_nobody_listens = isinstance(error.__cause__, NoRespondersError)
    return (
        isinstance(error, UnavailableError)
        and not isinstance(error, DeniedError)
        and not where_nobody_listens
    )
