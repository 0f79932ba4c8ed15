"""Who asks NATS what it may not learns that from the server, and does not wait for an answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.ctl.dev.secure import Secured, secure
from shared.bus.admin.apply import apply_at
from shared.bus.admin.permissions import reads_of
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import DeniedError
from shared.bus.stream_reader import SilentError, open_stream_reader
from shared.settings.access import public_key
from tests.clock import now

FOREVER = 3600.0


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[str, Secured]]:
    secured = secure(folder / "users", (), now())
    running = await EmbeddedServer(folder, config=secured.config).start()
    try:
        report = await apply_at(running.url, access=secured.access("bus"))
        assert report.ok, report
        yield running.url, secured
    finally:
        await running.kill()


async def test_denied_request_names_subject_and_user_without_waiting(tmp_path: Path) -> None:
    async with server(tmp_path) as (url, secured):
        viewer, console = (secured.access(name) for name in ("viewer", "console"))
        async with open_stream_reader(url, access=viewer) as look:
            told = "STREAM.DELETE.ADMISSIONS: NATS does not let the user"
            with pytest.raises(SilentError, match=f"{told} {public_key(viewer.seed())} ask this"):
                await look.ask("$JS.API.STREAM.DELETE.ADMISSIONS", b"", timeout_seconds=FOREVER)
            with pytest.raises(SilentError, match="nobody answers"):
                await look.ask("sluice.rpc.quota.explain", b"", timeout_seconds=1)
        bus = NatsBus(
            url=url, instance="c", access=console, reads=reads_of("console"), writes=(), now=now
        )
        await bus.start()
        try:
            told = "STREAM.MSG.GET.KEYS: NATS does not let the user"
            with pytest.raises(DeniedError, match=f"{told} {public_key(console.seed())} ask this"):
                await bus.latest("KEYS", "sluice.key.hub.a.b")
            with pytest.raises(DeniedError, match=r"rpc\.quota\.explain: NATS does not let"):
                await bus.request("sluice.rpc.quota.explain", b"", timeout_seconds=FOREVER)
        finally:
            await bus.stop()
