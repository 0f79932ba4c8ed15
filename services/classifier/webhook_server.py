"""Serves the webhook over HTTPS, and takes up new rules and certificates while it runs."""

import asyncio
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn

from services.classifier.rules import RulesHolder
from shared.runtime.certificates import CertificateFolder, ReloadingContext

__all__ = ["WebhookServer", "follow_rules"]

log = structlog.get_logger(__name__)

FOLLOW_SECONDS: Final = 1.0
"""How often files are looked at. A ConfigMap takes a minute to reach its mount anyway."""

START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5
KEEP_ALIVE_SECONDS: Final = 120
"""An API server keeps its connections: a new TLS handshake costs more than a review."""


class WebhookServer:
    """One HTTPS listener. `start`, then `stop`; certificates are renewed and reloaded in between."""

    def __init__(
        self,
        app: Any,
        *,
        host: str,
        port: int,
        certificates: CertificateFolder,
        now: Callable[[], datetime],
        follow_seconds: float = FOLLOW_SECONDS,
    ) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._certificates = certificates
        self._now = now
        self._follow_seconds = follow_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._server: uvicorn.Server | None = None

    @property
    def listening(self) -> bool:
        """Whether it answers. Before that there may not even be a certificate to trust."""
        return self._server is not None and self._server.started

    async def start(self) -> int:
        """Make certificates where none are, listen, and return the port.

        Raises `OSError` if the port is taken or the certificates cannot be read or made.
        """
        self._certificates.ensure(self._now())
        tls = ReloadingContext(self._certificates.certificate, self._certificates.key)
        config = uvicorn.Config(
            self._app,
            ssl_context_factory=lambda _config, _default: tls.context,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
        listening = self._bind()
        self._server = server = uvicorn.Server(config)
        # `serve` would take the signals, which are the process's business.
        serving = asyncio.create_task(server._serve([listening]))  # noqa: SLF001
        self._tasks = [serving, asyncio.create_task(self._follow_certificates(tls))]
        async with asyncio.timeout(START_SECONDS):
            while not server.started:
                if serving.done():
                    serving.result()
                    raise RuntimeError("the webhook ended while it was starting")
                await asyncio.sleep(0.01)
        return int(listening.getsockname()[1])

    def _bind(self) -> socket.socket:
        """Bind here, because uvicorn ends the process where a port is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # Said to be TCP, or asyncio leaves Nagle's algorithm on for what it accepts: 40 ms each.
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
        serving, following = self._tasks
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await serving

    async def _follow_certificates(self, tls: ReloadingContext) -> None:
        told: str | None = None
        while True:
            await asyncio.sleep(self._follow_seconds)
            try:
                if self._certificates.ensure(self._now()):
                    log.info("renewed the serving certificate")
            except (OSError, ValueError) as error:
                log.error("cannot renew the serving certificate", error=str(error))
            if tls.refresh():
                log.info("took up a new serving certificate")
            elif tls.error != told and tls.error is not None:
                log.error("keeping the old serving certificate", error=tls.error)
            told = tls.error


async def follow_rules(
    holder: RulesHolder, path: Path, *, every_seconds: float = FOLLOW_SECONDS
) -> None:
    """Offer a configuration file to `holder` now, and again whenever it has changed."""
    seen: tuple[int, ...] | None = None
    while True:
        found = _fingerprint(path)
        if found != seen or holder.current is None:
            before = holder.error
            if holder.offer_file(path):
                assert holder.current is not None
                log.info(
                    "rules in force",
                    path=str(path),
                    queue=holder.current.queue_name,
                    expressions=len(holder.current.programs),
                    ignored=list(holder.current.ignored),
                )
            elif holder.error != before:
                kept = holder.current is not None
                log.error("configuration refused", error=holder.error, last_good_kept=kept)
            seen = found
        await asyncio.sleep(every_seconds)


def _fingerprint(path: Path) -> tuple[int, ...]:
    """Changes when the file does; a mounted ConfigMap is a symbolic link that is switched over."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns)
