"""Looks after static hosts: once a day each is brought up to date, and users that nobody knows go.

A minute after the start, then every day, ten minutes between two hosts (`research/tekton.md` 2.10).
Users are ours by their name, and forgotten when no place is theirs and they were idle for a day: other
installations may have users on the same host.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from services.provisioner.allocation.ledger import Access
from services.provisioner.config.host_config import Host
from services.provisioner.hosts.port import HostError, Hosts, Place
from services.provisioner.metrics import Metrics

__all__ = ["Upkeep"]

log = structlog.get_logger(__name__)

FIRST_SECONDS: Final = 60.0
STAGGER_SECONDS: Final = 600.0
IDLE_SECONDS: Final = 86_400
"""A home that was not touched for so long is nobody's."""


class Upkeep:
    """One session's rounds."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        listed: Callable[[], Iterable[Host]],
        access: Callable[[Host], Access | None],
        users_on: Callable[[str], list[str]],
        metrics: Metrics,
        every_seconds: float,
        call_seconds: float,
        update: bool,
    ) -> None:
        """`listed`: the hosts of the configuration; `users_on`: who has a place on one."""
        self._hosts = hosts
        self._listed = listed
        self._access = access
        self._users_on = users_on
        self._metrics = metrics
        self._every = every_seconds
        self._call = call_seconds
        self._update = update

    async def run(self) -> None:
        """Round after round, until cancelled."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            began = loop.time()
            for number, name in enumerate(sorted(host.name for host in self._listed())):
                if number:
                    await asyncio.sleep(STAGGER_SECONDS)
                # Looked up now: the round takes long, and the configuration may have changed.
                host = next((one for one in self._listed() if one.name == name), None)
                if host is not None:
                    await self._visit(host)
            await asyncio.sleep(max(STAGGER_SECONDS, began + self._every - loop.time()))

    async def _visit(self, host: Host) -> None:
        access = self._access(host)
        if access is None:
            return
        place = Place(host=host.name, address=host.address, access=access)
        try:
            async with asyncio.timeout(self._call):
                said = await self._hosts.keep_up(
                    place,
                    keep=self._users_on(host.name),
                    idle_seconds=IDLE_SECONDS,
                    update=self._update,
                )
        except (HostError, TimeoutError) as error:
            self._metrics.upkeep_failed(host.platform)
            log.warning("host not kept up", host=host.name, error=str(error) or "no end in time")
        else:
            log.info("host kept up", host=host.name, said=said)
