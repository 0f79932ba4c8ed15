"""Where attacks run: the stages that they share, as long as none of them broke anything."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module

from tests.attacks.forgery import Forgery, forgery
from tests.attacks.ground import Ground, ground


class Place:
    """Where attacks run one after the other: on the same server, until one of them breaks something."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._ground: Ground | None = None
        self._forgery: Forgery | None = None
        self._siege: Mapping[str, str] | None = None

    async def siege(self) -> Mapping[str, str]:
        """What attacks on a real API server got: they run side by side, once."""
        if self._siege is None:
            # Its rows are of this module's making.
            self._siege = await import_module("tests.attacks.cluster").siege()
        return self._siege

    @asynccontextmanager
    async def forgery(self) -> AsyncIterator[Forgery]:
        """Patchers on an open bus, which no attack has made to do anything."""
        if self._forgery is None:
            self._forgery = await self._stack.enter_async_context(forgery())
        try:
            yield self._forgery
        except BaseException:
            await self.leave()
            raise

    @asynccontextmanager
    async def ground(self) -> AsyncIterator[Ground]:
        """A hub that no attack has changed. Its connections end with the context."""
        if self._ground is None:
            self._ground = await self._stack.enter_async_context(ground())
        try:
            async with AsyncExitStack() as self._ground.stack:
                yield self._ground
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Stop the server: the next attack shall not stand on what one has left behind."""
        self._ground = self._forgery = None
        await self._stack.aclose()
