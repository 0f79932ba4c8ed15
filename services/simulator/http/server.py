"""The HTTP server, by default on the loopback interface, inside a running event loop."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import uvicorn
from typing_extensions import override

from services.simulator.http.application import Application

HOST: Final = "127.0.0.1"
BACKLOG: Final = 1024
GRACE_SECONDS: Final = 3
TICK_SECONDS: Final = 1
KEEP_ALIVE_SECONDS: Final = 120
"""Longer than clients keep idle connections, so that the server never closes one during a request."""


class Server:
    """Serves an `Application`, with TLS if it has a certificate and a key."""

    def __init__(
        self,
        application: Application,
        *,
        host: str = HOST,
        port: int = 0,
        known_as: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        """Port 0 chooses a free port. `known_as` is the name by which others reach `host`."""
        self._application = application
        self._host = host
        self._known_as = known_as or host
        self._port = port
        self._certificate = certificate
        self._key = key
        self._scheme = "https" if certificate is not None else "http"
        self._server: _QuietServer | None = None
        self._task: asyncio.Task[None] | None = None

    def _configuration(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._application,
            lifespan="off",
            log_config=None,
            access_log=False,
            ssl_certfile=self._certificate,
            ssl_keyfile=self._key,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            # Parses in C: a third of what a small request costs.
            http="httptools",
            ws="none",
        )

    @property
    def url(self) -> str:
        """The server's URL; valid after `start`."""
        return f"{self._scheme}://{self._known_as}:{self._port}"

    async def start(self) -> None:
        """Listen; return when requests are answered. Raises `OSError` if the port is in use.

        May be called again after `stop`; the port then stays the same.
        """
        # With an explicit protocol, asyncio sets TCP_NODELAY on accepted connections; without it each
        # response waits 40 ms for the client's delayed acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self._port))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        self._port = int(listener.getsockname()[1])
        self._application.open()
        server = self._server = _QuietServer(self._configuration())
        self._task = asyncio.create_task(server.serve(sockets=[listener]), name="simulator-http")
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            ready.cancel()
            await self._task

    async def stop(self) -> None:
        """End all watches, finish requests, close the port."""
        self._application.close()
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            self._server.leaving.set()
            with suppress(asyncio.CancelledError):
                await self._task


class _QuietServer(uvicorn.Server):
    """A uvicorn server that signals when it listens and does not handle signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.leaving = asyncio.Event()

    @override
    async def main_loop(self) -> None:
        # A tick updates the Date header. uvicorn's own loop polls for the end ten times a second.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self.leaving.wait()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
