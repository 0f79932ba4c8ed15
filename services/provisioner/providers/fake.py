"""A provider without a cloud: machines that exist in memory, take their time, and fail when told to.

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

__all__ = ["Action", "FakeCloud", "FakeMachine", "FakeProvider"]

Action = Literal["launch", "find", "list", "terminate"]

ADDRESSES: Final = 254
"""Addresses are of 198.18.0.0/15, which is reserved for tests of this kind."""


@dataclass(slots=True, kw_only=True)
class FakeMachine:
    """One machine of the fake cloud."""

    order: Order
    launched_at: datetime
    reachable_at: datetime
    address: str
    breaks: bool = False
    """It will never come up."""

    gone_at: datetime | None = None
    """When its end is complete; None: nobody asked for it."""


@dataclass(slots=True, kw_only=True)
class FakeCloud:
    """What outlives a provider's client: the machines. A crash of the provisioner spares it."""

    now: Callable[[], datetime]
    seed: int = 0
    call_seconds: float = 0.05
    """How long every call takes."""

    boot_seconds: float = 2.0
    """From the order to an address: half of this up to one and a half of it, by name and seed."""

    terminate_seconds: float = 0.5
    broken_rate: float = 0.0
    """Share of machines that never come up."""

    machines: dict[str, FakeMachine] = field(default_factory=dict)
    """By name, gone ones included: a name is never used twice."""

    _failures: dict[Action, deque[tuple[ProviderError, bool]]] = field(default_factory=dict)

    def fail_next(self, action: Action, error: ProviderError, *, after: bool = False) -> None:
        """Let the next call of `action` raise `error`; `after`: only when it has had its effect."""
        self._failures.setdefault(action, deque()).append((error, after))

    def take_failure(self, action: Action) -> tuple[ProviderError, bool] | None:
        """The failure that was asked for, once."""
        failures = self._failures.get(action)
        return failures.popleft() if failures else None

    def launch(self, order: Order) -> None:
        """Make the machine, unless that name is or was there."""
        if order.name in self.machines:
            return
        # By name, not by order of calls: the same machine boots alike in every schedule.
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

    def look(self, name: str) -> Vm | None:
        """The machine as it is at this moment; None once it is gone for good."""
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
        """Every machine of `owner` that costs something."""
        names = sorted(name for name, m in self.machines.items() if m.order.owner == owner)
        seen = [self.look(name) for name in names]
        return [vm for vm in seen if vm is not None and vm.state is not VmState.GONE]

    def lose(self, name: str) -> None:
        """Let a machine vanish, as clouds do."""
        self.machines[name].gone_at = self.now()

    def terminate(self, name: str) -> None:
        """Begin its end."""
        machine = self.machines.get(name)
        if machine is not None and machine.gone_at is None:
            machine.gone_at = self.now() + timedelta(seconds=self.terminate_seconds)


class FakeProvider:
    """A client of the fake cloud; it keeps every promise of the port."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    async def launch(self, order: Order) -> None:
        """Order a machine."""
        failure = await self._call("launch")
        self._cloud.launch(order)
        if failure is not None:
            raise failure

    async def find(self, name: str) -> Vm | None:
        """Look at one machine."""
        failure = await self._call("find")
        if failure is not None:
            raise failure
        return self._cloud.look(name)

    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """Look at all that are not gone."""
        failure = await self._call("list")
        if failure is not None:
            raise failure
        return self._cloud.alive(owner)

    async def terminate(self, name: str) -> None:
        """End one."""
        failure = await self._call("terminate")
        self._cloud.terminate(name)
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """There is no connection."""

    async def _call(self, action: Action) -> ProviderError | None:
        """Take the time of a call; return the error that is to come after its effect."""
        await asyncio.sleep(self._cloud.call_seconds)
        failure = self._cloud.take_failure(action)
        if failure is None:
            return None
        error, after = failure
        if not after:
            raise error
        return error
