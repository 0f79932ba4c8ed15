"""A hub's server with an account for each spoke, as it is deployed; and a leaf node that dials out to it."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from shared.bus.admin.accounts import accounts, leaf_configuration
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.spoke_gateway import SpokeGateway
from shared.bus.streams import DATA
from shared.settings.ports import reserve_port
from tests.clock import now

__all__ = ["Proxy", "Servers", "now", "servers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where everybody connects."""

    hub: str
    direct: dict[str, str]
    """Spoke to its URL on the hub's own server."""

    leaf: str
    """Of the first spoke's own server, behind which it dials out through `proxy`."""

    proxy: "Proxy"
    leaf_server: EmbeddedServer


class Proxy:
    """A TCP proxy that can be cut: what it had is dropped, and nobody is told."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.cut = False

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._on_connect, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._drop()

    def set_cut(self, cut: bool) -> None:
        self.cut = cut
        if cut:
            self._drop()

    def _drop(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        try:
            theirs, mine = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, mine}
        await asyncio.gather(self._pump(reader, mine), self._pump(theirs, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
        self._open.discard(writer)


@contextlib.asynccontextmanager
async def servers(*spokes: str, door: bool = True) -> AsyncIterator[Servers]:
    """Both servers, the streams applied, and the door kept. `door` False: somebody else keeps it."""
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as folder:
        root, leaf_port = Path(folder), reserve_port()
        proofs = {spoke: f'user: "{spoke}", password: "{spoke}"' for spoke in spokes}
        configured = accounts('{ user: "hub", password: "hub" }', proofs)
        (root / "hub.conf").write_text(
            f"{(DATA / 'server.conf').read_text()}\n{configured}"
            # Else the leaf learns of that port, and goes round a proxy that is cut.
            f'leafnodes {{ host: "127.0.0.1", port: {leaf_port}, no_advertise: true }}\n'
        )
        hub = await EmbeddedServer(root / "hub", config=root / "hub.conf").start()
        proxy = Proxy(leaf_port)
        port = await proxy.start()
        first = spokes[0]
        (root / "leaf.conf").write_text(
            leaf_configuration(f"nats://{first}:{first}@127.0.0.1:{port}")
        )
        leaf = await EmbeddedServer(root / "leaf", config=root / "leaf.conf").start()
        url = hub.url.replace("//", "//hub:hub@")
        try:
            await apply_at(url)
            async with _door(url) if door else contextlib.nullcontext():
                yield Servers(
                    hub=url,
                    direct={one: hub.url.replace("//", f"//{one}:{one}@") for one in spokes},
                    leaf=leaf.url,
                    proxy=proxy,
                    leaf_server=leaf,
                )
        finally:
            await leaf.kill()
            await proxy.stop()
            await hub.kill()


@contextlib.asynccontextmanager
async def _door(url: str) -> AsyncIterator[None]:
    bus = NatsBus(url=url, instance="door", now=now)
    await bus.start()
    keeping = asyncio.create_task(SpokeGateway(bus).run())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await bus.stop()
