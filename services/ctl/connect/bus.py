"""Connects to the bus with the services' own client, for commands that need typed messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from services.ctl.connect.progress import tell
from services.ctl.connect.reader import access_for, nats_url_of, unreachable
from shared.bus.admin.apply import Report, apply_at
from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.permissions import reads_of
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus, BusError, NewerFormatError
from shared.bus.streams import VIEW_SUFFIX, load
from shared.runtime.command import CommandError, Exit
from shared.runtime.suggestions import one_of
from shared.settings.access import OPEN, Access
from shared.telemetry.logging import configure_logging

CONNECT_SECONDS: Final = 5.0


@asynccontextmanager
async def connected(url: str, *, access: Access = OPEN) -> AsyncIterator[Bus]:
    """A connected bus that only reads. Raises `CommandError` if NATS does not answer within seconds."""
    configure_logging(service="ctl", level="error", format_="console", for_good=False)
    try:
        bus = NatsBus(
            url=url,
            instance="sluice",
            now=lambda: datetime.now(UTC),
            access=access,
            reads=reads_of("viewer"),
            writes=(),
            consumers=False,
        )
    except ValueError as error:
        raise CommandError(f"NATS at {url}", str(error)) from error
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await bus.start()
    except TimeoutError as error:
        raise unreachable(url, TimeoutError(f"no answer in {CONNECT_SECONDS:g} s")) from error
    except NewerFormatError as error:
        await bus.stop()
        what = f"NATS at {url}"
        raise CommandError(what, error.problem, hint=error.to_do, status=Exit.FAILED) from error
    try:
        yield bus
    finally:
        await bus.stop()


async def apply_bus(
    url: str | None,
    directory: Path,
    *,
    rebuild: tuple[str, ...],
    replicas: int | None,
    cluster: str,
) -> Report:
    """Create or update streams and durable consumers: `sluice bus apply`."""
    there = load().configs(replicas=1)
    for name in rebuild:
        if name not in there:
            views = [each for each in there if each.endswith(VIEW_SUFFIX)]
            problem = f"there is no such view; {one_of(name, views)}"
            raise CommandError(f"--rebuild {name}", problem)
    access = access_for(url, directory)
    url = nats_url_of(url, directory)
    try:
        return await apply_at(
            url,
            rebuild=rebuild,
            replicas=replicas,
            cluster=cluster,
            access=access,
            retry=ElectionRetry(tell),
        )
    except BusError as error:
        raise unreachable(url, error) from error
