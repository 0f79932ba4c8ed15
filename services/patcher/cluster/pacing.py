"""Bounds the rate of writes that may wait: waiting reasons, queue status, events, annotations.

Each of them costs the API server as much as a decision, so they must never delay one.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from services.patcher.cluster.errors import is_transient_refusal
from shared.bus.port import LaterError
from shared.kube.port import (
    ConflictError,
    KubeError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

RETRY_SECONDS: Final = 1.0
"""Pause after a conflict, or after a request that the API server did not answer."""

BUSY_PER_SECOND: Final = 10.0
"""Decisions written per second above which the API server counts as busy."""

BUSY_SLOWDOWN: Final = 10.0
"""Factor by which low-priority writes are slower while the API server is busy."""


class WriteLoad:
    """Rate at which decisions are written: an exponential average over about one second."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at = 0.0

    def record_write(self) -> None:
        """Count one decision that was written."""
        self._rate = self._current_rate() + 1.0

    @property
    def busy(self) -> bool:
        """True if low-priority writes should slow down."""
        return self._current_rate() > BUSY_PER_SECOND

    def _current_rate(self) -> float:
        now = asyncio.get_running_loop().time()
        self._rate *= math.exp(self._at - now)
        self._at = now
        return self._rate


class RateLimiter:
    """Allows `per_second` writes, and `burst` at once after a pause.

    With a `load` that is busy: `BUSY_SLOWDOWN` times fewer, and no burst.
    """

    def __init__(self, per_second: float, *, burst: int = 1, load: WriteLoad | None = None) -> None:
        self._interval = 1.0 / per_second
        self._burst_seconds = self._interval * (burst - 1)
        self._load = load
        self._next = 0.0

    async def wait(self) -> None:
        """Return when the next write may start."""
        now = asyncio.get_running_loop().time()
        busy = self._load is not None and self._load.busy
        at = max(self._next, now if busy else now - self._burst_seconds)
        self._next = at + self._interval * (BUSY_SLOWDOWN if busy else 1.0)
        if at > now:
            await asyncio.sleep(at - now)


class Backlog(Generic[K, V]):
    """Writes that wait, oldest key first. For each key only the latest value is kept."""

    def __init__(self, *, limit: int | None = None) -> None:
        """Above `limit` keys the oldest is dropped; None keeps all."""
        self._items: dict[K, V] = {}
        self._limit = limit
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        """The value that waits for `key`; None if there is none."""
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        """Enqueue `value`. A key that waits already keeps its place."""
        self._items[key] = value
        if self._limit is not None and len(self._items) > self._limit:
            del self._items[next(iter(self._items))]
        self._arrived.set()

    def discard(self, key: K) -> None:
        """Remove `key`, if it waits."""
        self._items.pop(key, None)

    async def wait_for_item(self) -> None:
        """Return when something waits."""
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()

    def pop(self) -> tuple[K, V] | None:
        """Remove and return the oldest item; None if nothing waits."""
        if not self._items:
            return None
        key = next(iter(self._items))
        return key, self._items.pop(key)


async def drain(
    backlog: Backlog[K, V],
    write: Callable[[K, V], Awaitable[None]],
    limiter: RateLimiter,
    *,
    what: str,
) -> None:
    """Write the items of the backlog, one at a time, until cancelled.

    A write that fails for now is tried again, unless a newer value waits for its key. A write that the
    API server refuses for good is logged and dropped. `what` names the writes in logs.
    """
    while True:
        await backlog.wait_for_item()
        await limiter.wait()
        if (item := backlog.pop()) is None:
            continue
        key, value = item
        try:
            await write(key, value)
        except (KubeError, LaterError) as error:
            if not _may_succeed(error):
                log.warning(
                    "the cluster refuses a write", what=what, key=str(key), error=str(error)
                )
                continue
            if backlog.get(key) is None:
                backlog.put(key, value)
            delay = error.retry_after_seconds if isinstance(error, ThrottledError) else 0.0
            log.info(
                "cannot write to the cluster; trying again later",
                what=what,
                key=str(key),
                error=str(error),
            )
            await asyncio.sleep(max(RETRY_SECONDS, delay))


def _may_succeed(error: KubeError | LaterError) -> bool:
    """Whether the same write may succeed later, as after an operator has granted a right."""
    if isinstance(error, RefusedError):
        return is_transient_refusal(error)
    return isinstance(error, LaterError | ThrottledError | ConflictError | UnavailableError)
