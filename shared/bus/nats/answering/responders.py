"""Who answers requests in this process, over reconnections and over another connection of the same user."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from shared.bus.nats.broker import Connection
from shared.bus.nats.io_batching import round_trip
from shared.bus.port import AnswerError

log = structlog.get_logger(__name__)

RESPONSES_MAX: Final = 64
QUEUE: Final = "q"
"""Of those who answer the same: the name that NATS's services have by default (ADR-32)."""

ERROR_HEADER: Final = "Nats-Service-Error"
"""Header that carries the error of a request, as in the service framework of NATS."""

CODE_HEADER: Final = "Nats-Service-Error-Code"
FAILED: Final = AnswerError("the answer failed; the log of the service says why", code=500)
"""What failed may hold secrets: it is for the log only."""

Answer = Callable[[bytes], Awaitable[bytes]]


class Responders:
    """The responders of one bus."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answers: dict[str, tuple[Answer, bool]] = {}
        """Subject to who answers, and whether one of several is asked."""

        self._listening: dict[str, Subscription] = {}
        self._listening_on: Client | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(RESPONSES_MAX)
        self._started = False

    async def start(self) -> None:
        """Listen, on this connection and on each later one."""
        self._started = True
        await self._listen_to_all()
        self._connection.up.append(self._on_up)

    def stop(self) -> None:
        """Stop answering requests."""
        self._started = False
        for task in tuple(self._answering):
            task.cancel()

    async def add(
        self, subject: str, answer: Answer, *, alone: bool
    ) -> Callable[[], Awaitable[None]]:
        """Answer requests to `subject` until the returned function is called."""
        self._answers[subject] = (answer, alone)
        if self._started:
            await self._listen(subject)
            await self._settle()

        async def withdraw() -> None:
            self._answers.pop(subject, None)
            subscription = self._listening.pop(subject, None)
            if subscription is not None:
                # Also without a connection: the client would subscribe again on the next one.
                with contextlib.suppress(NatsError):
                    await subscription.unsubscribe()
                await self._settle()

        return withdraw

    async def _settle(self) -> None:
        """Wait until the server knows the responder, so that it gets the next request."""
        if self._connection.ready:
            with contextlib.suppress(NatsError):
                await round_trip(self._connection.nc)

    def _on_up(self) -> None:
        if self._connection.nc is not self._listening_on:
            self._run(self._listen_to_all())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _listen_to_all(self) -> None:
        self._listening_on = self._connection.nc
        for subject in tuple(self._answers):
            await self._listen(subject)

    async def _listen(self, subject: str) -> None:
        if subject not in self._answers:
            return  # It was withdrawn meanwhile.
        _, alone = self._answers[subject]

        async def on_request(message: Msg) -> None:
            # Above the bound the subscription waits, and so do requesters.
            await self._room.acquire()
            self._run(self._answer(subject, message))

        self._listening[subject] = await self._connection.nc.subscribe(
            subject, queue=QUEUE if alone else "", cb=on_request
        )

    async def _answer(self, subject: str, message: Msg) -> None:
        try:
            answer, _ = self._answers[subject]
            await message.respond(await answer(message.data))
        except AnswerError as error:
            await self._refuse(message, error)
        except Exception:  # the requester must get an answer
            log.exception("cannot answer a request", subject=subject)
            await self._refuse(message, FAILED)
        finally:
            self._room.release()

    async def _refuse(self, message: Msg, error: AnswerError) -> None:
        text = " ".join(str(error).split())[:500]  # A header is one line.
        with contextlib.suppress(NatsError):
            await self._connection.nc.publish(
                message.reply, b"", headers={ERROR_HEADER: text, CODE_HEADER: str(error.code)}
            )
