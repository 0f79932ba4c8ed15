"""Runs a controller for each machine and each slot of the ledgers, and sweeps the providers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from services.provisioner.allocation.ledger import AllocationLedger, HostSlot, Machine
from services.provisioner.allocation.results import (
    HostCleaned,
    HostReport,
    HostUnusable,
    MachineGone,
    MachineObservation,
)
from services.provisioner.config.host_config import (
    CHECK_INTERVAL_SECONDS,
    PlatformConfig,
    machine_spec_of,
)
from services.provisioner.hosts.access import HostAccessController, KeyDelivery, RetryPolicy
from services.provisioner.hosts.port import Hosts
from services.provisioner.machines.controller import MachineController, PollPolicy, call_provider
from services.provisioner.machines.orders import to_order
from services.provisioner.machines.sweeper import sweep
from services.provisioner.metrics import Metrics
from services.provisioner.providers.port import Order, Provider, ProviderError
from services.provisioner.providers.registry import Registry, UnknownProviderError
from services.provisioner.settings import ProvisionerSettings
from shared.contracts.seal import Entropy
from shared.telemetry.tracing import NO_TRACING, Tracing

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What outlives a term: clouds, hosts, key delivery, telemetry."""

    registry: Registry
    hosts: Hosts | None
    """None: hosts are not entered, and their slots are ready at once."""

    keys: KeyDelivery
    entropy: Entropy
    metrics: Metrics
    tracing: Tracing = NO_TRACING


class ControllerSet:
    """The controllers of one term. After a crash all of them are started again from the ledgers."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        dependencies: Dependencies,
        now: Callable[[], datetime],
        resolve: Callable[[str], PlatformConfig | str],
        is_user_shared: Callable[[HostSlot], bool],
        seal_key: Callable[[], str | None],
        mark_dirty: Callable[[str], None],
    ) -> None:
        """`resolve`: the configuration of a platform. `mark_dirty`: asks for a round of a platform.

        `is_user_shared`: whether another slot has the user of a slot.
        """
        self._cluster = settings.cluster
        self._dependencies = dependencies
        self._now = now
        self._resolve = resolve
        self._is_user_shared = is_user_shared
        self._seal_key = seal_key
        self._mark_dirty = mark_dirty
        self._machine_controllers: dict[str, MachineController] = {}
        self._host_controllers: dict[str, HostAccessController] = {}
        self._observations: dict[str, dict[str, MachineObservation]] = {}
        """By platform and machine, since the last round."""

        self._reports: dict[str, dict[str, HostReport]] = {}
        """By platform and slot uid, since the last round."""

        self._poll_policy = PollPolicy(
            call_seconds=settings.provider_call_seconds,
            launch_retry_seconds=settings.launch_retry_seconds,
            poll_retry_seconds=settings.poll_retry_seconds,
        )
        self._retry_policy = RetryPolicy(
            call_seconds=settings.host_call_seconds,
            retry_seconds=settings.host_retry_seconds,
            prepare_timeout_seconds=settings.host_patience_seconds,
            clean_timeout_seconds=settings.clean_patience_seconds,
            key_life_seconds=settings.key_seconds,
        )

    def pop_observations(self, platform: str) -> dict[str, MachineObservation]:
        """What providers reported since the last round, by machine."""
        return self._observations.pop(platform, {})

    def pop_reports(self, platform: str) -> dict[str, HostReport]:
        """What was done on hosts since the last round, by slot uid."""
        return self._reports.pop(platform, {})

    def reconcile(
        self, group: asyncio.TaskGroup, before: AllocationLedger, after: AllocationLedger
    ) -> None:
        """Stop the controllers of what left the ledger, and update or start the others in `group`."""
        for name in before.machines.keys() - after.machines.keys():
            if name in self._machine_controllers:
                self._machine_controllers[name].update(None)
        for uid in before.slots.keys() - after.slots.keys():
            if uid in self._host_controllers:
                self._host_controllers.pop(uid).update(None)
        for name, machine in after.machines.items():
            if name in self._machine_controllers:
                self._machine_controllers[name].update(machine)
            else:
                self._start_machine_controller(group, after.platform, machine)
        for uid, slot in after.slots.items():
            if uid in self._host_controllers:
                self._host_controllers[uid].update(slot)
            else:
                # The visits of an earlier term are unknown. A slot of this round had none.
                fresh = uid not in before.slots
                self._start_host_controller(group, after.platform, slot, fresh=fresh)

    # --- machines ---

    def _start_machine_controller(
        self, group: asyncio.TaskGroup, platform: str, machine: Machine
    ) -> None:
        try:
            provider = self._dependencies.registry.get(machine.provider)
        except UnknownProviderError as error:
            log.error("no provider for a machine", machine=machine.name, error=str(error))
            return
        controller = MachineController(
            machine=machine,
            provider=provider,
            order=lambda: self._order(platform, machine),
            check_interval=lambda: self._check_interval(platform),
            report=lambda name, observation: self._report_machine(platform, name, observation),
            policy=self._poll_policy,
            now=self._now,
        )
        self._machine_controllers[machine.name] = controller
        group.create_task(self._run_machine_controller(machine.name, controller))

    async def _run_machine_controller(self, name: str, controller: MachineController) -> None:
        await controller.run()
        del self._machine_controllers[name]

    def _report_machine(
        self, platform: str, name: str, observation: MachineObservation | None
    ) -> None:
        if observation is not None:
            self._observations.setdefault(platform, {})[name] = observation
        self._mark_dirty(platform)

    def _order(self, platform: str, machine: Machine) -> Order | None:
        spec = machine_spec_of(self._resolve(platform))
        if spec is None or spec.account != machine.provider:
            return None
        return to_order(machine, spec, platform=platform, cluster=self._cluster)

    def _check_interval(self, platform: str) -> float:
        spec = machine_spec_of(self._resolve(platform))
        return spec.check_interval_seconds if spec else CHECK_INTERVAL_SECONDS

    # --- hosts ---

    def _start_host_controller(
        self, group: asyncio.TaskGroup, platform: str, slot: HostSlot, *, fresh: bool
    ) -> None:
        if slot.access is None or slot.state in {"held", "ready"}:
            return
        if self._dependencies.hosts is None:
            log.error("this installation cannot enter hosts any more", host=slot.host)
            return
        controller = HostAccessController(
            cluster=self._cluster,
            platform=platform,
            slot=slot,
            hosts=self._dependencies.hosts,
            keys=self._dependencies.keys,
            entered=not fresh or slot.state == "cleaning",
            is_user_shared=self._is_user_shared,
            seal_key=self._seal_key,
            report=lambda uid, report: self._report_host(platform, uid, report),
            policy=self._retry_policy,
            now=self._now,
            entropy=self._dependencies.entropy,
        )
        self._host_controllers[slot.uid] = controller
        group.create_task(controller.run())

    def _report_host(self, platform: str, uid: str, report: HostReport) -> None:
        match report:
            case HostUnusable():
                self._dependencies.metrics.provisioning_failed(platform)
            case HostCleaned(given_up=True):
                self._dependencies.metrics.cleanup_failed(platform)
            case _:
                pass
        self._reports.setdefault(platform, {})[uid] = report
        self._mark_dirty(platform)

    # --- sweeping ---

    async def sweep(self, machines: Callable[[], dict[str, tuple[str, Machine]]]) -> None:
        """Compare every account with the records. `machines`: platform and record by name."""
        for account, provider in self._dependencies.registry.all():
            try:
                await self._sweep_account(account, provider, machines)
            except ProviderError as error:
                log.warning(
                    "cannot list the machines of a provider", provider=account, error=str(error)
                )

    async def _sweep_account(
        self,
        account: str,
        provider: Provider,
        machines: Callable[[], dict[str, tuple[str, Machine]]],
    ) -> None:
        call_seconds = self._poll_policy.call_seconds
        running = frozenset(
            name
            for name, (_, machine) in machines().items()
            if machine.provider == account and machine.state == "running"
        )
        listed = await call_provider(provider.list_owned(self._cluster), call_seconds)
        recorded = machines()
        found = sweep(
            listed=listed,
            running_before=running,
            records={name: machine for name, (_, machine) in recorded.items()},
        )
        for name in found.vanished:
            log.warning("a machine vanished", provider=account, machine=name)
            self._dependencies.metrics.swept("vanished")
            self._report_machine(recorded[name][0], name, MachineGone())
        for name in found.orphans:
            log.warning("machine without a record ends", provider=account, machine=name)
            self._dependencies.metrics.swept("no record")
            await call_provider(provider.terminate(name), call_seconds)
