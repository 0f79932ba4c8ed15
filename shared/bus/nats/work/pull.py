"""Pulls for a durable with one standing request, not with one for each entry.

nats-py's `fetch` asks anew after every answer: under a steady load that is a request, a status and
two system calls more for each entry.
"""

import asyncio
import json
from collections import deque
from typing import Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from shared.bus.nats.broker import Connection
from shared.bus.nats.reader import status_of

log = structlog.get_logger(__name__)

EXPIRES_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 2.0
SILENCE_SECONDS: Final = 3 * HEARTBEAT_SECONDS
"""A request can be lost silently: without a heartbeat for this long, it is sent again."""

_REQUEST_OVER: Final = ("Batch Completed", "Message Size Exceeds MaxBytes", "Exceeded MaxRequest")
"""Status 409 with one of these ends a request, with any other the consumer."""


class Pull:
    """What one durable consumer is given, in order."""

    def __init__(self, connection: Connection, stream: str, durable: str) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._buffer: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._requested = 0
        """Entries that the server may still send without being asked again."""

        self._heard_at = 0.0
        self._broken: str | None = None
        self._nc: Client | None = None
        self._epoch = -1
        self._inbox = ""
        self._subscription: Subscription | None = None

    async def fetch(self, batch: int, seconds: float, *, most: int) -> list[Msg]:
        """Return available messages, at most `most`; wait up to `seconds` for the first.

        The server is asked for `batch`. What is not returned stays here, and `close` gives it back.
        Raises `NatsError` where there is no consumer, or no connection.
        """
        await self._attach()
        if self._broken is not None:
            broken, self._broken = self._broken, None
            self._requested = 0
            raise NatsError(broken)
        await self._ask(batch)
        if not self._buffer:
            await self._wait(seconds)
        taken = [self._buffer.popleft() for _ in range(min(most, len(self._buffer)))]
        self._requested = max(0, self._requested)
        return taken

    def discard(self) -> None:
        """Forget what came of a log that is another one now."""
        self._buffer.clear()
        self._requested = 0

    async def close(self) -> None:
        """Return unprocessed messages to the server, so that another replica gets them at once."""
        subscription, self._subscription = self._subscription, None
        if subscription is None or not self._connection.ready:
            return
        await subscription.unsubscribe()
        while self._buffer:
            await self._buffer.popleft().nak()

    async def _attach(self) -> None:
        """Subscribe on the present connection; requests on an earlier one are lost."""
        nc = self._connection.nc
        if nc is not self._nc:
            # Messages of the old connection cannot be acknowledged: the server delivers them again.
            self._buffer.clear()
            self._inbox = nc.new_inbox()
            self._subscription = await nc.subscribe(
                self._inbox, cb=self._on_message, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            self._nc, self._epoch = nc, -1
        if self._connection.epoch != self._epoch:
            self._epoch = self._connection.epoch
            self._requested = 0
            self._broken = None

    async def _ask(self, batch: int) -> None:
        wanted = batch - self._requested - len(self._buffer)
        if wanted < (batch + 1) // 2:
            return
        assert self._nc is not None
        self._requested += wanted
        self._heard_at = asyncio.get_running_loop().time()
        body = {
            "batch": wanted,
            "expires": int(EXPIRES_SECONDS * 1e9),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
        }
        await self._nc.publish(self._subject, json.dumps(body).encode(), self._inbox)

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            if asyncio.get_running_loop().time() - self._heard_at > SILENCE_SECONDS:
                log.info("no message for a while; requesting again", subject=self._subject)
                self._requested = 0

    async def _on_message(self, message: Msg) -> None:
        headers, status = message.headers or {}, status_of(message)
        self._heard_at = asyncio.get_running_loop().time()
        if status == "100":
            return  # A heartbeat: the server is alive and has no messages.
        if status is None:
            self._requested -= 1
            self._buffer.append(message)
        elif status in {"404", "408"} or headers.get("Description", "").startswith(_REQUEST_OVER):
            # A request ended; its headers tell how many messages it did not deliver.
            self._requested = max(0, self._requested - int(headers.get("Nats-Pending-Messages", 0)))
        else:
            self._broken = headers.get("Description", status)
        self._wake.set()
