"""One term of leadership: reads the bus, decides, publishes, and runs the controllers.

A round of one platform has five steps:

1. `allocate` computes the next ledger from the store and the reports of the controllers.
2. The ledger is published with the sequence that it must follow (the fence).
3. The states of TaskRuns that changed are published.
4. The controllers order and terminate machines, prepare and clean hosts.
5. Admission checks whose answer changed are published.

Because step 2 comes first, a crash at any point leaves a record that says how to go on, and two leaders
cannot both give the last slot away: the second one gets a `FencedError`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from services.provisioner import wire
from services.provisioner.allocation.allocate import allocate
from services.provisioner.allocation.ledger import (
    AllocationLedger,
    HostAccess,
    HostSlot,
    Machine,
    is_same_user,
)
from services.provisioner.allocation.results import AllocationOutcome
from services.provisioner.checks.publisher import CheckPublisher
from services.provisioner.config.host_config import Host, HostConfig, MachineSpec, machine_spec_of
from services.provisioner.config.systems import System
from services.provisioner.controllers import ControllerSet, Dependencies
from services.provisioner.hosts.maintenance import HostMaintenance
from services.provisioner.hosts.port import Hosts
from services.provisioner.keys.seal_key import why_refused
from services.provisioner.settings import ProvisionerSettings
from services.provisioner.store import Store
from services.provisioner.telemetry import Telemetry
from shared.bus.fencing import Fence, swept
from shared.bus.follow import follow, read
from shared.bus.port import Bus, Entry, FencedError
from shared.contracts import subjects
from shared.contracts.kube.kinds import ADMISSION_CHECK, CONFIG_MAP, PIPELINE_RUN, TASK_RUN
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.hosts import HostState, PlatformOffer, PlatformState, SealKey
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.seal import is_public_key
from shared.contracts.subjects import (
    Stream,
    observed_filter,
    subject_filter,
    subject_pattern,
    synced_filter,
)
from shared.telemetry import probes

log = structlog.get_logger(__name__)


class Term:
    """From getting the lease to losing it. Everything in it can be read again from the bus."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        bus: Bus,
        dependencies: Dependencies,
        now: Callable[[], datetime],
        last_good: HostConfig,
    ) -> None:
        """`last_good`: the host configuration of an earlier term of this process."""
        self._settings = settings
        self._cluster = settings.cluster
        self._bus = bus
        self._dependencies = dependencies
        self._now = now
        self._store = Store(
            cluster=settings.cluster,
            host_config=(settings.host_config_namespace, settings.host_config_name),
            providers=dependencies.registry.types,
            rules=dependencies.registry.rules,
            last_good=last_good,
        )
        self._telemetry = Telemetry(metrics=dependencies.metrics, tracing=dependencies.tracing)
        self._controllers = ControllerSet(
            settings=settings,
            dependencies=dependencies,
            now=now,
            resolve=self._store.resolve,
            is_user_shared=self._has_other_user,
            seal_key=lambda: self._store.seal_key,
            mark_dirty=self._mark_dirty,
        )
        self._fence = Fence(bus)
        self._checks = CheckPublisher(
            fence=self._fence,
            reservations=self._store.reservations,
            retry_seconds=settings.check_retry_seconds,
            now=now,
        )
        self._unread: set[str] = {Stream.HOSTS, Stream.OBSERVED, Stream.CHECKS}
        self._runs_needed = asyncio.Event()
        self._hosts_listed = asyncio.Event()
        self._hosts_read = asyncio.Event()
        self._writing: dict[str, int] = {}
        """Platforms whose record is being written, to the last sequence of it that was read meanwhile."""

        self._work_pending = asyncio.Event()

    @property
    def config(self) -> HostConfig:
        """The last valid host configuration."""
        return self._store.config

    def not_ready(self) -> str | None:
        """None once the term decides; before, what it waits for."""
        if self._unread:
            return f"reading {', '.join(sorted(self._unread))}"
        if not self._store.synced:
            return f"the watcher has not listed cluster {self._cluster} yet"
        return None

    async def run(self) -> None:
        """Work until cancelled. Raises `BusError` if the streams have to be read again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_hosts())
            group.create_task(self._read_fences())
            group.create_task(self._follow_observed())
            group.create_task(self._follow_admissions())
            group.create_task(self._follow_runs())
            group.create_task(self._follow_checks())
            group.create_task(self._decide(group))
            group.create_task(self._sweep())
            if self._dependencies.hosts is not None and self._settings.upkeep_seconds:
                group.create_task(self._maintenance(self._dependencies.hosts).run())

    # --- reading ---

    async def _follow_hosts(self) -> None:
        filters = [
            subject_pattern(kind, self._cluster) for kind in ("host", "platform", "offer", "seal")
        ]
        await follow(
            self._bus,
            {
                HostState: self._on_host_state,
                PlatformState: self._on_platform_state,
                PlatformOffer: self._on_offer,
                SealKey: self._on_seal_key,
            },
            filters=filters,
            on_caught_up=self._hosts_listed.set,
        )

    def _on_host_state(self, state: HostState, entry: Entry) -> None:
        self._store.apply_host_state(state, entry.sequence)
        self._work_pending.set()

    def _on_offer(self, offer: PlatformOffer, _: Entry) -> None:
        self._store.apply_offer(offer)
        self._work_pending.set()

    def _on_seal_key(self, key: SealKey, _: Entry) -> None:
        if is_public_key(key.public_key):
            self._store.seal_key = key.public_key
            return
        # The earlier one stays: nothing can be sealed to this, and hosts would never be ready.
        log.error("a key to seal to is refused", error=why_refused(key.public_key))

    def _on_platform_state(self, state: PlatformState, entry: Entry) -> None:
        """Apply a record while reading for the first time. Later it must be one of this term."""
        platform = state.platform
        if Stream.HOSTS in self._unread:
            self._store.apply_platform_state(state, entry.sequence)
        elif platform in self._writing:
            self._writing[platform] = max(self._writing[platform], entry.sequence)
        else:
            self._check_only_writer(platform, entry.sequence)

    def _check_only_writer(self, platform: str, sequence: int) -> None:
        record = self._store.records.get(platform)
        if record is None or sequence > record.sequence:
            probes.SLOT_FENCED.fired += 1
            raise FencedError(f"another replica has written the record of {platform}")

    async def _read_fences(self) -> None:
        """Read the last sequence of each record: the log may have dropped what the view still has."""
        while True:
            await self._hosts_listed.wait()
            self._hosts_listed.clear()
            for platform, record in list(self._store.records.items()):
                state = PlatformState(cluster=self._cluster, platform=platform, at=self._now())
                latest = await self._bus.latest(Stream.HOSTS, state.subject)
                recorded = read(latest, PlatformState)
                if latest is None:
                    record.sequence = 0
                elif recorded is not None:
                    self._store.fence_record(record, recorded, latest.sequence)
            self._hosts_read.set()
            self._caught_up(Stream.HOSTS)

    async def _follow_observed(self) -> None:
        # A record is written after its TaskRuns were observed. Read in the same order: a recorded
        # TaskRun that this reading does not find has ended.
        await self._hosts_read.wait()
        await follow(
            self._bus,
            {Observed: self._on_observed, Synced: self._on_synced},
            filters=[
                observed_filter(TASK_RUN, self._cluster),
                observed_filter(CONFIG_MAP, self._cluster),
                observed_filter(ADMISSION_CHECK, self._cluster),
                synced_filter(self._cluster),
            ],
            on_caught_up=self._on_observed_read,
        )

    def _on_observed_read(self) -> None:
        self._read_runs_if_needed()
        self._caught_up(Stream.OBSERVED)

    def _on_observed(self, observed: Observed, _: Entry) -> None:
        self._store.apply_observed(observed)
        self._read_runs_if_needed()
        self._work_pending.set()

    def _read_runs_if_needed(self) -> None:
        """Read runs and decisions of quota once something asks for hosts: they cost nothing elsewhere."""
        if self._store.needs_runs and not self._runs_needed.is_set():
            self._unread |= {Stream.ADMISSIONS, "PipelineRuns"}
            self._runs_needed.set()

    def _on_synced(self, _synced: Synced, _: Entry) -> None:
        self._store.synced = True
        self._work_pending.set()

    async def _follow_admissions(self) -> None:
        # After the records, as above: a slot is reserved after its admission was read.
        await self._hosts_read.wait()
        await self._runs_needed.wait()
        await follow(
            self._bus,
            {Admission: self._on_admission},
            filters=[subject_filter("admission", self._cluster)],
            on_caught_up=lambda: self._caught_up(Stream.ADMISSIONS),
        )

    async def _follow_runs(self) -> None:
        await self._runs_needed.wait()
        await follow(
            self._bus,
            {Observed: self._on_observed},
            filters=[observed_filter(PIPELINE_RUN, self._cluster)],
            on_caught_up=lambda: self._caught_up("PipelineRuns"),
        )

    def _on_admission(self, admission: Admission, _: Entry) -> None:
        self._store.apply_admission(admission)
        self._work_pending.set()

    async def _follow_checks(self) -> None:
        await self._hosts_read.wait()
        await follow(
            self._bus,
            {CheckState: self._on_check_state},
            filters=subjects.check_filters(self._cluster, "provisioner"),
            on_caught_up=lambda: self._caught_up(Stream.CHECKS),
            on_read_up_to=self._fence.mark_read,
        )

    def _on_check_state(self, state: CheckState, entry: Entry) -> None:
        self._store.reservations.apply_check_state(state, entry.sequence)
        self._work_pending.set()

    def _caught_up(self, stream: str) -> None:
        self._unread.discard(stream)
        self._work_pending.set()

    def _mark_dirty(self, platform: str) -> None:
        self._store.mark_dirty(platform)
        self._work_pending.set()

    # --- deciding ---

    async def _decide(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._work_pending.wait()
            self._work_pending.clear()
            if self.not_ready() is not None:
                continue
            await self._publish_offer()
            for platform in self._store.pop_dirty():
                await self._decide_platform(group, platform)
            await self._checks.publish_changed(self._store.config)

    async def _publish_offer(self) -> None:
        offer = self._store.changed_offer(self._now())
        if offer is not None:
            await self._bus.publish(offer)
            self._store.offer = offer

    async def _decide_platform(self, group: asyncio.TaskGroup, platform: str) -> None:
        before = self._store.ledger(platform)
        reserved = self._store.reservations.requests(platform, before)
        now = self._now()
        refused, limits = self._store.host_limits(
            platform,
            most=self._settings.direct_task_runs_max,
            refused=self._settings.task_runs_need_admitted_run,
            now=now,
        )
        requests = [
            replace(request, existing_only=True) if request.uid in refused else request
            for request in self._store.requests(platform)
        ]
        requests += reserved
        outcome = allocate(
            ledger=before,
            config=self._store.resolve(platform),
            requests=requests,
            settled=self._store.settled(requests),
            observations=self._controllers.pop_observations(platform),
            used_by_other_platforms=self._store.used_by_other_platforms(platform),
            now=now,
            reports=self._controllers.pop_reports(platform),
            access=self._access,
            limits=limits,
        )
        outcome = replace(
            outcome,
            ledger=self._store.with_returned(platform, outcome.ledger),
            results={**outcome.results, **refused},
        )
        if outcome.ledger is not before:
            await self._write(outcome.ledger, now=now)
        ended = [one.state for one in self._store.ended_but_unreleased(platform)]
        self._telemetry.ledger_changed(platform, outcome.events, [*ended, *requests])
        released = self._released_states(platform, outcome.ledger, now=now)
        changed = self._changed_states(platform, outcome, now=now)
        await self._publish([*released, *changed])
        self._telemetry.round_ended(
            platform, outcome, self._store.requests(platform), self._store.config
        )
        self._store.reservations.apply_results(reserved, outcome.results)
        self._controllers.reconcile(group, before, outcome.ledger)

    def _access(self, source: Host | MachineSpec) -> HostAccess | None:
        """How to log in to a host or machine; None if this installation enters no hosts."""
        if self._dependencies.hosts is None:
            return None
        match source:
            case Host():
                return HostAccess(
                    user=source.user or "root",
                    port=source.port,
                    secret=source.secret,
                    host_keys=source.host_keys,
                )
            case MachineSpec(ssh_secret=secret) if secret:
                windows = source.system is System.WINDOWS
                user = self._dependencies.registry.ssh_user(source.provider)
                return HostAccess(
                    user="Administrator" if windows else user,
                    secret=secret,
                    sudo_commands=source.sudo_commands,
                )
            case _:
                return None  # Only a machine of the fake provider has no secret.

    async def _write(self, ledger: AllocationLedger, *, now: datetime) -> None:
        record = self._store.records.get(ledger.platform)
        expected = record.sequence if record is not None else 0
        self._writing[ledger.platform] = 0
        sequence = await self._bus.publish(
            wire.to_platform_state(ledger, now=now), expect_subject=expected
        )
        self._store.store_record(ledger, sequence)
        self._check_only_writer(ledger.platform, self._writing.pop(ledger.platform))

    def _changed_states(
        self, platform: str, outcome: AllocationOutcome, *, now: datetime
    ) -> list[HostState]:
        """The states of TaskRuns that differ from the published ones."""
        spec = machine_spec_of(self._store.resolve(platform))
        states = []
        for request in self._store.requests(platform):
            result = outcome.results.get(request.uid)
            if result is None:
                continue
            state = wire.to_host_state(
                request,
                result,
                cluster=self._cluster,
                provider=spec.provider if spec else "",
                failed_hosts=tuple(outcome.ledger.failed_hosts.get(request.uid, ())),
                ordered_at=wire.ordered_at(outcome.ledger, result),
                now=now,
            )
            known = self._store.published(request.ref)
            if known is None or wire.visible(known.state) != wire.visible(state):
                states.append(state)
                if known is None or known.state.state != state.state:
                    self._telemetry.state_published(
                        request, result, state, self._store.config, now=now
                    )
        return states

    def _released_states(
        self, platform: str, ledger: AllocationLedger, *, now: datetime
    ) -> list[HostState]:
        """The states of TaskRuns that ended and hold nothing: a machine must be gone, not only ended."""
        ended = self._store.ended_without_host(platform, ledger)
        for state in ended:
            self._telemetry.host_released(state, self._store.config, now=now)
        return [
            wire.to_released(state, returned=state.uid in ledger.returned, now=now)
            for state in ended
        ]

    async def _publish(self, states: Sequence[HostState]) -> None:
        futures = [self._bus.publish(state) for state in states]
        results = await asyncio.gather(*futures, return_exceptions=True)
        for state, result in zip(states, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            self._store.store_published(state, result)

    # --- maintenance ---

    def _maintenance(self, hosts: Hosts) -> HostMaintenance:
        return HostMaintenance(
            hosts=hosts,
            listed=lambda: list(self._store.config.hosts.values()),
            access=self._access,
            users_on=self._users_on,
            metrics=self._dependencies.metrics,
            every_seconds=self._settings.upkeep_seconds,
            call_seconds=self._settings.upkeep_call_seconds,
            update=self._settings.upkeep_update,
        )

    def _users_on(self, host: str) -> list[str]:
        records = self._store.records.values()
        slots = [slot for record in records for slot in record.ledger.slots.values()]
        address = self._store.config.hosts[host].address if host in self._store.config.hosts else ""
        return sorted({slot.user for slot in slots if slot.host == host or slot.address == address})

    def _has_other_user(self, slot: HostSlot) -> bool:
        """Whether another slot, also of another platform, has the user of `slot` on its host."""
        records = self._store.records.values()
        return any(
            other.uid != slot.uid and other.state != "cleaning" and is_same_user(slot, other)
            for record in records
            for other in record.ledger.slots.values()
        )

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            if self.not_ready() is not None:
                continue
            self._open_accounts()
            await self._controllers.sweep(self._machines)
            await self._sweep_views()
            # Machines of a pool expire without any message.
            self._store.mark_all_dirty()
            self._work_pending.set()

    def _open_accounts(self) -> None:
        """Open every configured account, so that accounts without recorded machines are swept too."""
        for config in self._store.config.platforms.values():
            spec = machine_spec_of(config)
            if spec is not None:
                self._dependencies.registry.get(spec.account)

    def _machines(self) -> dict[str, tuple[str, Machine]]:
        return {
            name: (platform, machine)
            for platform, record in self._store.records.items()
            for name, machine in record.ledger.machines.items()
        }

    async def _sweep_views(self) -> None:
        """Delete the states and check answers of what no longer exists from the views."""
        before = self._now() - timedelta(seconds=self._settings.forget_seconds)
        hosts = self._store.expired(before)
        for subject in await swept(self._bus, Stream.HOSTS, hosts):
            self._store.drop(hosts[subject])
        checks = self._store.reservations.expired(before)
        for subject in await swept(self._bus, Stream.CHECKS, checks):
            self._fence.mark_read(checks[subject].sequence)
            self._store.reservations.drop(checks[subject])
