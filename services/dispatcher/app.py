"""Builds the dispatcher. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Final

import structlog

from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.term import Session
from services.dispatcher.windows import WindowChecks
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus, BusError, Lease
from shared.runtime.host import Parts, run_service
from shared.settings.configuration import read_configuration

__all__ = ["Dispatcher", "assemble", "main"]

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 1.0
"""At most, between two sessions: two that quarrel about a record must not do it in step."""


class Dispatcher:
    """Sends workloads to spokes, and lets them in by the clock, whenever the lease is its own."""

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        bus: Bus,
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._now = now
        self._random = random
        self._session: Session | None = None

    async def run(self) -> None:
        """One session after another, until cancelled."""
        while True:
            lease = await self._bus.lease(f"dispatcher-{self._settings.cluster}")
            try:
                await self._serve(lease)
            finally:
                self._session = None
                await lease.release()
            await asyncio.sleep(self._random.uniform(0, PAUSE_SECONDS))

    def ready(self) -> str | None:
        """Ready also while another replica is the one: standing by is its work."""
        return self._session.not_ready() if self._session is not None else None

    async def _serve(self, lease: Lease) -> None:
        session = Session(settings=self._settings, bus=self._bus, now=self._now)
        windows = WindowChecks(cluster=self._settings.cluster, bus=self._bus, now=self._now)
        self._session = session

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(session.run())
                group.create_task(windows.run())

        working = asyncio.create_task(work())
        losing = asyncio.create_task(lease.lost())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            losing.cancel()
            await asyncio.gather(working, losing, return_exceptions=True)
        if working.cancelled():
            log.warning("the lease is lost; somebody else goes on")
            return
        try:
            working.result()
        except* BusError as errors:
            # Something was written by somebody else, or could not be written: read all again.
            log.warning("session ended", because=_sentences(errors))


def _sentences(error: BaseException) -> list[str]:
    """What was raised, out of the groups that brought it here."""
    if isinstance(error, BaseExceptionGroup):
        return [sentence for one in error.exceptions for sentence in _sentences(one)]
    return [str(error)]


def assemble(
    *,
    settings: DispatcherSettings,
    bus: Bus,
    now: Callable[[], datetime],
    random: Random,
) -> Dispatcher:
    """Wire the parts. Opens nothing."""
    return Dispatcher(settings=settings, bus=bus, now=now, random=random)


def main() -> int:
    """Entry point of `sluice run dispatcher`."""
    variables = DispatcherSettings()
    settings = variables.following(read_configuration(variables.configuration).multi_kueue)

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Dispatcher:
        if isinstance(parts.bus, NatsBus):
            # Every replica keeps it, whoever has the lease.
            parts.beside(parts.bus.door().run)
        return assemble(settings=settings, bus=parts.bus, now=now, random=Random())

    return run_service("dispatcher", settings, build)
