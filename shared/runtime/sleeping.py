"""A uvicorn server that does nothing while there is nothing to do."""

import asyncio

import uvicorn
from typing_extensions import override


class SleepingServer(uvicorn.Server):
    """A uvicorn server that sleeps until there is something to do.

    uvicorn's own wakes up ten times a second, to renew its date header and to see whether it shall end.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Let `_serve` answer what is being asked, and return."""
        self.should_exit = True
        self._ending.set()

    @override
    async def main_loop(self) -> None:
        """Return after `end`."""
        await self.on_tick(0)  # Makes the headers of every answer.
        await self._ending.wait()
