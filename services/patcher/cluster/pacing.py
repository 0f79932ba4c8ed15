"""How fast what nobody waits for is written: decisions must never stand in line behind it."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from shared.kube.port import ConflictError, KubeError, ThrottledError, UnavailableError

__all__ = ["Backlog", "Load", "Pace", "keep_writing"]

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

RETRY_SECONDS: Final = 1.0
"""After a server that did not answer, or a state that was stale."""


BUSY_PER_SECOND: Final = 10.0
"""Writes of decisions from which on the API server has enough to do."""

GIVE_WAY: Final = 10.0
"""How much slower news is written meanwhile: each costs the server as much as a decision."""


class Load:
    """How many decisions are being written: the average of about the last second."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at = 0.0

    def wrote(self) -> None:
        """One more was written."""
        self._rate = self._now() + 1.0

    @property
    def busy(self) -> bool:
        """Whether what nobody waits for should stand back."""
        return self._now() > BUSY_PER_SECOND

    def _now(self) -> float:
        now = asyncio.get_running_loop().time()
        self._rate *= math.exp(self._at - now)
        self._at = now
        return self._rate


class Pace:
    """At most so many a second, after a pause a few at once; fewer, and none at once, under a load."""

    def __init__(self, per_second: float, *, burst: int = 1, load: Load | None = None) -> None:
        self._interval = 1.0 / per_second
        self._ahead = self._interval * (burst - 1)
        self._load = load
        self._next = 0.0

    async def turn(self) -> None:
        """Return when it is time for the next one."""
        now = asyncio.get_running_loop().time()
        busy = self._load is not None and self._load.busy
        at = max(self._next, now if busy else now - self._ahead)
        self._next = at + self._interval * (GIVE_WAY if busy else 1.0)
        if at > now:
            await asyncio.sleep(at - now)


class Backlog(Generic[K, V]):
    """What is still to be written, oldest first; of one thing only the latest is kept."""

    def __init__(self, *, most: int | None = None) -> None:
        """With more than `most` things the oldest are let go: None keeps all."""
        self._items: dict[K, V] = {}
        self._most = most
        self._arrived = asyncio.Event()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        """What is to be written about `key`."""
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        """Write `value` in its turn; it keeps the place of what was to be written about `key`."""
        self._items[key] = value
        if self._most is not None and len(self._items) > self._most:
            del self._items[next(iter(self._items))]
            self.dropped += 1
        self._arrived.set()

    def discard(self, key: K) -> None:
        """Nothing is to be written about `key` any more."""
        self._items.pop(key, None)

    async def arrival(self) -> None:
        """Return when there is something to write."""
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()

    def pop(self) -> tuple[K, V] | None:
        """Take the oldest out; None if it was discarded meanwhile."""
        if not self._items:
            return None
        key = next(iter(self._items))
        return key, self._items.pop(key)


async def keep_writing(
    backlog: Backlog[K, V], write: Callable[[K, V], Awaitable[None]], pace: Pace, *, what: str
) -> None:
    """Write what is in the backlog, one at a time, until cancelled.

    What fails for now is tried again unless something newer took its place; what is refused is left.
    """
    while True:
        await backlog.arrival()
        await pace.turn()
        if (item := backlog.pop()) is None:
            continue
        key, value = item
        try:
            await write(key, value)
        except (ThrottledError, ConflictError, UnavailableError) as error:
            if backlog.get(key) is None:
                backlog.put(key, value)
            asked = error.retry_after_seconds if isinstance(error, ThrottledError) else 0.0
            log.info("later", what=what, key=str(key), error=str(error))
            await asyncio.sleep(max(RETRY_SECONDS, asked))
        except KubeError as error:
            log.warning("not written", what=what, key=str(key), error=str(error))
