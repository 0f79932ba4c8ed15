"""How things break. Each function returns when the fault is over; what mends itself is left to itself."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.proxy import Cut
from tests.faults.site import Site

Make = Callable[[Site, Random], Awaitable[None]]


class NotPossibleError(Exception):
    """This machine does not let us break that."""


def killed(name: str) -> Make:
    """SIGKILL of a process, which is started again as any would be."""

    async def make(site: Site, _random: Random) -> None:
        await _until(lambda: site.signal(name, signal.SIGKILL))

    return make


def paused(name: str, least: float, most: float) -> Make:
    """SIGSTOP of a process for a while, then SIGCONT: it goes on with what it knew."""

    async def make(site: Site, random: Random) -> None:
        await _until(lambda: site.signal(name, signal.SIGSTOP))
        await asyncio.sleep(random.uniform(least, most))
        site.signal(name, signal.SIGCONT)

    return make


def killed_together(*names: str) -> Make:
    """SIGKILL of several processes at once."""

    async def make(site: Site, _random: Random) -> None:
        for name in names:
            await _until(partial(site.signal, name, signal.SIGKILL))

    return make


def server_killed(number: int) -> Make:
    """SIGKILL of a nats-server, which comes back after a moment."""

    async def make(site: Site, random: Random) -> None:
        server = site.servers[number]
        await server.kill()
        await asyncio.sleep(random.uniform(0.2, 4.0))
        await server.start()

    return make


def server_paused(number: int, least: float, most: float) -> Make:
    """SIGSTOP of a nats-server for a while: its connections stay, and say nothing."""

    async def make(site: Site, random: Random) -> None:
        server = site.servers[number]
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(random.uniform(least, most))
        server.signal(signal.SIGCONT)

    return make


def leader_killed(stream: str) -> Make:
    """SIGKILL of the server that leads a stream."""

    async def make(site: Site, random: Random) -> None:
        await server_killed(await site.leader_of(stream))(site, random)

    return make


async def all_servers_killed(site: Site, random: Random) -> None:
    """SIGKILL of every server at once."""
    await asyncio.gather(*(one.kill() for one in site.servers))
    await asyncio.sleep(random.uniform(0.2, 3.0))
    await asyncio.gather(*(one.start() for one in site.servers))


async def disk_emptied(site: Site, _random: Random) -> None:
    """A server comes back with an empty disk; with one server an operator declares the streams again."""
    [server, *others] = site.servers
    await server.kill()
    shutil.rmtree(site.folders[0] / "jetstream")
    await server.start()
    if not others:
        await site.declare()


async def disk_set_back(site: Site, random: Random) -> None:
    """A server comes back with its disk as it was some seconds ago: the logs have lost their tails."""
    server, folder = site.servers[0], site.folders[0]
    await server.stop()
    _copy(folder / "jetstream", folder / "before")
    await server.start()
    await asyncio.sleep(random.uniform(1.0, 5.0))
    await server.kill()
    _copy(folder / "before", folder / "jetstream")
    shutil.rmtree(folder / "before")
    await server.start()


async def disk_filled(site: Site, random: Random) -> None:
    """A server's disk is full for a while; then there is room, and the server is started again."""
    server, folder = site.servers[0], site.folders[0]
    if not folder.is_mount():
        raise NotPossibleError("only where a small disk can be mounted")
    ballast = folder / "ballast"
    with suppress(OSError):
        descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(descriptor, bytes(1 << 16)):
                pass
        finally:
            os.close(descriptor)
    await asyncio.sleep(random.uniform(2.0, 6.0))
    ballast.unlink(missing_ok=True)
    await server.stop()
    await server.start()


def log_filled(stream: str) -> Make:
    """A log has no room for a while: its bound is what it has."""

    async def make(site: Site, random: Random) -> None:
        info: dict[str, Any] = {}
        while "config" not in info:
            info = await site.call(f"STREAM.INFO.{stream}")
        config = info["config"]
        tight = config | {"max_bytes": max(1024, int(info["state"]["bytes"]))}
        await site.call(f"STREAM.UPDATE.{stream}", json.dumps(tight).encode())
        await asyncio.sleep(random.uniform(2.0, 8.0))
        await site.call(f"STREAM.UPDATE.{stream}", json.dumps(config).encode())

    return make


def cut(what: Cut, least: float, most: float) -> Make:
    """The network between the services and the server swallows everything, or only the answers."""

    async def make(site: Site, random: Random) -> None:
        site.proxy.cut(what)
        await asyncio.sleep(random.uniform(least, most))
        site.proxy.heal()

    return make


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110 - the process is on its way up
            await asyncio.sleep(0.1)
