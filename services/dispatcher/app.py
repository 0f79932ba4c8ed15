"""Builds the dispatcher. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from random import Random
from typing import Final

from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.term import Term
from services.dispatcher.windows import WindowChecks
from shared.bus.leadership import lead
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus
from shared.bus.spoke_gateway import SpokeGateway
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.settings.configuration import read_configuration

PAUSE_SECONDS: Final = 1.0
"""Longest pause between two terms. It is random, so that two dispatchers do not retry in step."""


class Dispatcher:
    """Sends workloads to spokes, and answers window checks, in each term that it holds the lease."""

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        bus: Bus,
        now: Callable[[], datetime],
        random: Random,
        write_for_spokes: Callable[[], Coroutine[None, None, None]] | None = None,
    ) -> None:
        self._settings = settings
        self._write_for_spokes = write_for_spokes
        self._bus = bus
        self._now = now
        self._random = random
        self._term: Term | None = None

    async def run(self) -> None:
        """Run one term after another, until cancelled."""
        await lead(
            self._bus,
            f"dispatcher-{self._settings.cluster}",
            self._run_term,
            pause_seconds=lambda: self._random.uniform(0, PAUSE_SECONDS),
        )

    def ready(self) -> str | None:
        """Why it is not ready; None also while another replica holds the lease."""
        return self._term.not_ready() if self._term is not None else None

    async def _run_term(self) -> None:
        windows = WindowChecks(cluster=self._settings.cluster, bus=self._bus, now=self._now)
        self._term = Term(
            settings=self._settings, bus=self._bus, now=self._now, on_forgotten=windows.forget
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._term.run())
                group.create_task(windows.run())
                if self._write_for_spokes is not None:
                    group.create_task(self._write_for_spokes())
        finally:
            self._term = None


def assemble(
    *,
    settings: DispatcherSettings,
    bus: Bus,
    now: Callable[[], datetime],
    random: Random,
    write_for_spokes: Callable[[], Coroutine[None, None, None]] | None = None,
) -> Dispatcher:
    """Wire the parts. Opens nothing. `write_for_spokes`: runs in each term, for as long as that lasts."""
    return Dispatcher(
        settings=settings, bus=bus, now=now, random=random, write_for_spokes=write_for_spokes
    )


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The dispatcher as `sluice run` starts it, set by the environment and by `overrides`."""
    variables = DispatcherSettings(**overrides)
    settings = variables.with_configuration(read_configuration(variables.configuration).multi_kueue)

    def build(parts: Parts) -> Dispatcher:
        bus, write = parts.bus, None
        if isinstance(bus, NatsBus):
            # Every replica answers spokes. Only who holds the lease writes for them.
            gateway = SpokeGateway(bus)
            parts.beside(gateway.answer)
            write = gateway.write
        return assemble(
            settings=settings, bus=bus, now=utc_now, random=Random(), write_for_spokes=write
        )

    return Program(name="dispatcher", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run dispatcher`."""
    return run_service(program())
