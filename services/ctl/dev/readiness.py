"""Whether a child of `sluice dev` is ready: it answers, or it listens."""

import asyncio
from typing import Final

from services.ctl.dev.supervisor import Ready, http_status

HOST: Final = "127.0.0.1"
"""Children listen there, and nowhere else."""


def answers(port: int) -> Ready:
    """A service is ready when its health port says so."""

    async def ready() -> str | None:
        status, body = await http_status(HOST, port, "/readyz")
        return None if status == 200 else body or f"/readyz answers {status}"

    return ready


def listens(port: int) -> Ready:
    """A server is ready when it accepts connections."""

    async def ready() -> str | None:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError as error:
            return str(error)
        writer.close()
        return None

    return ready
