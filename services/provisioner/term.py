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
from services.provisioner.allocation.allocate import OLD, allocate
from services.provisioner.allocation.ledger import Access, Book, Machine
from services.provisioner.allocation.results import (
    Failed,
    Launch,
    Launching,
    Outcome,
    Placed,
    Preparing,
    Release,
    Terminate,
    Verdict,
    Waiting,
)
from services.provisioner.checks.publisher import Checks
from services.provisioner.config.host_config import Host, HostConfig, MachineSpec, StaticPlatform
from services.provisioner.config.systems import System, user_of
from services.provisioner.controllers import Care, Tools, spec_of
from services.provisioner.hosts.maintenance import Upkeep
from services.provisioner.hosts.port import Hosts
from services.provisioner.metrics import UNKNOWN
from services.provisioner.settings import ProvisionerSettings
from services.provisioner.store import Knowledge
from services.provisioner.task_runs.requests import Request
from services.provisioner.tracing import trace_end, trace_place
from shared.bus.port import Bus, CaughtUp, Entry, FencedError, PublishFuture
from shared.contracts import subjects
from shared.contracts.kube.kinds import ADMISSION_CHECK, CONFIG_MAP, TASK_RUN
from shared.contracts.messages.effects import HostState, PlatformState
from shared.contracts.subjects import observed_filter

__all__ = ["Session"]

log = structlog.get_logger(__name__)


class Session:
    """From taking the lease to losing it. Nothing of it is worth keeping."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        bus: Bus,
        tools: Tools,
        now: Callable[[], datetime],
        last_good: HostConfig,
    ) -> None:
        self._settings = settings
        self._cluster = settings.cluster
        self._bus = bus
        self._tools = tools
        self._now = now
        self._knowledge = Knowledge(
            cluster=settings.cluster,
            host_config=(settings.host_config_namespace, settings.host_config_name),
            providers=tools.registry.types,
            keys=tools.registry.keys,
            last_good=last_good,
        )
        self._care = Care(
            settings=settings,
            tools=tools,
            now=now,
            resolve=self._knowledge.resolve,
            seal_key=lambda: self._knowledge.seal_key,
            touch=self._touch,
        )
        self._checks = Checks(
            cluster=settings.cluster,
            bus=bus,
            reservations=self._knowledge.reservations,
            retry_seconds=settings.check_retry_seconds,
            now=now,
        )
        self._unread = {"HOSTS", "OBSERVED", "CHECKS"}
        self._concerned = asyncio.Event()
        """There is a check of ours; until then, nobody has to read what was decided."""

        self._hosts_read = asyncio.Event()
        self._writing: dict[str, int] = {}
        """Platforms whose record is on its way, to the last sequence of it that came by meanwhile."""

        self._waited: dict[str, datetime] = {}
        """TaskRun uid to when its wait ended, though it has no host yet."""

        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

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
            group.create_task(self._follow_decisions())
            group.create_task(
                self._follow("CHECKS", "check", self._knowledge.reservations.take_answer)
            )
            group.create_task(self._decide())
            group.create_task(self._sweep())
            if self._tools.hosts is not None and self._settings.upkeep_seconds:
                group.create_task(self._upkeep(self._tools.hosts).run())

    # --- reading ---

    async def _follow_hosts(self) -> None:
        token = subjects.encode(self._cluster)
        filters = [
            f"{subjects.ROOT}.{what}.{token}.*.*" for what in ("host", "platform", "offer", "seal")
        ]
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
            observed_filter(ADMISSION_CHECK, self._cluster),
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
                    self._see_whether_concerned()
                    self._wake.set()

    def _see_whether_concerned(self) -> None:
        """From the first check of ours on: nothing is decided before decisions were read."""
        if not self._concerned.is_set() and self._knowledge.is_concerned():
            self._unread.add("ADMISSIONS")
            self._concerned.set()

    async def _follow_decisions(self) -> None:
        await self._concerned.wait()
        await self._follow("ADMISSIONS", "admission", self._knowledge.take_admission)

    async def _follow(self, stream: str, what: str, take: Callable[[Entry], None]) -> None:
        # Only now, for the same reason: who holds no quota any more keeps no place.
        await self._hosts_read.wait()
        filter_ = f"{subjects.ROOT}.{what}.{subjects.encode(self._cluster)}.>"
        async with aclosing(self._bus.watch(stream, filter_)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    self._caught_up(stream)
                else:
                    take(entry)
                    self._wake.set()

    def _touch(self, platform: str) -> None:
        self._knowledge.touch(platform)
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
            await self._make_offer()
            for platform in self._knowledge.take_dirty():
                await self._decide_platform(platform)
            await self._checks.answer(self._knowledge.config)

    async def _make_offer(self) -> None:
        offer = self._knowledge.offer_to_make(self._now())
        if offer is not None:
            await self._bus.publish(offer)
            self._knowledge.offer = offer

    async def _decide_platform(self, platform: str) -> None:
        before = self._knowledge.book(platform)
        kept = self._knowledge.reservations.requests(platform, before)
        requests = [*self._knowledge.requests(platform), *kept]
        now = self._now()
        outcome = allocate(
            book=before,
            config=self._knowledge.resolve(platform),
            requests=requests,
            settled=self._knowledge.settled(requests),
            sightings=self._care.take_sightings(platform),
            busy_elsewhere=self._knowledge.busy_elsewhere(platform),
            now=now,
            reports=self._care.take_reports(platform),
            access=self._access,
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
        self._stand(platform, outcome)
        self._knowledge.reservations.take_verdicts(kept, outcome.verdicts)
        assert self._group is not None, "errands start inside of run()"
        self._care.forget(before, outcome.book)
        self._care.look_after(self._group, outcome.book)

    def _access(self, source: Host | MachineSpec) -> Access | None:
        """How to enter what `source` describes; None where hosts are pretended."""
        if self._tools.hosts is None:
            return None
        match source:
            case Host():
                return Access(
                    user=source.user or "root",
                    port=source.port,
                    secret=source.secret,
                    host_keys=source.host_keys,
                )
            case MachineSpec(ssh_secret=secret) if secret:
                windows = source.system is System.WINDOWS
                user = self._tools.registry.ssh_user(source.provider)
                return Access(
                    user="Administrator" if windows else user,
                    secret=secret,
                    sudo_commands=source.sudo_commands,
                )
            case _:
                return None  # Only a machine that is not real has no secret.

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
        spec = spec_of(self._knowledge.resolve(platform))
        failed_hosts = outcome.book.failed_hosts
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
                failed_hosts=failed_hosts.get(request.uid, ()),
                ordered_at=_ordered_at(outcome.book, verdict),
                now=now,
            )
            said = self._knowledge.said.get((request.namespace, request.name))
            if said is None or _words(said.state) != _words(state):
                states.append(state)
                if said is None or said.state.state != state.state:
                    self._count(request, verdict, now=now)
                    if isinstance(verdict, Placed | Failed):
                        trace_place(self._tools.tracing, request, state, now=now)
        return states

    def _count(self, request: Request, verdict: Verdict, *, now: datetime) -> None:
        platform = self._shown(request.platform)
        served_at = self._waited.get(request.uid, now)
        match verdict:
            case Placed():
                self._tools.metrics.placed(
                    platform,
                    seconds=(now - served_at).total_seconds(),
                    waited=(served_at - request.created_at).total_seconds(),
                    prepared=bool(verdict.sealed),
                )
            case Failed():
                self._tools.metrics.allocation_failed(platform)
            case Launching() | Preparing():
                self._waited.setdefault(request.uid, now)
            case Waiting():
                pass

    def _shown(self, platform: str) -> str:
        """A platform as a label: users may write anything, and labels live for ever."""
        return platform if platform in self._knowledge.config.platforms else UNKNOWN

    def _stand(self, platform: str, outcome: Outcome) -> None:
        shown = self._shown(platform)
        if shown == UNKNOWN:
            return
        running = [seat.namespace for seat in outcome.book.seats.values() if seat.state != "held"]
        waiting = [
            request.namespace
            for request in self._knowledge.requests(platform)
            if isinstance(outcome.verdicts.get(request.uid), Waiting | Launching)
        ]
        config = self._knowledge.config.platforms[platform]
        static = len(config.hosts) if isinstance(config, StaticPlatform) else 0
        self._tools.metrics.stand(
            shown,
            hosts=static + len(outcome.book.machines),
            running=running,
            waiting=waiting,
        )

    def _released(self, platform: str, book: Book, *, now: datetime) -> list[HostState]:
        """Who ended and holds nothing any more. A machine must be gone, not only told to go."""
        holding = {*book.seats, *(m.holder for m in book.machines.values() if not m.shared)}
        ended = [
            said.state
            for said in self._knowledge.ended_but_unreleased(platform)
            if said.state.uid not in holding
        ]
        for state in ended:
            self._waited.pop(state.uid, None)
            if state.state == "ready":
                seconds = (now - (state.asked_at or state.at)).total_seconds()
                self._tools.metrics.ended(self._shown(platform), seconds=seconds)
                trace_end(self._tools.tracing, state, now=now)
        return [translate.to_released(state, now=now) for state in ended]

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
                    if reason == OLD:
                        self._tools.metrics.swept("old")
                case Release(uid=uid, host=host):
                    log.info("place released", platform=platform, host=host, uid=uid)

    # --- keeping ---

    def _upkeep(self, hosts: Hosts) -> Upkeep:
        return Upkeep(
            hosts=hosts,
            listed=self._listed,
            access=self._access,
            users_on=self._users_on,
            metrics=self._tools.metrics,
            every_seconds=self._settings.upkeep_seconds,
            call_seconds=self._settings.upkeep_call_seconds,
            update=self._settings.upkeep_update,
        )

    def _listed(self) -> list[Host]:
        return list(self._knowledge.config.hosts.values())

    def _users_on(self, host: str) -> list[str]:
        shelves = self._knowledge.shelves.values()
        seats = [seat for shelf in shelves for seat in shelf.book.seats.values()]
        return sorted(user_of(namespace=s.namespace, name=s.name) for s in seats if s.host == host)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            if self.not_ready() is not None:
                continue
            self._open_accounts()
            await self._care.sweep(self._machines)
            await self._purge()
            # Machines grow old without anybody saying so.
            self._knowledge.touch_all()
            self._wake.set()

    def _open_accounts(self) -> None:
        """Sweep where machines may be ordered, though none is recorded there."""
        for config in self._knowledge.config.platforms.values():
            spec = spec_of(config)
            if spec is not None:
                self._tools.registry.get(spec.account)

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
        for check, sequence in self._knowledge.reservations.take_forgettable(before):
            await self._bus.purge("CHECKS", check.subject, up_to=sequence)


def _ordered_at(book: Book, verdict: Verdict) -> datetime | None:
    match verdict:
        case Launching(host=host) | Preparing(host=host) | Placed(host=host):
            machine = book.machines.get(host)
            return machine.launched_at if machine is not None else None
        case _:
            return None


def _words(state: HostState) -> tuple[object, ...]:
    """What a reader would notice."""
    return (
        state.uid,
        state.state,
        state.host,
        state.address,
        state.message,
        state.secret,
        state.sealed,
    )
