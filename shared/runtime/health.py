"""`/livez`, `/readyz` and `/metrics` of a process."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

_START_SECONDS: Final = 10.0


class SleepingServer(uvicorn.Server):
    """A uvicorn server that sleeps until there is something to do.

    uvicorn's own wakes up ten times a second, to renew its date header and to see whether it shall end.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Let `_serve` answer what is being asked, and return."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Return after `end`."""
        await self.on_tick(0)  # Makes the headers of every answer.
        await self._ending.wait()


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HealthServer:
    """Answers from the service's own event loop: a loop that is stuck does not answer, and is dead.

    Liveness never depends on NATS or Kubernetes: restarting a healthy process cures neither.
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
        config = uvicorn.Config(
            self._answer,
            host=host,
            port=port,
            interface="asgi3",  # Of a bound method uvicorn would guess version 2.
            lifespan="off",
            log_config=None,
            access_log=False,
            date_header=False,  # It would show when the server was started.
        )
        self._server = SleepingServer(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; return the port."""
        self._task = asyncio.create_task(self._server._serve())  # noqa: SLF001 - `serve` takes the signals
        async with asyncio.timeout(_START_SECONDS):
            while not self._server.started:
                if self._task.done():
                    self._task.result()
                    raise RuntimeError("the health server did not start")
                await asyncio.sleep(0.01)
        return int(self._server.servers[0].sockets[0].getsockname()[1])

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
            return 200, generate_latest(REGISTRY), CONTENT_TYPE_LATEST
        return 404, b"there are /livez, /readyz and /metrics\n", text
