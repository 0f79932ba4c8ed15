"""Controls one machine at its provider, from its order to the proof that it is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import structlog

from services.provisioner.allocation.ledger import Machine
from services.provisioner.allocation.results import (
    LaunchRefused,
    MachineBroken,
    MachineGone,
    MachineObservation,
    MachineUp,
)
from services.provisioner.providers.port import (
    Order,
    Provider,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    VmState,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

LAUNCH_FAILURES_MAX: Final = 3
"""Failed orders of one machine, for an unknown reason, after which its TaskRun fails."""

DEADLINE_MARGIN_SECONDS: Final = 0.01
"""Wait this much longer than a deadline, so that it has passed for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPolicy:
    """Time-out and intervals of calls to a provider."""

    call_seconds: float
    """A call that takes longer has failed. It may still have its effect."""

    launch_retry_seconds: float
    poll_retry_seconds: float


class MachineController:
    """Brings one machine to the state of its record. After a crash every step can be repeated.

    1. `launching`: orders the machine until the provider lists it, then polls until it has an address.
    2. `running`: does nothing. The sweep notices a machine that vanishes.
    3. `terminating`: terminates the machine until the provider lists it no more.

    Observations go to `report`. The next round of allocation decides what follows from them, and the
    new state of the record comes back through `update`.
    """

    def __init__(
        self,
        *,
        machine: Machine,
        provider: Provider,
        order: Callable[[], Order | None],
        check_interval: Callable[[], float],
        report: Callable[[str, MachineObservation | None], None],
        policy: PollPolicy,
        now: Callable[[], datetime],
    ) -> None:
        """`order`: None if the platform left the configuration. `report` gets None when time has passed."""
        self._machine: Machine | None = machine
        self._provider = provider
        self._order = order
        self._check_interval = check_interval
        self._report = report
        self._policy = policy
        self._now = now
        self._changed = asyncio.Event()
        self._ordered = False
        self._observed = False
        self._failures = 0

    def update(self, machine: Machine | None) -> None:
        """Set the state of the record; None if the machine is gone."""
        if machine != self._machine:
            self._machine = machine
            self._changed.set()

    async def run(self) -> None:
        """Work until the machine is gone."""
        while self._machine is not None:
            self._changed.clear()
            match self._machine.state:
                case "launching":
                    seconds = await self._launch(self._machine)
                case "terminating":
                    seconds = await self._terminate(self._machine)
                case "running":
                    await self._changed.wait()
                    continue
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                self._report(self._machine.name, None)

    async def _launch(self, machine: Machine) -> float:
        """Order the machine, or poll it if it is ordered. Returns the seconds until the next poll."""
        left = (machine.deadline - self._now()).total_seconds() + DEADLINE_MARGIN_SECONDS
        try:
            if not self._ordered:
                order = self._order()
                if order is None:
                    return (
                        left  # The platform is not configured any more: the machine will be ended.
                    )
                await call_provider(self._provider.launch(order), self._policy.call_seconds)
                self._ordered = True
            seconds = await self._poll(machine)
        except ProviderRefusedError as error:
            log.warning(
                "a provider refuses a request for a machine", machine=machine.name, error=str(error)
            )
            self._report(machine.name, LaunchRefused(reason=error.reason))
            seconds = left
        except ProviderBusyError as error:
            log.info("a provider is busy; trying again", machine=machine.name, error=str(error))
            seconds = self._retry_seconds()
        except ProviderError as error:
            log.warning("a provider failed; trying again", machine=machine.name, error=str(error))
            seconds = self._retry_seconds()
            if not self._ordered:
                self._failures += 1
            if self._failures >= LAUNCH_FAILURES_MAX:
                self._report(machine.name, LaunchRefused(reason=error.reason))
        return max(DEADLINE_MARGIN_SECONDS, min(seconds, left))

    def _retry_seconds(self) -> float:
        policy = self._policy
        return policy.poll_retry_seconds if self._ordered else policy.launch_retry_seconds

    async def _poll(self, machine: Machine) -> float:
        vm = await call_provider(self._provider.find(machine.name), self._policy.call_seconds)
        if vm is None or vm.state is VmState.GONE:
            if self._observed or vm is not None:
                self._report(machine.name, MachineGone())
            else:
                # Never listed: the order may be lost. Repeating it is safe, names are unique.
                self._ordered = False
            return self._check_interval()
        self._observed = True
        if vm.state is VmState.FAILED:
            self._report(machine.name, MachineBroken(reason="the provider reports it as failed"))
        elif vm.state is VmState.RUNNING and vm.address:
            self._report(machine.name, MachineUp(address=vm.address))
        return self._check_interval()

    async def _terminate(self, machine: Machine) -> float:
        seconds = self._policy.poll_retry_seconds
        try:
            await call_provider(self._provider.terminate(machine.name), self._policy.call_seconds)
            vm = await call_provider(self._provider.find(machine.name), self._policy.call_seconds)
        except ProviderError as error:
            # Also after a refusal: the record stays until the machine is proved gone.
            log.warning("a machine is not terminated yet", machine=machine.name, error=str(error))
            return seconds
        if vm is None or vm.state is VmState.GONE:
            self._report(machine.name, MachineGone())
            return seconds
        return min(self._check_interval(), seconds)


async def call_provider(call: Awaitable[T], seconds: float) -> T:
    """Await one call of a provider. Raises `ProviderError` for every failure, also after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except ProviderError:
        raise
    except TimeoutError as error:
        raise ProviderError("provider", "answer", "in time", f"{seconds:g} s passed") from error
    except Exception as error:  # One provider's defect must not stop the others.
        log.exception("a provider broke its promise")
        raise ProviderError("provider", "be called", "", repr(error)) from error
