"""A real nats-server for tests, with the streams applied."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer


@asynccontextmanager
async def nats_server(*, streams: bool = True) -> AsyncIterator[EmbeddedServer]:
    """Start a server in a directory of its own; end it, and drop its data, afterwards."""
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as directory:
        server = await EmbeddedServer(Path(directory)).start()
        try:
            if streams:
                await apply_at(server.url)
            yield server
        finally:
            await server.kill()
