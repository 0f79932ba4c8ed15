"""The network between a process and a server: latency, loss, partitions and crashes."""

import asyncio
import contextvars
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from shared.testing.world.world import World, WorldOverError


class Wire(Protocol):
    """The network path from one process to one server."""

    def check(self) -> None:
        """Raise `WorldOverError` if the process is dead."""

    def alive(self) -> bool:
        """True if the process is alive."""

    def reaches(self) -> bool:
        """True if a packet would arrive now."""

    def latency(self) -> float:
        """Return the latency of the next packet in seconds."""

    def held_seconds(self, way: str) -> float:
        """Return how long packets of this direction (`request`, `answer`) are held up now."""

    def loses(self, what: str) -> bool:
        """True if the connection breaks now; `what` is `request` or `answer`."""

    def doubles(self) -> bool:
        """True if a delivery arrives twice."""

    def later(
        self,
        delay_seconds: float,
        act: Callable[[], object],
        context: contextvars.Context | None = None,
    ) -> None:
        """Call `act` later in `context`, or outside of any process."""

    async def point(self, what: str) -> None:
        """A point at which the process may crash."""

    def now(self) -> datetime:
        """The process's clock."""


class PlainWire:
    """A perfect network on any event loop, for contract and unit tests."""

    def check(self) -> None:
        """Return: outside of a world, processes do not crash."""

    def alive(self) -> bool:
        """Always."""
        return True

    def reaches(self) -> bool:
        """Always."""
        return True

    def latency(self) -> float:
        """Zero: the next iteration of the event loop."""
        return 0.0

    def held_seconds(self, way: str) -> float:
        """Never."""
        del way
        return 0.0

    def loses(self, what: str) -> bool:
        """Never."""
        del what
        return False

    def doubles(self) -> bool:
        """Never."""
        return False

    def later(
        self,
        delay_seconds: float,
        act: Callable[[], object],
        context: contextvars.Context | None = None,
    ) -> None:
        """By the running loop."""
        loop = asyncio.get_running_loop()
        if delay_seconds > 0:
            loop.call_later(delay_seconds, act, context=context)
        else:
            loop.call_soon(act, context=context)

    async def point(self, what: str) -> None:
        """Return at once: outside of a world, processes do not crash."""

    def now(self) -> datetime:
        """The machine's clock."""
        return datetime.now(UTC)


class WorldWire:
    """The network path from a process of a world to `party`: the bus or a cluster."""

    LATENCY_SECONDS = (0.0001, 0.002)

    def __init__(self, world: World, party: str) -> None:
        self._world = world
        self._party = party
        self._group = world.loop.group
        process = world.current()
        self._name = process.name if process is not None else ""
        self._process = process

    def check(self) -> None:
        """Raise `WorldOverError` if the process is dead or the world has ended."""
        if not self.alive():
            raise WorldOverError

    def alive(self) -> bool:
        """True if the process is alive and the world has not ended."""
        return self._world.alive(self._group)

    def reaches(self) -> bool:
        """False while the process is dead or partitioned."""
        return self._world.alive(self._group) and self._world.connected(self._name, self._party)

    def held_seconds(self, way: str) -> float:
        """As long as the world holds them up."""
        return self._world.links.held_seconds(self._name, self._party, way)

    def latency(self) -> float:
        """Usually short, sometimes long."""
        world = self._world
        slow = world.slowness_seconds(self._name)
        if world.chance(world.faults.delay):
            return slow + world.between(world.faults.delay_seconds)
        return slow + world.between(self.LATENCY_SECONDS)

    def loses(self, what: str) -> bool:
        """With the probability of the world's faults."""
        faults = self._world.faults
        lost = self._world.chance(faults.lost_request if what == "request" else faults.lost_answer)
        if lost:
            self._world.note(f"{self._party}: connection of {self._name} breaks ({what} lost)")
        return lost

    def doubles(self) -> bool:
        """With the probability of the world's faults."""
        return self._world.chance(self._world.faults.duplicate)

    def later(
        self,
        delay_seconds: float,
        act: Callable[[], object],
        context: contextvars.Context | None = None,
    ) -> None:
        """By the world's loop."""
        if context is None:
            self._world.later(delay_seconds, act)
        else:
            self._world.loop.call_later(delay_seconds, act, context=context)

    async def point(self, what: str) -> None:
        """Die here, perhaps."""
        self.check()
        await self._world.point(what)

    def now(self) -> datetime:
        """The world's clock with the process's skew."""
        now = self._world.now()
        return now if self._process is None else now + self._process.skew
