"""Whether anybody looks: what nobody looks at need not be kept up."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

__all__ = ["Demand"]


class Demand:
    """Begins with a question, and ends when for a while there was none and no page is open."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds or inf
        """0: there is always demand."""

        self._pages = 0
        self._last = -inf
        self._asked = asyncio.Event()
        if not idle_seconds:
            self._asked.set()

    def ask(self) -> None:
        """Somebody asks something now."""
        self._last = asyncio.get_running_loop().time()
        self._asked.set()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Somebody looks for as long as this lasts."""
        self._pages += 1
        self.ask()
        try:
            yield
        finally:
            self._pages -= 1
            self.ask()

    async def begun(self) -> None:
        """Return once somebody asks, or has asked since it was over."""
        await self._asked.wait()

    async def over(self) -> None:
        """Return once nobody has asked for the whole time."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._idle_seconds - (0 if self._pages else loop.time() - self._last)
            if left <= 0:
                self._asked.clear()
                return
            await (asyncio.sleep(left) if left < inf else asyncio.Event().wait())
