"""Leases: who is the one, by a message that expires.

The stream `LEASES` keeps one message per subject. A holder writes it with a time to live and
renews it; the server's marker, or an empty body, says that it is free. Every write expects the
sequence that was seen last, so of two who reach for it one is refused.

nats-py's key-value store cannot renew a time to live, hence raw messages.
"""

import asyncio
import base64
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from shared.bus import headers as wire
from shared.bus.nats.broker import Connection
from shared.bus.nats.cancellation import cancellable
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, WRONG_LAST_SEQUENCE, ApiError, call
from shared.bus.port import BusError, FencedError
from shared.bus.streams import LEASES
from shared.contracts import subjects

log = structlog.get_logger(__name__)

LEASE_SECONDS: Final = 5
"""Whole seconds: the server counts no finer."""

ANSWER_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.5
"""Polling interval of a standby; a release wakes it at once."""


@dataclass(frozen=True, slots=True)
class _Seen:
    sequence: int
    holder: str
    """Empty: no holder."""


class NatsLease:
    """A lease that this process holds, renewed in the background until it is lost or released."""

    def __init__(
        self, connection: Connection, subject: str, holder: str, *, sequence: int, until: float
    ) -> None:
        self._connection = connection
        self._subject = subject
        self._holder = holder
        self._sequence = sequence
        self._until = until
        self._lost = asyncio.Event()
        self._task = asyncio.create_task(self._renew())
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    @property
    def held(self) -> bool:
        """Whether this process holds it, as far as it knows."""
        return not self._lost.is_set() and self._clock() < self._until

    async def lost(self) -> None:
        """Return when this process has lost it."""
        await self._lost.wait()

    async def release(self) -> None:
        """Release it, so that another replica gets it at once."""
        ours = not self._lost.is_set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if ours:
            try:
                await _write(self._connection, self._subject, b"", self._sequence)
            except (BusError, NatsError) as error:
                log.info("lease not released, it will expire", error=str(error))

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(LEASE_SECONDS / 3)
                began = loop.time()
                if began >= self._until:
                    return
                try:
                    self._sequence = await self._write_or_find()
                    self._until = began + LEASE_SECONDS
                except FencedError as error:
                    log.warning("lease lost", subject=self._subject, because=str(error))
                    return
                except (BusError, NatsError) as error:
                    log.info("lease not renewed yet", subject=self._subject, because=str(error))
        finally:
            self._lost.set()

    async def _write_or_find(self) -> int:
        body = self._holder.encode()
        try:
            return await _write(self._connection, self._subject, body, self._sequence)
        except FencedError:
            # Our last renewal may have been stored though its answer was lost.
            seen = await _look(self._connection, self._subject)
            if seen.holder != self._holder:
                raise
            return await _write(self._connection, self._subject, body, seen.sequence)


async def acquire(connection: Connection, name: str, *, instance: str) -> NatsLease:
    """Wait until this process holds the lease `name`."""
    subject = subjects.join("lease", name)
    # A restarted process is another holder, although its name is the same.
    holder = f"{instance}/{uuid.uuid4().hex}"
    loop = asyncio.get_running_loop()
    moved = asyncio.Event()

    async def on_move(_message: Msg) -> None:
        moved.set()

    await connection.wait_ready()
    subscription = await connection.nc.subscribe(subject, cb=on_move)
    try:
        while True:
            await connection.wait_ready()  # Never again, if this release may serve no more.
            moved.clear()
            began = loop.time()
            try:
                seen = await _look(connection, subject)
                if not seen.holder:
                    sequence = await _write(connection, subject, holder.encode(), seen.sequence)
                    log.info("lease taken", lease=name, holder=holder)
                    return NatsLease(
                        connection, subject, holder, sequence=sequence, until=began + LEASE_SECONDS
                    )
            except (BusError, NatsError) as error:
                log.debug("lease not taken", lease=name, because=str(error))
            await _wait(moved, LOOK_SECONDS)
    finally:
        if connection.ready:
            await subscription.unsubscribe()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def _look(connection: Connection, subject: str) -> _Seen:
    try:
        answer = await call(
            connection.nc,
            f"STREAM.MSG.GET.{LEASES}",
            {"last_by_subj": subject},
            timeout_seconds=ANSWER_SECONDS,
        )
    except ApiError as error:
        if error.code == MESSAGE_NOT_FOUND:
            return _Seen(0, "")
        raise
    stored = answer["message"]
    free = wire.MARKER in wire.stored_headers(stored)
    holder = base64.b64decode(stored.get("data", "")).decode("utf-8", "replace")
    return _Seen(int(stored["seq"]), "" if free else holder)


async def _write(connection: Connection, subject: str, body: bytes, expected: int) -> int:
    headers = {wire.TTL: f"{LEASE_SECONDS}s", wire.EXPECT_SUBJECT: str(expected)}
    try:
        with cancellable():
            reply = await connection.nc.request(
                subject, body, timeout=ANSWER_SECONDS, headers=headers
            )
    except NatsTimeoutError as error:
        raise BusError(f"{subject}: no answer within {ANSWER_SECONDS:g} s") from error
    answer: dict[str, Any] = json.loads(reply.data)
    if (problem := answer.get("error")) is not None:
        code, description = problem.get("err_code", 0), problem.get("description", "refused")
        if code == WRONG_LAST_SEQUENCE:
            raise FencedError(f"{subject}: {description}")
        raise ApiError(subject, code, description)
    return int(answer["seq"])
