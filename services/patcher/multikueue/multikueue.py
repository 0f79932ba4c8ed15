"""What a patcher does for jobs that run on another cluster than the one where they were submitted."""

from collections.abc import Callable
from datetime import datetime

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.writer import Writer
from services.patcher.multikueue.copies import Spokes
from services.patcher.multikueue.heartbeat import Lease
from services.patcher.multikueue.hub_status import Home
from services.patcher.settings import PatcherSettings
from shared.bus.port import Bus
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.effects import Dispatch
from shared.contracts.messages.spokes import CheckStanding, Homecoming, SpokeState
from shared.kube.port import Kube

__all__ = ["Elsewhere"]


class Elsewhere:
    """A cluster may be hub and spoke at once: this is both sides."""

    def __init__(
        self,
        *,
        settings: PatcherSettings,
        kube: Kube,
        bus: Bus,
        writer: Writer,
        mirror: Mirror,
        now: Callable[[], datetime],
    ) -> None:
        self._lease = Lease(
            kube=kube,
            bus=bus,
            cluster=settings.cluster,
            quota=settings.spoke_quota,
            now=now,
            beat_seconds=settings.beat_seconds,
        )
        self._spokes = Spokes(
            kube=kube,
            bus=bus,
            cluster=settings.cluster,
            now=now,
            renewed=self._lease,
            integrations=mirror.integrations,
            reading=mirror.not_synced,
            own_kueue=settings.spoke_quota == "kueue",
        )
        self._home = Home(kube=kube, writer=writer, mirror=mirror, now=now)

    async def may_start(self, job: Object) -> bool:
        """Whether a job that has quota may run here. Raises `LaterError`."""
        return await self._spokes.may_start(job)

    async def apply(self, dispatch: Dispatch) -> None:
        """Make, keep or remove a copy. Raises `LaterError` while it goes on."""
        await self._spokes.apply(dispatch)

    async def bring_home(self, home: Homecoming) -> None:
        """Write at the hub what became of what it sent away. Raises `LaterError`, `NeverError`."""
        await self._home.apply(home)

    async def say_of_spoke(self, state: SpokeState) -> None:
        """Write at the hub how a spoke stands. Raises `LaterError`."""
        await self._home.apply_spoke(state)

    async def say_of_check(self, standing: CheckStanding) -> None:
        """Write at the hub whether a check leads anywhere. Raises `LaterError`."""
        await self._home.apply_check(standing)

    async def beat(self) -> None:
        """Say to the hub that we live, until cancelled."""
        await self._lease.beat()

    async def guard(self) -> None:
        """Stop copies whose leases ran out, until cancelled; with or without the bus."""
        await self._lease.guard(self._spokes.stop)
