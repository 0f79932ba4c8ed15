"""What lies between a process and a server: latency, loss, partitions, death."""

import asyncio
import contextvars
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from shared.testing.world.world import World, WorldOverError

__all__ = ["PlainWire", "Wire", "WorldWire"]


class Wire(Protocol):
    """One process's way to one server, in that process's life."""

    def check(self) -> None:
        """Raise `WorldOverError` when the process is dead: its ports do nothing any more."""

    def alive(self) -> bool:
        """Whether the process lives."""

    def reaches(self) -> bool:
        """Whether a packet would get through now."""

    def latency(self) -> float:
        """Seconds that the next packet takes."""

    def loses(self, what: str) -> bool:
        """Whether the connection breaks now, with all that is on its way. `request` or `answer`."""

    def doubles(self) -> bool:
        """Whether a delivery comes twice."""

    def later(
        self,
        delay_seconds: float,
        act: Callable[[], object],
        context: contextvars.Context | None = None,
    ) -> None:
        """Call `act` in `context`, or else in nobody's name."""

    async def point(self, what: str) -> None:
        """Where the process may die."""

    def now(self) -> datetime:
        """The process's clock."""


class PlainWire:
    """Nothing is in the way; on any event loop. For the contract suite and unit tests."""

    def check(self) -> None:
        """Nobody dies here."""

    def alive(self) -> bool:
        """Always."""
        return True

    def reaches(self) -> bool:
        """Always."""
        return True

    def latency(self) -> float:
        """None: the next round of callbacks."""
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
        """Nobody dies here."""

    def now(self) -> datetime:
        """The machine's clock."""
        return datetime.now(UTC)


class WorldWire:
    """The way that a process of a world has to `party`: the bus or a cluster."""

    LATENCY_SECONDS = (0.0001, 0.002)

    def __init__(self, world: World, party: str) -> None:
        self._world = world
        self._party = party
        self._group = world.loop.group
        process = world.current()
        self._name = process.name if process is not None else ""
        self._skew = process.skew if process is not None else None

    def check(self) -> None:
        """Raise `WorldOverError` when the process is dead or the world over."""
        if not self.alive():
            raise WorldOverError

    def alive(self) -> bool:
        """Whether the process lives and the world goes on."""
        return self._world.alive(self._group)

    def reaches(self) -> bool:
        """Not while dead or cut off."""
        return self._world.alive(self._group) and self._world.connected(self._name, self._party)

    def latency(self) -> float:
        """Within a network's usual, and now and then long."""
        world = self._world
        slow = world.slowness_seconds(self._name)
        if world.chance(world.faults.delay):
            return slow + world.between(world.faults.delay_seconds)
        return slow + world.between(self.LATENCY_SECONDS)

    def loses(self, what: str) -> bool:
        """As often as the faults say."""
        faults = self._world.faults
        lost = self._world.chance(faults.lost_request if what == "request" else faults.lost_answer)
        if lost:
            self._world.note(f"{self._party}: connection of {self._name} breaks ({what} lost)")
        return lost

    def doubles(self) -> bool:
        """As often as the faults say."""
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
        return now if self._skew is None else now + self._skew
