"""A fake cloud in memory. Its machines need time to boot, and fail on request.

For demonstrations, simulations and tests. Its machines have no SSH server and no key.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from services.provisioner.providers.port import Order, ProviderError, Vm, VmState

Action = Literal["launch", "find", "list", "terminate"]

ADDRESSES: Final = 254
"""Addresses are in 198.18.0.0/15, which RFC 2544 reserves for tests."""


@dataclass(slots=True, kw_only=True)
class FakeMachine:
    """One machine of the fake cloud."""

    order: Order
    launched_at: datetime
    reachable_at: datetime
    address: str
    breaks: bool = False
    """True if it never runs."""

    gone_at: datetime | None = None
    """When its termination is complete; None if it is not terminated."""


@dataclass(slots=True, kw_only=True)
class FakeCloud:
    """The machines. They outlive the clients, and a crash of the provisioner."""

    now: Callable[[], datetime]
    seed: int = 0
    call_seconds: float = 0.05
    """Duration of every call."""

    boot_seconds: float = 2.0
    """From the order to an address: half to one and a half of this, by name and seed."""

    terminate_seconds: float = 0.5
    broken_rate: float = 0.0
    """Share of machines that never run."""

    machines: dict[str, FakeMachine] = field(default_factory=dict)
    """By name, terminated ones included: a name is never used twice."""

    _failures: dict[Action, deque[tuple[ProviderError, bool]]] = field(default_factory=dict)

    def fail_next(self, action: Action, error: ProviderError, *, after: bool = False) -> None:
        """Let the next call of `action` raise `error`; with `after`, once it had its effect."""
        self._failures.setdefault(action, deque()).append((error, after))

    def pop_failure(self, action: Action) -> tuple[ProviderError, bool] | None:
        """The next requested failure of `action`, if there is one."""
        failures = self._failures.get(action)
        return failures.popleft() if failures else None

    def launch(self, order: Order) -> None:
        """Make the machine, unless one of that name exists or existed."""
        if order.name in self.machines:
            return
        # Seeded by name and not by order of calls: a machine boots alike in every schedule.
        dice = random.Random(f"{self.seed}:{order.name}")
        now = self.now()
        boot_seconds = self.boot_seconds * dice.uniform(0.5, 1.5)
        number = len(self.machines)
        self.machines[order.name] = FakeMachine(
            order=order,
            launched_at=now,
            reachable_at=now + timedelta(seconds=boot_seconds),
            address=f"198.18.{number // ADDRESSES % ADDRESSES}.{number % ADDRESSES + 1}",
            breaks=dice.random() < self.broken_rate,
        )

    def describe(self, name: str) -> Vm | None:
        """The machine as it is now; None if it never existed."""
        machine = self.machines.get(name)
        if machine is None:
            return None
        now = self.now()
        state, address = VmState.STARTING, ""
        if machine.gone_at is not None and now >= machine.gone_at:
            state = VmState.GONE
        elif now >= machine.reachable_at:
            state = VmState.FAILED if machine.breaks else VmState.RUNNING
            address = "" if machine.breaks else machine.address
        return Vm(name=name, state=state, address=address, launched_at=machine.launched_at)

    def alive(self, owner: str) -> list[Vm]:
        """All machines of `owner` that are not terminated."""
        names = sorted(name for name, m in self.machines.items() if m.order.owner == owner)
        found = [self.describe(name) for name in names]
        return [vm for vm in found if vm is not None and vm.state is not VmState.GONE]

    def lose(self, name: str) -> None:
        """Let a machine vanish."""
        self.machines[name].gone_at = self.now()

    def terminate(self, name: str) -> None:
        """Start terminating a machine."""
        machine = self.machines.get(name)
        if machine is not None and machine.gone_at is None:
            machine.gone_at = self.now() + timedelta(seconds=self.terminate_seconds)


class FakeProvider:
    """A client of the fake cloud."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    async def launch(self, order: Order) -> None:
        """Order a machine."""
        failure = await self._call("launch")
        self._cloud.launch(order)
        if failure is not None:
            raise failure

    async def find(self, name: str) -> Vm | None:
        """Describe one machine."""
        failure = await self._call("find")
        if failure is not None:
            raise failure
        return self._cloud.describe(name)

    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """List the machines of `owner`."""
        failure = await self._call("list")
        if failure is not None:
            raise failure
        return self._cloud.alive(owner)

    async def terminate(self, name: str) -> None:
        """Terminate one machine."""
        failure = await self._call("terminate")
        self._cloud.terminate(name)
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Does nothing: there is no connection."""

    async def _call(self, action: Action) -> ProviderError | None:
        """Wait for the duration of a call. Returns the error to raise after its effect."""
        await asyncio.sleep(self._cloud.call_seconds)
        failure = self._cloud.pop_failure(action)
        if failure is None:
            return None
        error, after = failure
        if not after:
            raise error
        return error
