"""Looks after one machine at its provider, from its order to the proof that it is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import structlog

from services.provisioner.allocation.ledger import Machine
from services.provisioner.allocation.results import Broken, Gone, Refused, Sighting, Up
from services.provisioner.providers.port import (
    Order,
    Provider,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    VmState,
)

__all__ = ["LAUNCH_FAILURES_MAX", "Pace", "Tender", "ask"]

log = structlog.get_logger(__name__)

T = TypeVar("T")

LAUNCH_FAILURES_MAX: Final = 3
"""Orders of one machine that go wrong for no known reason before its TaskRun is told."""

SPURT_SECONDS: Final = 0.01
"""Beyond a deadline, so that whoever looks finds it passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a provider is asked, in seconds."""

    call: float
    """A call that takes longer has failed; it may yet have its effect."""

    launch_retry: float
    poll_retry: float


class Tender:
    """One machine's errand. Everything that it does may be done again: after a crash it is.

    The order is repeated until the provider shows the machine, the end until it shows it no more.
    What it learns goes to `report`; what is to be done about it is decided elsewhere and comes back
    as the machine's new state.
    """

    def __init__(
        self,
        *,
        machine: Machine,
        provider: Provider,
        order: Callable[[], Order | None],
        check_interval: Callable[[], float],
        report: Callable[[str, Sighting | None], None],
        pace: Pace,
        now: Callable[[], datetime],
    ) -> None:
        self._machine: Machine | None = machine
        self._provider = provider
        self._order = order
        self._check_interval = check_interval
        self._report = report
        self._pace = pace
        self._now = now
        self._changed = asyncio.Event()
        self._ordered = False
        self._seen = False
        self._failures = 0

    def update(self, machine: Machine | None) -> None:
        """The record changed; None: the machine is gone."""
        if machine != self._machine:
            self._machine = machine
            self._changed.set()

    async def run(self) -> None:
        """Until the machine is gone."""
        while self._machine is not None:
            self._changed.clear()
            match self._machine.state:
                case "launching":
                    seconds = await self._launch(self._machine)
                case "terminating":
                    seconds = await self._terminate(self._machine)
                case "running":
                    # Nothing to do before it is to go; the sweep notices if it vanishes.
                    await self._changed.wait()
                    continue
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                # Nobody changed anything: time has passed, and a deadline perhaps with it.
                self._report(self._machine.name, None)

    async def _launch(self, machine: Machine) -> float:
        """Order it, or look whether it is up; return the seconds until the next look."""
        left = (machine.deadline - self._now()).total_seconds() + SPURT_SECONDS
        try:
            if not self._ordered:
                order = self._order()
                if order is None:
                    return left  # Its platform is no longer configured: it is about to go.
                await ask(self._provider.launch(order), self._pace.call)
                self._ordered = True
            seconds = await self._look(machine)
        except ProviderRefusedError as error:
            log.warning("provider refused", machine=machine.name, error=str(error))
            self._report(machine.name, Refused(reason=error.reason))
            seconds = left
        except ProviderBusyError as error:
            log.info("provider busy", machine=machine.name, error=str(error))
            seconds = self._pace.poll_retry if self._ordered else self._pace.launch_retry
        except ProviderError as error:
            log.warning("provider failed", machine=machine.name, error=str(error))
            seconds = self._pace.poll_retry
            if not self._ordered:
                self._failures += 1
                seconds = self._pace.launch_retry
            if self._failures >= LAUNCH_FAILURES_MAX:
                self._report(machine.name, Refused(reason=error.reason))
        return max(SPURT_SECONDS, min(seconds, left))

    async def _look(self, machine: Machine) -> float:
        vm = await ask(self._provider.find(machine.name), self._pace.call)
        if vm is None or vm.state is VmState.GONE:
            if self._seen or vm is not None:
                self._report(machine.name, Gone())
            else:
                # Never seen: the order may have been lost. The same name cannot give two.
                self._ordered = False
            return self._check_interval()
        self._seen = True
        if vm.state is VmState.FAILED:
            self._report(machine.name, Broken(reason="the provider reports it as failed"))
        elif vm.state is VmState.RUNNING and vm.address:
            self._report(machine.name, Up(address=vm.address))
        return self._check_interval()

    async def _terminate(self, machine: Machine) -> float:
        try:
            await ask(self._provider.terminate(machine.name), self._pace.call)
            vm = await ask(self._provider.find(machine.name), self._pace.call)
        except ProviderError as error:
            # Also where the provider refuses: the record stays until the machine is proved gone.
            log.warning("not terminated yet", machine=machine.name, error=str(error))
            return self._pace.poll_retry
        if vm is None or vm.state is VmState.GONE:
            self._report(machine.name, Gone())
            return self._pace.poll_retry
        return min(self._check_interval(), self._pace.poll_retry)


async def ask(call: Awaitable[T], seconds: float) -> T:
    """Await one call of a provider; whatever goes wrong is a `ProviderError`."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except ProviderError:
        raise
    except TimeoutError as error:
        raise ProviderError("provider", "answer", "in time", f"{seconds:g} s passed") from error
    except Exception as error:  # A provider's mistake must not stop the others.
        log.exception("a provider broke its promise")
        raise ProviderError("provider", "be called", "", repr(error)) from error
