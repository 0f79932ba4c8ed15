"""Turns for large reviews: one at a time, the namespaces in turn, and as much time for all others.

What reads a large body keeps the event loop for a while, and whoever sends many of them would have it for
itself. After each turn the next one waits as long as that turn took.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from services.classifier.refusal import RefusedError, WebhookRule

WAITING_MAX: Final = 32
"""Large reviews of one namespace that wait. A client of an API server tries again later."""

WAIT_SECONDS: Final = 8.0
"""An API server gives up after ten."""


class Turns:
    """A queue for each namespace."""

    def __init__(
        self, *, waiting_max: int = WAITING_MAX, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._waiting_max = waiting_max
        self._wait_seconds = wait_seconds
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken = False

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn of the namespace. Raises `RefusedError`."""
        loop = asyncio.get_running_loop()
        await self._wait(namespace)
        began = loop.time()
        try:
            yield
        finally:
            now = loop.time()
            loop.call_at(now + (now - began), self._next)

    async def _wait(self, namespace: str) -> None:
        if not self._taken:
            self._taken = True
            return
        queue = self._queues.setdefault(namespace, deque())
        if len(queue) >= self._waiting_max:
            raise RefusedError(
                WebhookRule.TURNS, namespace=namespace, count=len(queue), most=self._waiting_max
            )  # fmt: skip
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        has_turn = False
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
            has_turn = True
        except TimeoutError as error:
            raise RefusedError(WebhookRule.LATE, seconds=self._wait_seconds) from error
        finally:
            if turn in queue:
                queue.remove(turn)
            elif not has_turn and not turn.cancelled():
                self._next()  # It was given while its review gave up.

    def _next(self) -> None:
        """Give the turn to the namespace that waits longest for one, and put that namespace last."""
        for namespace in list(self._queues):
            queue = self._queues.pop(namespace)
            while queue:
                turn = queue.popleft()
                if turn.done():
                    continue
                if queue:
                    self._queues[namespace] = queue
                turn.set_result(None)
                return
        self._taken = False
