"""Listens: plain, or with TLS whose certificates are renewed while it runs."""

import asyncio
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog
import uvicorn

from shared.runtime.certificates import CertificateFolder, ReloadingContext

__all__ = ["ConsoleServer"]

log = structlog.get_logger(__name__)

FOLLOW_SECONDS: Final = 5.0
START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 1
"""Pages that follow what happens never end by themselves: they come again by themselves."""


class ConsoleServer:
    """One listener: `start`, then `stop`."""

    def __init__(
        self,
        app: Any,
        *,
        host: str,
        port: int,
        now: Callable[[], datetime],
        certificates: CertificateFolder | None = None,
    ) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._now = now
        self._certificates = certificates
        self._tasks: list[asyncio.Task[None]] = []
        self._server: uvicorn.Server | None = None

    @property
    def listening(self) -> bool:
        """Whether it answers."""
        return self._server is not None and self._server.started

    async def start(self) -> int:
        """Listen; return the port. Raises `OSError` if it is taken or certificates cannot be read or made."""
        options: dict[str, Any] = {}
        tls: ReloadingContext | None = None
        if self._certificates is not None:
            self._certificates.ensure(self._now())
            tls = ReloadingContext(self._certificates.certificate, self._certificates.key)
            context = tls.context
            options["ssl_context_factory"] = lambda _config, _default: context
        config = uvicorn.Config(
            self._app,
            timeout_graceful_shutdown=STOP_SECONDS,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            **options,
        )
        listening = self._bind()
        self._server = server = uvicorn.Server(config)
        # `serve` would take the signals, which are the process's business.
        serving = asyncio.create_task(server._serve([listening]))  # noqa: SLF001
        self._tasks = [serving]
        if tls is not None and self._certificates is not None:
            self._tasks.append(asyncio.create_task(self._renew(tls, self._certificates)))
        async with asyncio.timeout(START_SECONDS):
            while not server.started:
                if serving.done():
                    serving.result()
                    raise RuntimeError("the console ended while it was starting")
                await asyncio.sleep(0.01)
        return int(listening.getsockname()[1])

    def _bind(self) -> socket.socket:
        """Bind here, because uvicorn ends the process where a port is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
        except OSError:
            listening.close()
            raise
        return listening

    async def stop(self) -> None:
        """Answer what is being asked, then close."""
        if self._server is None:
            return
        self._server.should_exit = True
        serving, *others = self._tasks
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await serving

    async def _renew(self, tls: ReloadingContext, certificates: CertificateFolder) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                certificates.ensure(self._now())
            except (OSError, ValueError) as error:
                log.error("cannot renew the serving certificate", error=str(error))
            if tls.refresh():
                log.info("took up a new serving certificate")
