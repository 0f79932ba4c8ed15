"""Maintains static hosts: updates their packages, and removes users that are left over.

The first host is visited a minute after the start, the next one ten minutes later. Every host is visited
again after `upkeep_seconds`, by default a day, as in konflux-ci/multi-platform-controller@c28c4a01. A user
is left over if its name is one of a build user, if it has no slot, and if its home was not touched for a
day: other installations may have users on the same host.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from services.provisioner.allocation.ledger import HostAccess
from services.provisioner.config.host_config import Host
from services.provisioner.hosts.port import HostError, Hosts, HostTarget
from services.provisioner.metrics import Metrics

log = structlog.get_logger(__name__)

FIRST_SECONDS: Final = 60.0
STAGGER_SECONDS: Final = 600.0
"""Between two hosts, and at least between two rounds."""

IDLE_SECONDS: Final = 86_400
"""A user whose home was not touched for so long may be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMaintenance:
    """Visits all static hosts, round after round."""

    hosts: Hosts
    listed: Callable[[], Iterable[Host]]
    """The hosts of the configuration."""

    access: Callable[[Host], HostAccess | None]
    users_on: Callable[[str], list[str]]
    """The users with a slot on a host, by its name."""

    metrics: Metrics
    every_seconds: float
    call_seconds: float
    update: bool
    """Whether packages are updated."""

    async def run(self) -> None:
        """Work until cancelled."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            started = loop.time()
            for number, name in enumerate(sorted(host.name for host in self.listed())):
                if number:
                    await asyncio.sleep(STAGGER_SECONDS)
                # Looked up again: a round takes long, and the configuration may have changed.
                host = next((one for one in self.listed() if one.name == name), None)
                if host is not None:
                    await self._visit(host)
            await asyncio.sleep(max(STAGGER_SECONDS, started + self.every_seconds - loop.time()))

    async def _visit(self, host: Host) -> None:
        access = self.access(host)
        if access is None:
            return
        target = HostTarget(host=host.name, address=host.address, access=access)
        try:
            async with asyncio.timeout(self.call_seconds):
                summary = await self.hosts.maintain(
                    target,
                    keep=self.users_on(host.name),
                    idle_seconds=IDLE_SECONDS,
                    update=self.update,
                )
        except (HostError, TimeoutError) as error:
            self.metrics.maintenance_failed(host.platform)
            log.warning(
                "a host was not maintained", host=host.name, error=str(error) or "no end in time"
            )
        else:
            log.info("a host was maintained", host=host.name, said=summary)
