"""Tells a reader without a consumer that its log stored something.

A log publishes below `live.` what it has stored: at most once, to those who listen. A subscription here
ends after some messages; who reads then looks, and listens anew before each look. So a burst is not sent
twice, and of entries that come one by one few cost a subscription.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from shared.bus.direct_read import sequence_of
from shared.bus.streams import LIVE

FIRST_PAUSE_SECONDS: Final = 0.05
"""Of several servers, the stream's leader learns of a subscription a moment later than ours, and tells us
nothing until then: look again soon, and then ever more seldom."""

HEARD_MAX: Final = 16
"""Messages of one subscription. A new one costs server and client some ten times what a message costs."""

BETWEEN_SECONDS: Final = 0.003
"""Between two looks because of hints: a look costs some thirty times what an entry costs."""

LAG_FIRST_SECONDS: Final = 0.001
LAG_MAX_SECONDS: Final = 0.05
LAG_TRIES: Final = 24
"""A view is a fraction of a millisecond behind its log. What it lacks after a second was purged."""

PAUSE_MAX_SECONDS: Final = 10.0
"""A message without a hint, as during an election, is found after this time at the latest."""


class Hints:
    """Listens on one connection to what filters select."""

    def __init__(
        self, nc: Client, filters: Collection[str], *, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Without filters it listens to all that any log stores. `stopped`: whether to end all waits."""
        self._nc = nc
        self._stopped = stopped
        self._filters = tuple(filters) or (">",)
        self._listening: dict[str, Subscription] = {}
        """Filter to the subscription that has more to tell."""

        self._told: Counter[str] = Counter()
        """How many messages each of them has brought."""

        self.came = asyncio.Event()
        """Ends the waiting."""

        self._pause = FIRST_PAUSE_SECONDS
        self._heard = 0
        """The highest sequence of the log that was told."""

        self._tries = 0
        self._read = 0
        """How far the log had been read when the waiting began."""

        self._came_again = False
        """Whether a hint came of what had been read before: then the log may have been made anew."""

        self._looked_at = 0.0

    async def listen(self) -> None:
        """Listen to each filter until it has told some. What is stored from now on wakes who waits."""
        self.came.clear()
        self._looked_at = asyncio.get_running_loop().time()
        for subject in self._filters:
            if subject in self._listening:
                continue
            heard = partial(self._on_message, subject)
            subscription = await self._nc.subscribe(f"{LIVE}.{subject}", cb=heard)
            self._listening[subject] = subscription
            self._told[subject] = 0
            await subscription.unsubscribe(limit=HEARD_MAX)

    async def _on_message(self, subject: str, message: Msg) -> None:
        self._told[subject] += 1
        if self._told[subject] >= HEARD_MAX:
            self._listening.pop(subject, None)
        sequence = sequence_of(message) or 0
        self._heard = max(self._heard, sequence)
        # Of a log made anew many may come before anybody wakes up: the first of them tells.
        self._came_again |= sequence <= self._read
        self._pause = FIRST_PAUSE_SECONDS
        self.came.set()

    async def wait(self, *, delivered: int) -> bool:
        """Wait for a hint of more than was `delivered` of the log; False: look without one.

        False also if a hint is of what was read before: the log may have been made anew.
        """
        self._read = delivered
        if not self._came_again:
            if delivered < self._heard and self._tries < LAG_TRIES:
                await asyncio.sleep(min(LAG_MAX_SECONDS, LAG_FIRST_SECONDS * 2**self._tries))
                self._tries += 1
                return True
            self._heard, self._tries = 0, 0
            if not self._stopped():
                self.came.clear()  # What was told has been read.
            try:
                async with asyncio.timeout(self._pause):
                    await self.came.wait()
            except TimeoutError:
                self._pause = min(PAUSE_MAX_SECONDS, 2 * self._pause)
                return False
        await asyncio.sleep(self._looked_at + BETWEEN_SECONDS - asyncio.get_running_loop().time())
        came_again, self._came_again = self._came_again, False
        return delivered < self._heard and not came_again

    async def close(self) -> None:
        """Listen no more."""
        for subscription in self._listening.values():
            # Also without a connection: the client would subscribe again on the next one.
            with suppress(NatsError):
                await subscription.unsubscribe()
        self._listening.clear()
