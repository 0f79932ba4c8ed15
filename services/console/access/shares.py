"""Shares places among users, so that one of them leaves some for the others."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from services.console.status_error import ConsoleRule, StatusError

SHARE_MIN: Final = 3
"""Places that a user may have at least, where there are few: for a few tabs of a browser."""

TENTH: Final = 10


def share(most: int) -> int:
    """How many of `most` places one user may have: a tenth, at least three."""
    return min(most, max(SHARE_MIN, most // TENTH))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """How many places there are, and by which rule who has none is refused."""

    most: int
    of_user: int
    full: ConsoleRule
    user_full: ConsoleRule
    retry_after_seconds: int


class FairSlots:
    """Counts who has slots."""

    def __init__(self, limits: ShareLimits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, user: str) -> Iterator[None]:
        """Have a place. Raises `StatusError` if the user has a full share, or if there is none left."""
        limits = self._limits
        again = limits.retry_after_seconds
        if self._taken.total() >= limits.most:
            raise StatusError(limits.full, retry_after_seconds=again)
        if self._taken[user] >= limits.of_user:
            raise StatusError(
                limits.user_full, user=user, most=limits.of_user, retry_after_seconds=again
            )
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken[user] -= 1
            self._taken += Counter()  # Forgets who has none.


class FairTurns:
    """Lets one work at a time. Users take turns, however much each of them asks."""

    def __init__(self, limits: ShareLimits) -> None:
        self._places = FairSlots(limits)
        self._working = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user; whose turn is next comes first."""

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it. Raises `StatusError` if too many wait already."""
        with self._places.place(user):
            if self._working:
                await self._wait(user)
            self._working = True
            try:
                yield
            finally:
                self._hand_on()

    async def _wait(self, user: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(user, turn)
            else:
                self._hand_on()  # It came in the moment in which nobody waited any more.
            raise

    def _leave(self, user: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(user, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(user, None)

    def _hand_on(self) -> None:
        """Give the turn to the next user who still waits."""
        while self._waiting:
            user = next(iter(self._waiting))
            turns = self._waiting.pop(user)
            turn = turns.popleft()
            if turns:
                self._waiting[user] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._working = False
