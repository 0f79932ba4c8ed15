"""A connection to the server in memory, with the part of a NATS client that the publisher uses."""

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.bus.port import FencedError, StreamFullError
from shared.testing.world.memory_server import MemoryServer
from shared.testing.world.memory_streams import NoLeaderError
from shared.testing.world.wire import Wire

RECONNECT_SECONDS: Final = 0.5


class Connection:
    """An ordered connection to the server. When it breaks, all packets on their way are lost."""

    def __init__(self, server: MemoryServer, wire: Wire) -> None:
        self.server = server
        self.wire = wire
        self.nc = _Client(self)
        self.up: list[Callable[[], None]] = []
        self.down: list[Callable[[], None]] = []
        self.refused = ""
        self.open = False
        self.closed = False
        self._context = contextvars.copy_context()
        self._epoch = (0, 0)
        self._clear = {"request": 0.0, "answer": 0.0}
        """Arrival time of the last packet in each direction: no later packet overtakes it."""

    def connect(self) -> None:
        """Connect as soon as the server is up, then call the `up` listeners."""
        if self.open or self.closed or not self.wire.alive():
            return
        if not self.wire.reaches() or not self.server.up:
            self.wire.later(RECONNECT_SECONDS, lambda: self.ours(self.connect))
            return
        self.open = True
        self._epoch = (self.server.epoch, self._epoch[1])
        for hook in list(self.up):
            hook()

    def ours(self, act: Callable[..., object], *args: Any) -> None:
        """Run `act` in the process that owns this connection, if it is alive."""
        asyncio.get_running_loop().call_soon(act, *args, context=self._context)

    def send(self, act: Callable[[], object]) -> None:
        """Send a packet to the server, which runs `act` when it arrives."""
        self._travel("request", act)

    def answer(self, act: Callable[[], object]) -> None:
        """Send a packet to the owning process, which runs `act` when it arrives."""
        self._travel("answer", act, self._context)

    def close(self) -> None:
        """Close the connection; packets on their way are lost."""
        self.closed, self.open = True, False

    def drop(self) -> None:
        """Break the connection, and connect again."""
        if not self.open:
            return
        self.open = False
        self._epoch = (self._epoch[0], self._epoch[1] + 1)
        self.ours(self._on_down)

    def _on_down(self) -> None:
        for hook in list(self.down):
            hook()
        self.wire.later(RECONNECT_SECONDS, lambda: self.ours(self.connect))

    def _travel(
        self, way: str, act: Callable[[], object], context: contextvars.Context | None = None
    ) -> None:
        if not self.open:
            return
        if not self.wire.reaches() or not self.server.up or self.wire.loses(way):
            self.drop()
            return
        now = self.server.seconds()
        arrival = now + self.wire.held_seconds(way) + self.wire.latency()
        self._clear[way] = max(self._clear[way], arrival)
        epoch = self._epoch
        self.wire.later(self._clear[way] - now, lambda: self._arrive(epoch, act), context)

    def _arrive(self, epoch: tuple[int, int], act: Callable[[], object]) -> None:
        if epoch != self._epoch or self.closed:
            return
        if not self.server.up or self.server.epoch != epoch[0]:
            self.drop()
            return
        act()


class _Client:
    """The part of a NATS client that the publisher uses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._on_reply: Callable[[Any], Awaitable[None]] | None = None

    @property
    def max_payload(self) -> int:
        return self._connection.server.max_payload

    def new_inbox(self) -> str:
        return "_INBOX"

    async def subscribe(
        self, subject: str, *, cb: Callable[[Any], Awaitable[None]], **limits: int
    ) -> None:
        del subject, limits
        self._on_reply = cb

    async def publish(
        self, subject: str, data: bytes, reply: str, headers: Mapping[str, str]
    ) -> None:
        await self._connection.wire.point(f"publish {subject}")
        sent = dict(headers)  # The publisher may change its own before it sends them again.
        self._connection.send(lambda: self._store(subject, data, reply, sent))

    def _store(self, subject: str, data: bytes, reply: str, headers: Mapping[str, str]) -> None:
        answer: dict[str, Any]
        try:
            sequence = self._connection.server.publish(subject, data, headers)
        except FencedError as error:
            code = 10070 if "msg ID" in str(error) else 10071
            answer = {"error": {"err_code": code, "description": str(error)}}
        except StreamFullError as error:
            answer = {"error": {"err_code": 10077, "description": str(error)}}
        except NoLeaderError:
            return
        else:
            answer = {"seq": sequence}
        body = b"" if answer == {"seq": None} else json.dumps(answer).encode()
        self._connection.answer(lambda: self._reply(reply, body))

    def _reply(self, subject: str, data: bytes) -> None:
        if self._on_reply is not None:
            # The publisher's callback never waits: run it here, without a task for each ack.
            step = self._on_reply(_Reply(subject=subject, data=data)).__await__()
            assert next(step, None) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    subject: str
    data: bytes
