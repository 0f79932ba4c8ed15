"""A connection to the server in memory, with the part of a NATS client that the publisher uses."""

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from shared.bus.nats.tails import compare
from shared.bus.port import FencedError, NewerFormatError, StreamFullError
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import FORMAT
from shared.testing.world.memory_server import MemoryServer
from shared.testing.world.memory_streams import MemoryStream, NoLeaderError, SilentError
from shared.testing.world.wire import Wire

RECONNECT_SECONDS: Final = 0.5


class Connection:
    """An ordered connection to the server. When it breaks, all packets on their way are lost."""

    def __init__(
        self, server: MemoryServer, wire: Wire, *, owner: str = "", known_format: int = FORMAT
    ) -> None:
        """`owner`: the process. `known_format`: of the logs, as its release understands them."""
        self.server = server
        self._owner = owner
        self.wire = wire
        self.nc = _Client(self)
        self.up: list[Callable[[], None]] = []
        self.down: list[Callable[[], None]] = []
        self.refused = ""
        self.open = False
        self.closed = False
        self._known_format = known_format
        self.outdated: NewerFormatError | None = None
        """Why its release may not serve any more."""

        self._outdated = asyncio.Event()
        self._context = contextvars.copy_context()
        self._epoch = (0, 0)
        self._clear = {"request": 0.0, "answer": 0.0}
        """Arrival time of the last packet in each direction: no later packet overtakes it."""

    @property
    def peer(self) -> MemoryServer:
        """Who answers on this connection."""
        return self.server.deposed.get(self._owner, self.server)

    def connect(self) -> None:
        """Connect as soon as the server is up, then call the `up` listeners."""
        if self.open or self.closed or not self.wire.alive():
            return
        if not self.wire.reaches() or not self.server.up:
            self.wire.later(RECONNECT_SECONDS, lambda: self.ours(self.connect))
            return
        self.open = True
        self._epoch = (self.server.epoch, self._epoch[1])
        with suppress(NewerFormatError):
            self.look()
            for hook in list(self.up):
                hook()

    def look(self) -> None:
        """Look to which format the streams are committed.

        Closes for good, and raises `NewerFormatError`, if its release has a lower one.
        """
        committed = self.server.committed
        if self.outdated is None and committed > self._known_format:
            self.outdated = NewerFormatError(Term.stream, str(committed), self._known_format)
            self.close()
            self._outdated.set()
            for hook in list(self.down):
                self.ours(hook)
        self.check()

    async def until_outdated(self) -> NewerFormatError:
        """Return what `look` has found, once it has."""
        await self._outdated.wait()
        assert self.outdated is not None
        return self.outdated

    def check(self) -> None:
        """Raise what `look` has found, if anything."""
        if self.outdated is not None:
            raise self.outdated

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


class Deposed(MemoryServer):
    """One server of several that is cut off from the others, and does not know yet that they lead.

    It answers who reads what it led as it was. Nobody hears of anything else: what is written is not
    stored, nothing new is delivered. After some ten seconds it knows, and answers nothing any more.
    """

    def __init__(
        self, server: MemoryServer, led: Collection[str], *, silent_seconds: float = 0.0
    ) -> None:
        """`led`: names of the streams that it led. `silent_seconds`: since it heard from the others."""
        self.world = server.world
        self.generation = server.generation
        self.streams = {name: deepcopy(server.streams[name]) for name in led}
        self.bodies = _Silence()  # type: ignore[assignment]
        self._since = server.seconds() - silent_seconds

    def stream(self, name: str) -> MemoryStream:
        """Return what it led, as it was."""
        found = self.streams.get(name)
        if found is None:
            raise SilentError(f"{name} is led by another server")
        return found

    def known(self, name: str) -> MemoryStream:
        """What it led, unless it says itself that it has not heard from the others."""
        found, silent = self.stream(name), int((self.seconds() - self._since) * 1e9)
        if not compare.is_led({"cluster": {"replicas": 2 * [{"active": silent}]}}):
            raise NoLeaderError(f"{name}: the server that answers has not heard from the others")
        return found

    def fed(self, name: str) -> MemoryStream:
        """Raise `SilentError`: a server that is cut off delivers nothing."""
        raise SilentError(f"nothing is delivered from {name}")

    def responder(self, subject: str) -> None:
        """Return None: a server that is cut off knows no responder."""
        del subject

    def ack(self, *_delivery: object, **_more: object) -> None:
        """Drop it: the answer to a delivery reaches no leader."""

    def nak(self, *_delivery: object, **_more: object) -> None:
        """Drop it: the answer to a delivery reaches no leader."""

    def in_progress(self, *_delivery: object, **_more: object) -> None:
        """Drop it: the answer to a delivery reaches no leader."""

    def _silent(self, *_request: object, **_options: object) -> Any:
        raise SilentError("what is written is not stored")

    publish = acquire = release = purge = sweep = trim = respond = _silent


class _Silence:
    def __getattr__(self, name: str) -> Any:
        raise SilentError(f"bodies: {name}")


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
            sequence = self._connection.peer.publish(subject, data, headers)
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
