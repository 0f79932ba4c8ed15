"""`/livez`, `/readyz` and `/metrics` of a process."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from shared.runtime.connections import ConnectionLimits, LimitedProtocol, LimitedServer, bound

_START_SECONDS: Final = 10.0
LIMITS: Final = ConnectionLimits(
    connections_max=128, per_address_max=32, header_seconds=5.0, request_seconds=30.0
)
"""Probes come from the node, scrapes from a few addresses. Whoever opens more loses the oldest idle one."""

PAGES_PER_SECOND: Final = 5
"""A page costs the service's own loop milliseconds: who asks more often gets the last one again."""

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HealthServer:
    """Answers from the service's own event loop: a loop that is stuck does not answer, and is dead.

    Liveness never depends on NATS or Kubernetes: restarting a healthy process cures neither. Nobody has to
    prove who he is, so a flood costs a few connections and pages, and no probe (ADR 34).
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        ready: Callable[[], str | None],
        alive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`alive` returns when every other event loop of the process has had a turn."""
        self._ready = ready
        self._alive = alive
        self._address = host, port
        self._made: deque[float] = deque(maxlen=PAGES_PER_SECOND)
        """When the last pages of metrics were made."""

        self._page_of_metrics = b""
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",  # Of a bound method uvicorn would guess version 2.
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,  # It would show when the server was started.
            http=LimitedProtocol,
            ws="none",
        )
        self._server = LimitedServer(config, LIMITS)
        self._task: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._server.connections

    async def start(self) -> int:
        """Listen; return the port. Raises `OSError` if the port is taken."""
        listening = bound(*self._address)
        self._task = asyncio.create_task(self._server._serve([listening]))  # noqa: SLF001 - `serve` takes the signals
        async with asyncio.timeout(_START_SECONDS):
            while not self._server.started:
                if self._task.done():
                    self._task.result()
                    raise RuntimeError("the health server did not start")
                await asyncio.sleep(0.01)
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        self._server.end()
        if self._task is not None:
            await self._task

    async def _answer(self, scope: MutableMapping[str, Any], _receive: Any, send: Send) -> None:
        path = scope.get("path", "")
        if path == "/livez" and self._alive is not None:
            await self._alive()
        status, body, kind = self._page(path)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _page(self, path: str) -> tuple[int, bytes, str]:
        text = "text/plain; charset=utf-8"
        if path == "/livez":
            return 200, b"ok\n", text
        if path == "/readyz":
            reason = self._ready()
            return (200, b"ok\n", text) if reason is None else (503, f"{reason}\n".encode(), text)
        if path == "/metrics":
            return 200, self._metrics(), CONTENT_TYPE_LATEST
        return 404, b"there are /livez, /readyz and /metrics\n", text

    def _metrics(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if len(self._made) < PAGES_PER_SECOND or now - self._made[0] > 1.0:
            self._made.append(now)
            self._page_of_metrics = generate_latest(REGISTRY)
        return self._page_of_metrics
