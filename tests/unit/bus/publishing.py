"""A publisher against a server that fails in every way; each answer is the test's."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from shared.bus.headers import EXPECT_LAST, MESSAGE_ID
from shared.bus.nats.publisher import Publisher
from shared.bus.port import UnavailableError
from shared.testing.waiting import eventually


@dataclass
class Sent:
    subject: str
    reply: str
    identity: str


@dataclass
class Reply:
    subject: str
    data: bytes


@dataclass
class FakeClient:
    """What nats-py's client is to the publisher."""

    sent: list[Sent] = field(default_factory=list)
    answer: Callable[[Reply], Awaitable[None]] | None = None
    max_payload: int = 1 << 20

    def new_inbox(self) -> str:
        return "_INBOX.x"

    async def subscribe(
        self, _subject: str, *, cb: Callable[[Reply], Awaitable[None]], **_: int
    ) -> None:
        self.answer = cb

    async def publish(
        self, subject: str, _data: bytes, reply: str, headers: dict[str, str]
    ) -> None:
        self.sent.append(Sent(subject, reply, headers[MESSAGE_ID]))


class FakeConnection:
    """What `shared.bus.nats.broker.Connection` is to the publisher."""

    def __init__(self) -> None:
        self.nc = FakeClient()
        self.up: list[Callable[[], None]] = []
        self.down: list[Callable[[], None]] = []
        self.refused: str | None = None

    def lose(self) -> None:
        for listener in self.down:
            listener()

    def regain(self) -> None:
        for listener in self.up:
            listener()


class Table:
    """A publisher, and the server's side of it."""

    def __init__(self) -> None:
        self.connection = FakeConnection()
        fake: Any = self.connection
        self.publisher = Publisher(fake, look_back=self._look_back, retry_seconds=2.0)
        self.log: dict[int, str] = {}
        """Sequence to the id of what the server has there."""

        self.silent = False

    async def _look_back(self, _stream: str, sequence: int) -> str | None:
        if self.silent:
            raise UnavailableError("nobody answers")
        return self.log.get(sequence)

    def publish(
        self,
        subject: str,
        *,
        expect: int | None = None,
        identity: str = "",
    ) -> asyncio.Future[int]:
        headers = {MESSAGE_ID: identity or f"id-{subject}"}
        if expect is not None:
            headers[EXPECT_LAST] = str(expect)
        return self.publisher.publish(subject, b"", headers, stream="S")

    @property
    def subjects(self) -> list[str]:
        return [sent.subject for sent in self.connection.nc.sent]

    async def sent(self, count: int) -> None:
        await eventually(lambda: len(self.connection.nc.sent) >= count)

    async def take(self, nth: int, sequence: int) -> None:
        await self._answer(nth, json.dumps({"stream": "S", "seq": sequence}).encode())

    async def refuse(self, nth: int, code: int) -> None:
        body = {"error": {"code": 400, "err_code": code, "description": "no"}}
        await self._answer(nth, json.dumps(body).encode())

    async def nobody(self, nth: int) -> None:
        await self._answer(nth, b"")

    async def _answer(self, nth: int, data: bytes) -> None:
        assert self.connection.nc.answer is not None
        await self.connection.nc.answer(Reply(self.connection.nc.sent[nth].reply, data))
