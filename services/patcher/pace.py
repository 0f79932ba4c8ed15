"""How fast what nobody waits for is written: decisions must never stand in line behind it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from shared.kube.port import ConflictError, KubeError, ThrottledError, UnavailableError

__all__ = ["Backlog", "Pace", "keep_writing"]

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

RETRY_SECONDS: Final = 1.0
"""After a server that did not answer, or a state that was stale."""


class Pace:
    """At most so many a second, after a pause a few at once."""

    def __init__(self, per_second: float, *, burst: int = 1) -> None:
        self._interval = 1.0 / per_second
        self._ahead = self._interval * (burst - 1)
        self._next = 0.0

    async def turn(self) -> None:
        """Return when it is time for the next one."""
        now = asyncio.get_running_loop().time()
        at = max(self._next, now - self._ahead)
        self._next = at + self._interval
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
