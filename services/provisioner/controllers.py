"""Sees to what the records say: a tender for each machine, an usher for each place, and the sweep."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog

from services.provisioner import translate
from services.provisioner.allocation.ledger import Book, Machine, Seat
from services.provisioner.allocation.results import Cleaned, Gone, SeatReport, Sighting, Unusable
from services.provisioner.config.host_config import (
    CHECK_INTERVAL_SECONDS,
    DynamicPlatform,
    MachineSpec,
    PlatformConfig,
    PoolPlatform,
)
from services.provisioner.hosts.access import Keys, Manners, Usher
from services.provisioner.hosts.port import Hosts
from services.provisioner.machines.controller import Pace, Tender, ask
from services.provisioner.machines.sweeper import sweep
from services.provisioner.metrics import Metrics
from services.provisioner.providers.port import Order, Provider, ProviderError
from services.provisioner.providers.registry import Registry, UnknownProviderError
from services.provisioner.settings import ProvisionerSettings
from shared.contracts.seal import Entropy
from shared.telemetry.tracing import NO_TRACING, Tracing

__all__ = ["Care", "Tools", "spec_of"]

log = structlog.get_logger(__name__)


class Tools:
    """What reaches the world outside: clouds, hosts, keys."""

    def __init__(
        self,
        *,
        registry: Registry,
        hosts: Hosts | None,
        keys: Keys,
        entropy: Entropy,
        metrics: Metrics,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        """`hosts` None: hosts are pretended, nobody goes there."""
        self.registry = registry
        self.hosts = hosts
        self.keys = keys
        self.entropy = entropy
        self.metrics = metrics
        self.tracing = tracing


class Care:
    """One session's errands. They can all be begun again from the records."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        tools: Tools,
        now: Callable[[], datetime],
        resolve: Callable[[str], PlatformConfig | str],
        seal_key: Callable[[], str | None],
        touch: Callable[[str], None],
    ) -> None:
        self._cluster = settings.cluster
        self._tools = tools
        self._now = now
        self._resolve = resolve
        self._seal_key = seal_key
        self._touch = touch
        self._tenders: dict[str, Tender] = {}
        self._ushers: dict[str, Usher] = {}
        self._sightings: dict[str, dict[str, Sighting]] = {}
        self._reports: dict[str, dict[str, SeatReport]] = {}
        self._pace = Pace(
            call=settings.provider_call_seconds,
            launch_retry=settings.launch_retry_seconds,
            poll_retry=settings.poll_retry_seconds,
        )
        self._manners = Manners(
            call=settings.host_call_seconds,
            retry=settings.host_retry_seconds,
            patience=settings.host_patience_seconds,
            clean_patience=settings.clean_patience_seconds,
            key_life=settings.key_seconds,
        )

    def take_sightings(self, platform: str) -> dict[str, Sighting]:
        """What the providers said since the last round."""
        return self._sightings.pop(platform, {})

    def take_reports(self, platform: str) -> dict[str, SeatReport]:
        """What was done on hosts since the last round."""
        return self._reports.pop(platform, {})

    def look_after(self, group: asyncio.TaskGroup, book: Book) -> None:
        """Bring the errands in line with the record."""
        for machine in book.machines.values():
            tender = self._tenders.get(machine.name)
            if tender is None:
                self._start_tender(group, book.platform, machine)
            else:
                tender.update(machine)
        for uid, seat in book.seats.items():
            usher = self._ushers.get(uid)
            if usher is None:
                self._start_usher(group, book.platform, seat)
            else:
                usher.update(seat)

    def forget(self, before: Book, after: Book) -> None:
        """Tell the errands of what is in the record no more."""
        for name in before.machines.keys() - after.machines.keys():
            tender = self._tenders.get(name)
            if tender is not None:
                tender.update(None)
        for uid in before.seats.keys() - after.seats.keys():
            usher = self._ushers.pop(uid, None)
            if usher is not None:
                usher.update(None)

    # --- machines ---

    def _start_tender(self, group: asyncio.TaskGroup, platform: str, machine: Machine) -> None:
        try:
            provider = self._tools.registry.get(machine.provider)
        except UnknownProviderError as error:
            log.error("nobody can look after a machine", machine=machine.name, error=str(error))
            return
        tender = Tender(
            machine=machine,
            provider=provider,
            order=lambda: self._order(platform, machine),
            check_interval=lambda: self._check_interval(platform),
            report=lambda name, sighting: self._saw(platform, name, sighting),
            pace=self._pace,
            now=self._now,
        )
        self._tenders[machine.name] = tender
        group.create_task(self._tend(machine.name, tender))

    async def _tend(self, name: str, tender: Tender) -> None:
        await tender.run()
        del self._tenders[name]

    def _saw(self, platform: str, name: str, sighting: Sighting | None) -> None:
        if sighting is not None:
            self._sightings.setdefault(platform, {})[name] = sighting
        self._touch(platform)

    def _order(self, platform: str, machine: Machine) -> Order | None:
        spec = spec_of(self._resolve(platform))
        if spec is None or spec.account != machine.provider:
            return None
        return translate.to_order(machine, spec, platform=platform, cluster=self._cluster)

    def _check_interval(self, platform: str) -> float:
        spec = spec_of(self._resolve(platform))
        return spec.check_interval_seconds if spec else CHECK_INTERVAL_SECONDS

    # --- places ---

    def _start_usher(self, group: asyncio.TaskGroup, platform: str, seat: Seat) -> None:
        if seat.access is None or seat.state in {"held", "ready"}:
            return
        if self._tools.hosts is None:
            log.error("this installation cannot enter hosts any more", host=seat.host)
            return
        usher = Usher(
            cluster=self._cluster,
            platform=platform,
            seat=seat,
            hosts=self._tools.hosts,
            keys=self._tools.keys,
            seal_key=self._seal_key,
            report=lambda uid, report: self._did(platform, uid, report),
            manners=self._manners,
            now=self._now,
            entropy=self._tools.entropy,
        )
        self._ushers[seat.uid] = usher
        group.create_task(usher.run())

    def _did(self, platform: str, uid: str, report: SeatReport) -> None:
        match report:
            case Unusable():
                self._tools.metrics.provisioning_failed(platform)
            case Cleaned(given_up=True):
                self._tools.metrics.cleanup_failed(platform)
            case _:
                pass
        self._reports.setdefault(platform, {})[uid] = report
        self._touch(platform)

    # --- sweeping ---

    async def sweep(self, machines: Callable[[], dict[str, tuple[str, Machine]]]) -> None:
        """Compare what every account has with the records. `machines`: by name, with the platform."""
        for account, provider in self._tools.registry.all():
            try:
                await self._sweep_one(account, provider, machines)
            except ProviderError as error:
                log.warning("provider could not be swept", provider=account, error=str(error))

    async def _sweep_one(
        self,
        account: str,
        provider: Provider,
        machines: Callable[[], dict[str, tuple[str, Machine]]],
    ) -> None:
        running = frozenset(
            name
            for name, (_, machine) in machines().items()
            if machine.provider == account and machine.state == "running"
        )
        listed = await ask(provider.list_owned(self._cluster), self._pace.call)
        recorded = machines()
        found = sweep(
            listed=listed,
            running_before=running,
            records={name: machine for name, (_, machine) in recorded.items()},
        )
        for name in found.vanished:
            log.warning("machine vanished", provider=account, machine=name)
            self._tools.metrics.swept("vanished")
            self._saw(recorded[name][0], name, Gone())
        for name in found.orphans:
            log.warning("machine without a record ends", provider=account, machine=name)
            self._tools.metrics.swept("no record")
            await ask(provider.terminate(name), self._pace.call)


def spec_of(config: PlatformConfig | str) -> MachineSpec | None:
    """What is ordered for a platform; None where nothing is."""
    match config:
        case DynamicPlatform(machines=spec) | PoolPlatform(machines=spec):
            return spec
        case _:
            return None
