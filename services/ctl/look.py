"""Connects to the bus of whoever is asked about."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from services.ctl.dev import STATE_FILE, unreachable
from services.ctl.errors import CommandError, Exit
from services.ctl.history import history, history_json, history_lines
from services.ctl.lookout import access_for
from shared.bus.apply import Report, apply_at
from shared.bus.nats_bus import NatsBus
from shared.bus.permissions import reads_of
from shared.bus.port import Bus, BusError
from shared.settings.access import OPEN, Access
from shared.telemetry.logging import configure_logging

__all__ = ["apply_bus", "connected", "nats_url_of", "show_history"]

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
CONNECT_SECONDS: Final = 5.0


def nats_url_of(given: str | None, directory: Path) -> str:
    """The URL that was given, else that of the `sluice dev` in `directory`, else the default."""
    if given is not None:
        return given
    state = directory / STATE_FILE
    if not state.exists():
        return DEFAULT_URL
    return str(json.loads(state.read_text())["nats_url"])


@asynccontextmanager
async def connected(url: str, *, access: Access = OPEN) -> AsyncIterator[Bus]:
    """A bus for looking. Raises `CommandError` where nobody answers within a few seconds."""
    configure_logging(service="ctl", level="error", format_="console", for_good=False)
    try:
        bus = NatsBus(
            url=url,
            instance="sluice",
            now=lambda: datetime.now(UTC),
            access=access,
            reads=reads_of("viewer"),
        )
    except ValueError as error:
        raise CommandError(f"NATS at {url}", str(error)) from error
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await bus.start()
    except TimeoutError as error:
        raise unreachable(url, TimeoutError(f"no answer in {CONNECT_SECONDS:g} s")) from error
    try:
        yield bus
    finally:
        await bus.stop()


async def show_history(
    namespace: str, name: str, *, as_json: bool, url: str | None, directory: Path
) -> list[str]:
    """The lines of `sluice history`. Raises `CommandError` where the logs know nothing of it."""
    async with connected(nats_url_of(url, directory), access=access_for(url, directory)) as bus:
        events = await history(bus, namespace, name)
    if not events:
        raise CommandError(
            f"{namespace}/{name}",
            "the logs know nothing of it",
            hint="give the name of a job or of its Workload; `kubectl get workloads -A` lists them",
            status=Exit.FAILED,
        )
    return history_json(events) if as_json else history_lines(events)


async def apply_bus(url: str | None, directory: Path, *, rebuild: tuple[str, ...]) -> Report:
    """`sluice bus apply`."""
    access = access_for(url, directory)
    url = nats_url_of(url, directory)
    try:
        return await apply_at(url, rebuild=rebuild, access=access)
    except BusError as error:
        raise unreachable(url, error) from error
