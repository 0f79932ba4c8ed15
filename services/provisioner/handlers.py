"""What the provisioner does while it is the one: reads, decides, writes, and looks after machines.

A platform's record is written, with the sequence that it must follow, before anything that follows
from it: before TaskRuns are told and before a provider is called. So a crash anywhere leaves a
record that says what to go on with, and two provisioners cannot both give the last place away.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

import structlog

from services.provisioner import translate
from services.provisioner.allocation import (
    Gone,
    Launch,
    Outcome,
    Release,
    Sighting,
    Terminate,
    allocate,
)
from services.provisioner.book import Book, Machine
from services.provisioner.host_config import (
    CHECK_INTERVAL_SECONDS,
    DynamicPlatform,
    HostConfig,
    MachineSpec,
    PoolPlatform,
)
from services.provisioner.knowledge import Knowledge
from services.provisioner.providers.port import Order, Provider, ProviderError
from services.provisioner.providers.registry import Registry, UnknownProviderError
from services.provisioner.settings import ProvisionerSettings
from services.provisioner.sweeper import sweep
from services.provisioner.tender import Pace, Tender, ask
from shared.bus.port import Bus, CaughtUp, Entry, FencedError, PublishFuture
from shared.contracts import subjects
from shared.contracts.effects import HostState, PlatformState
from shared.contracts.kinds import CONFIG_MAP, TASK_RUN
from shared.contracts.observed import observed_filter

__all__ = ["Session"]

log = structlog.get_logger(__name__)


class Session:
    """From taking the lease to losing it. Nothing of it is worth keeping."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        bus: Bus,
        registry: Registry,
        now: Callable[[], datetime],
        last_good: HostConfig,
    ) -> None:
        self._settings = settings
        self._cluster = settings.cluster
        self._bus = bus
        self._registry = registry
        self._now = now
        self._knowledge = Knowledge(
            cluster=settings.cluster,
            host_config=(settings.host_config_namespace, settings.host_config_name),
            providers=registry.types,
            last_good=last_good,
        )
        self._sightings: dict[str, dict[str, Sighting]] = {}
        """By platform and machine; taken in by the next round."""

        self._tenders: dict[str, Tender] = {}
        self._unread = {"HOSTS", "OBSERVED"}
        self._hosts_read = asyncio.Event()
        self._writing: dict[str, int] = {}
        """Platforms whose record is on its way, to the last sequence of it that came by meanwhile."""

        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._pace = Pace(
            call=settings.provider_call_seconds,
            launch_retry=settings.launch_retry_seconds,
            poll_retry=settings.poll_retry_seconds,
        )

    @property
    def config(self) -> HostConfig:
        """The host configuration as far as it was ever good."""
        return self._knowledge.config

    def not_ready(self) -> str | None:
        """None once it decides, else what it waits for."""
        if self._unread:
            return f"reading {', '.join(sorted(self._unread))}"
        if not self._knowledge.synced:
            return f"nobody has listed cluster {self._cluster} yet"
        return None

    async def run(self) -> None:
        """Work until cancelled. Raises `BusError` where the views have to be read again."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._follow_hosts())
            group.create_task(self._follow_observed())
            group.create_task(self._decide())
            group.create_task(self._sweep())

    # --- reading ---

    async def _follow_hosts(self) -> None:
        token = subjects.encode(self._cluster)
        filters = [f"{subjects.ROOT}.{what}.{token}.*.*" for what in ("host", "platform")]
        async with aclosing(self._bus.watch("HOSTS", *filters)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    await self._read_fences()
                    self._caught_up("HOSTS")
                elif "HOSTS" in self._unread:
                    self._knowledge.take_hosts(entry)
                else:
                    self._take_later(entry)
                    self._wake.set()

    def _take_later(self, entry: Entry) -> None:
        """Our own words come back; a record that is not ours may name TaskRuns not observed yet."""
        record = self._knowledge.record_in(entry)
        if record is None:
            self._knowledge.take_hosts(entry)
        elif record in self._writing:
            self._writing[record] = max(self._writing[record], entry.sequence)
        else:
            self._check_sole_writer(record, entry.sequence)

    def _check_sole_writer(self, platform: str, sequence: int) -> None:
        shelf = self._knowledge.shelves.get(platform)
        if shelf is None or sequence > shelf.sequence:
            raise FencedError(f"somebody else has written the record of {platform}")

    async def _read_fences(self) -> None:
        """Where a record stands in the log: the log may have dropped what the view still has."""
        for platform, shelf in list(self._knowledge.shelves.items()):
            subject = PlatformState(
                cluster=self._cluster, platform=platform, at=self._now()
            ).subject
            latest = await self._bus.latest("HOSTS", subject)
            if latest is None:
                shelf.sequence = 0
            else:
                self._knowledge.take_hosts(latest)

    async def _follow_observed(self) -> None:
        filters = (
            observed_filter(TASK_RUN, self._cluster),
            observed_filter(CONFIG_MAP, self._cluster),
            subjects.join("observed", self._cluster, None, None, detail="synced"),
        )
        # Only now: every TaskRun that a record names was observed before that record was written,
        # so who is missing after this reading has ended.
        await self._hosts_read.wait()
        async with aclosing(self._bus.watch("OBSERVED", *filters)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    self._caught_up("OBSERVED")
                else:
                    self._knowledge.take_observed(entry)
                    self._wake.set()

    def _caught_up(self, stream: str) -> None:
        self._unread.discard(stream)
        if stream == "HOSTS":
            self._hosts_read.set()
        self._wake.set()

    # --- deciding ---

    async def _decide(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.not_ready() is not None:
                continue
            for platform in self._knowledge.take_dirty():
                await self._decide_platform(platform)

    async def _decide_platform(self, platform: str) -> None:
        requests = self._knowledge.requests(platform)
        before = self._knowledge.book(platform)
        now = self._now()
        outcome = allocate(
            book=before,
            config=self._knowledge.resolve(platform),
            requests=requests,
            settled=self._knowledge.settled(requests),
            sightings=self._sightings.pop(platform, {}),
            busy_elsewhere=self._knowledge.busy_elsewhere(platform),
            now=now,
        )
        if outcome.book is not before:
            await self._write(outcome.book, now=now)
        self._log(platform, outcome)
        await self._publish(
            [
                *self._released(platform, outcome.book, now=now),
                *self._told(platform, outcome, now=now),
            ]
        )
        self._look_after(platform)

    async def _write(self, book: Book, *, now: datetime) -> None:
        shelf = self._knowledge.shelves.get(book.platform)
        state = translate.to_platform_state(book, now=now)
        expected = shelf.sequence if shelf is not None else 0
        self._writing[book.platform] = 0
        sequence = await self._bus.publish(state, expect_subject=expected)
        self._knowledge.keep(book, sequence)
        self._check_sole_writer(book.platform, self._writing.pop(book.platform))

    def _told(self, platform: str, outcome: Outcome, *, now: datetime) -> list[HostState]:
        """What has to be said: the verdicts that differ from the last word."""
        spec = self._spec(platform)
        states = []
        for request in self._knowledge.requests(platform):
            verdict = outcome.verdicts.get(request.uid)
            if verdict is None:
                continue
            state = translate.to_host_state(
                request,
                verdict,
                cluster=self._cluster,
                provider=spec.provider if spec else "",
                now=now,
            )
            said = self._knowledge.said.get((request.namespace, request.name))
            if said is None or _words(said.state) != _words(state):
                states.append(state)
        return states

    def _released(self, platform: str, book: Book, *, now: datetime) -> list[HostState]:
        """Who ended and holds nothing any more. A machine must be gone, not only told to go."""
        holding = {*book.seats, *(m.holder for m in book.machines.values() if not m.shared)}
        return [
            translate.to_released(said.state, now=now)
            for said in self._knowledge.ended_but_unreleased(platform)
            if said.state.uid not in holding
        ]

    async def _publish(self, states: Sequence[HostState]) -> None:
        futures: list[tuple[HostState, PublishFuture]] = [
            (state, self._bus.publish(state)) for state in states
        ]
        results = await asyncio.gather(*(future for _, future in futures), return_exceptions=True)
        for state, result in zip(states, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            self._knowledge.remember(state, result)

    def _log(self, platform: str, outcome: Outcome) -> None:
        for step in outcome.steps:
            match step:
                case Launch(machine=machine):
                    log.info(
                        "machine ordered",
                        platform=platform,
                        machine=machine.name,
                        task_run=machine.task_run,
                    )
                case Terminate(name=name, reason=reason):
                    log.info("machine ends", platform=platform, machine=name, because=reason)
                case Release(uid=uid, host=host):
                    log.info("place released", platform=platform, host=host, uid=uid)

    # --- machines ---

    def _look_after(self, platform: str) -> None:
        """One tender for each machine in the record, told what the record says."""
        machines = self._knowledge.book(platform).machines
        for machine in machines.values():
            tender = self._tenders.get(machine.name)
            if tender is None:
                self._start_tender(platform, machine)
            else:
                tender.update(machine)

    def _start_tender(self, platform: str, machine: Machine) -> None:
        try:
            provider = self._registry.get(machine.provider)
        except UnknownProviderError as error:
            log.error("nobody can look after a machine", machine=machine.name, error=str(error))
            return
        tender = Tender(
            machine=machine,
            provider=provider,
            order=lambda: self._order(platform, machine),
            check_interval=lambda: self._check_interval(platform),
            report=lambda name, sighting: self._report(platform, name, sighting),
            pace=self._pace,
            now=self._now,
        )
        self._tenders[machine.name] = tender
        assert self._group is not None, "tenders start inside of run()"
        self._group.create_task(self._tend(machine.name, tender))

    async def _tend(self, name: str, tender: Tender) -> None:
        await tender.run()
        del self._tenders[name]

    def _report(self, platform: str, name: str, sighting: Sighting | None) -> None:
        if sighting is not None:
            self._sightings.setdefault(platform, {})[name] = sighting
        self._knowledge.touch(platform)
        self._wake.set()

    def _order(self, platform: str, machine: Machine) -> Order | None:
        spec = self._spec(platform)
        if spec is None or spec.provider != machine.provider:
            return None
        return translate.to_order(machine, spec, platform=platform, cluster=self._cluster)

    def _check_interval(self, platform: str) -> float:
        spec = self._spec(platform)
        return spec.check_interval_seconds if spec else CHECK_INTERVAL_SECONDS

    def _spec(self, platform: str) -> MachineSpec | None:
        match self._knowledge.resolve(platform):
            case DynamicPlatform(machines=spec) | PoolPlatform(machines=spec):
                return spec
            case _:
                return None

    # --- sweeping ---

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            if self.not_ready() is not None:
                continue
            for type_, provider in self._registry.all():
                try:
                    await self._sweep_provider(type_, provider)
                except ProviderError as error:
                    log.warning("provider could not be swept", provider=type_, error=str(error))
            await self._purge()
            # Machines grow old without anybody saying so.
            self._knowledge.touch_all()
            self._wake.set()

    async def _sweep_provider(self, type_: str, provider: Provider) -> None:
        running = frozenset(
            name
            for name, (_, machine) in self._machines().items()
            if machine.provider == type_ and machine.state == "running"
        )
        listed = await ask(provider.list_owned(self._cluster), self._pace.call)
        machines = self._machines()
        found = sweep(
            listed=listed,
            running_before=running,
            records={name: machine for name, (_, machine) in machines.items()},
        )
        for name in found.vanished:
            log.warning("machine vanished", provider=type_, machine=name)
            self._report(machines[name][0], name, Gone())
        for name in found.orphans:
            log.warning("machine without a record ends", provider=type_, machine=name)
            await ask(provider.terminate(name), self._pace.call)

    def _machines(self) -> dict[str, tuple[str, Machine]]:
        return {
            name: (platform, machine)
            for platform, shelf in self._knowledge.shelves.items()
            for name, machine in shelf.book.machines.items()
        }

    async def _purge(self) -> None:
        before = self._now() - timedelta(seconds=self._settings.forget_seconds)
        for said in self._knowledge.take_forgettable(before):
            await self._bus.purge("HOSTS", said.state.subject, up_to=said.sequence)


def _words(state: HostState) -> tuple[object, ...]:
    """What a reader would notice."""
    return (state.uid, state.state, state.host, state.address, state.message, state.secret)
