"""Tells whether the console is in use, so that an unused console reads no streams."""

import asyncio
from math import inf


class IdleTracker:
    """In use from a question until `idle_seconds` without one.

    An open page asks several times a minute whether it is still authorised, so it keeps the console in
    use.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds or inf

        self._last = -inf
        self._asked = asyncio.Event()
        if not idle_seconds:
            self._asked.set()

    def touch(self) -> None:
        """Record that somebody asks now."""
        self._last = asyncio.get_running_loop().time()
        self._asked.set()

    async def wait_until_used(self) -> None:
        """Return once somebody asks. Returns at once if somebody asked since the last idle period began."""
        await self._asked.wait()

    async def wait_until_idle(self) -> None:
        """Return once nobody has asked for `idle_seconds`. Never returns if that is 0."""
        loop = asyncio.get_running_loop()
        if self._idle_seconds == inf:
            await asyncio.Event().wait()
        while True:
            left = self._last + self._idle_seconds - loop.time()
            if left <= 0:
                self._asked.clear()
                return
            await asyncio.sleep(left)
