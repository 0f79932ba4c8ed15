"""Serves an ASGI application over HTTP, or over HTTPS with certificates that change while it runs."""

import asyncio
import ssl
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog
import uvicorn

from shared.runtime.certificates import CertificateFolder, ReloadingContext
from shared.runtime.connections import ConnectionLimits, LimitedProtocol, LimitedServer, bound

log = structlog.get_logger(__name__)

FOLLOW_SECONDS: Final = 1.0
"""How often certificates are looked at. A Secret takes a minute to reach its mount anyway."""

START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5
KEEP_ALIVE_SECONDS: Final = 120
"""An API server keeps its connections: a new TLS handshake costs more than a review."""


class WebServer:
    """One listener: `start`, then `stop`; certificates are renewed and reloaded in between."""

    def __init__(
        self,
        app: Any,
        *,
        host: str,
        port: int,
        now: Callable[[], datetime],
        certificates: CertificateFolder | None = None,
        client_authority: str | None = None,
        limits: ConnectionLimits | None = None,
        follow_seconds: float = FOLLOW_SECONDS,
        stop_seconds: int = STOP_SECONDS,
    ) -> None:
        """`client_authority`: PEM; only clients whose certificate it has signed are let in."""
        self._app = app
        self._client_authority = client_authority
        self._host = host
        self._port = port
        self._certificates = certificates
        self._now = now
        self._limits = limits or ConnectionLimits()
        self._follow_seconds = follow_seconds
        self._stop_seconds = stop_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._server: LimitedServer | None = None

    @property
    def listening(self) -> bool:
        """Whether it answers. Before that there may not even be a certificate to trust."""
        return self._server is not None and self._server.started

    @property
    def connections(self) -> int:
        """The number of open connections, those in a handshake included."""
        return 0 if self._server is None else self._server.connections

    async def start(self) -> int:
        """Make certificates where none are, listen, and return the port.

        Raises `OSError` if the port is taken or the certificates cannot be read or made.
        """
        tls: ReloadingContext | None = None
        options: dict[str, Any] = {}
        if self._certificates is not None:
            self._certificates.ensure(self._now())
            tls = ReloadingContext(self._certificates.certificate, self._certificates.key)
            context = tls.context
            if self._client_authority is not None:
                context.load_verify_locations(cadata=self._client_authority)
                context.verify_mode = ssl.CERT_REQUIRED
            options["ssl_context_factory"] = lambda _config, _default: context
        config = uvicorn.Config(
            self._app,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=self._stop_seconds,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            http=LimitedProtocol,
            ws="none",  # An upgraded connection would have no deadlines.
            **options,
        )
        listening = bound(self._host, self._port)
        self._server = server = LimitedServer(config, self._limits)
        # `serve` would take the signals, which are the process's business.
        serving = asyncio.create_task(server._serve([listening]))  # noqa: SLF001
        self._tasks = [serving]
        if tls is not None and self._certificates is not None:
            self._tasks.append(
                asyncio.create_task(self._follow_certificates(tls, self._certificates))
            )
        async with asyncio.timeout(START_SECONDS):
            while not server.started:
                if serving.done():
                    serving.result()
                    raise RuntimeError("the server ended while it was starting")
                await asyncio.sleep(0.01)
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Answer what is being asked, then close."""
        if self._server is None:
            return
        self._server.end()
        serving, *following = self._tasks
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await serving

    async def _follow_certificates(
        self, tls: ReloadingContext, certificates: CertificateFolder
    ) -> None:
        logged: str | None = None
        while True:
            await asyncio.sleep(self._follow_seconds)
            try:
                if certificates.ensure(self._now()):
                    log.info("renewed the serving certificate")
            except (OSError, ValueError) as error:
                log.error("cannot renew the serving certificate", error=str(error))
            if tls.refresh():
                log.info("took up a new serving certificate")
            elif tls.error != logged and tls.error is not None:
                log.error("keeping the old serving certificate", error=tls.error)
            logged = tls.error
