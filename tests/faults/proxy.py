"""A TCP proxy that can be cut: everything, or only what the server answers."""

import asyncio
from contextlib import suppress
from typing import Literal

Cut = Literal["nothing", "everything", "answers"]

CHUNK_BYTES = 1 << 16


class Proxy:
    """Stands between the services and one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut: Cut = "nothing"
        self._renewed = 0

    async def start(self, port: int = 0) -> int:
        """Listen on a port of loopback, by default a free one, and return it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        self._hang_up()

    def cut(self, what: Cut) -> None:
        """Swallow what goes in one direction or in both. What was swallowed never arrives."""
        self._cut = what

    def heal(self) -> None:
        """Let everything pass, on new connections: the old ones have lost bytes."""
        self._cut = "nothing"
        self._hang_up()

    def renew(self) -> None:
        """Let new connections pass. The old ones stay silent, as behind a router that forgot them."""
        self._cut = "nothing"
        self._renewed += 1

    def _hang_up(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            upstream, out = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            self._writers.discard(writer)
            return
        self._writers.add(out)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, out, answers=False))
                group.create_task(self._copy(upstream, writer, answers=True))
        finally:
            for one in (writer, out):
                one.close()
                self._writers.discard(one)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        born = self._renewed
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                is_cut = self._cut == "everything" or (answers and self._cut == "answers")
                if is_cut or born != self._renewed:
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()
