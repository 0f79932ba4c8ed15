"""Whether anybody looks: what nobody looks at need not be kept up."""

import asyncio
from math import inf

__all__ = ["Demand"]


class Demand:
    """Begins with a question, and is over when for a while there was none.

    An open page asks several times a minute, whether it still may.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds or inf
        """0: there is always demand."""

        self._last = -inf
        self._asked = asyncio.Event()
        if not idle_seconds:
            self._asked.set()

    def ask(self) -> None:
        """Somebody asks something now."""
        self._last = asyncio.get_running_loop().time()
        self._asked.set()

    async def begun(self) -> None:
        """Return once somebody asks, or has asked since it was over."""
        await self._asked.wait()

    async def over(self) -> None:
        """Return once nobody has asked for the whole time."""
        loop = asyncio.get_running_loop()
        if self._idle_seconds == inf:
            await asyncio.Event().wait()
        while True:
            left = self._last + self._idle_seconds - loop.time()
            if left <= 0:
                self._asked.clear()
                return
            await asyncio.sleep(left)
