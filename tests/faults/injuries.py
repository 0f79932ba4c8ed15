"""How things break. Each function returns when the fault is over; what mends itself is left to itself."""

import asyncio
import json
import os
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.clocks import NO_LIBRARY, NOT_REACHED, RIGHT, Clock
from tests.faults.proxy import Cut, Proxy
from tests.faults.site import Site

Make = Callable[[Site, Random], Awaitable[None]]

JUMP_SECONDS_MIN, JUMP_SECONDS_MAX = 30.0, 600.0
"""How far a clock is off: more than any lease and deadline, less than a certificate lives."""


SHORT_MIN, SHORT_MAX = 0.3, 0.9
"""How much of its usual memory a process gets that is to run out of it."""

DESCRIPTORS = 3
"""Fewer than any process has open: it keeps those, and gets no other."""


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


def out_of_memory(name: str, least: float, most: float) -> Make:
    """A process is killed, and the next ones may have less memory than they need: they die of that."""

    async def make(site: Site, random: Random) -> None:
        pid = await _pid_of(site, name)
        usual = _memory_bytes(pid)
        without, hard = resource.getrlimit(resource.RLIMIT_AS)
        os.kill(pid, signal.SIGKILL)
        now = asyncio.get_running_loop().time
        until = now() + random.uniform(least, most)
        while now() < until:
            pid = await _pid_of(site, name, other_than=pid)
            short = int(usual * random.uniform(SHORT_MIN, SHORT_MAX))
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_AS, (short, hard))
            await _ended(pid, until - now())
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (without, hard))

    return make


def out_of_descriptors(name: str, least: float, most: float) -> Make:
    """A process loses its connections to NATS and may open none for a while."""

    async def make(site: Site, random: Random) -> None:
        pid = await _pid_of(site, name)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
        for one in site.proxies:
            one.heal()
        await asyncio.sleep(random.uniform(least, most))
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))

    return make


def killed_or_paused(names: Sequence[str], times: int) -> Make:
    """So often one of these processes is killed, or paused for a moment, each time at another moment."""

    async def make(site: Site, random: Random) -> None:
        for _ in range(times):
            await asyncio.sleep(random.uniform(0.0, 2.0))
            name = random.choice(names)
            injure = random.choice((killed(name), paused(name, 0.2, 3.0)))
            await injure(site, random)

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
    """A server's disk is full for a while; then there is room, and the server is started again.

    Without that nothing would be admitted: nats-server 2.15.1 refuses every further message of a stream whose
    write once failed with ENOSPC, with that error and without an answer, until it starts again (observed on a
    small tmpfs, 40 s after there was room). Streams to which nobody wrote meanwhile go on by themselves.
    """
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
    """The network between the services and all servers swallows everything, or only the answers."""

    async def make(site: Site, random: Random) -> None:
        await _cut(site.proxies, what, random.uniform(least, most))

    return make


def leader_cut_off(stream: str, what: Cut, least: float, most: float) -> Make:
    """The same for the server alone that leads a stream: its peers hear it, and it leads on."""

    async def make(site: Site, random: Random) -> None:
        proxy = site.proxies[await site.leader_of(stream)]
        await _cut([proxy], what, random.uniform(least, most))

    return make


async def _cut(proxies: list[Proxy], what: Cut, seconds: float) -> None:
    for one in proxies:
        one.cut(what)
    await asyncio.sleep(seconds)
    for one in proxies:
        one.heal()


def clock_off(name: str, least: float, most: float) -> Make:
    """The clock of a process jumps by 30 s to ten minutes, ahead or behind, and after a while back."""

    async def make(site: Site, random: Random) -> None:
        clock = _clock(site, name)
        clock.set(_jump(random))
        await asyncio.sleep(random.uniform(least, most))
        clock.set(RIGHT)

    return make


def clock_stays_off(name: str) -> Make:
    """The clock of a process jumps by 30 s to ten minutes, and stays: whatever follows is judged with it."""

    async def make(site: Site, random: Random) -> None:
        _clock(site, name).set(_jump(random))
        await asyncio.sleep(random.uniform(0.0, 2.0))

    return make


def killed_with_clock_off(name: str) -> Make:
    """A process is killed and started again while its clock is off; then the clock is right again."""

    async def make(site: Site, random: Random) -> None:
        clock = _clock(site, name)
        clock.set(_jump(random))
        await asyncio.sleep(random.uniform(0.0, 2.0))
        await killed(name)(site, random)
        await asyncio.sleep(random.uniform(1.0, 8.0))
        clock.set(RIGHT)

    return make


async def server_clock_off(_site: Site, _random: Random) -> None:
    """The clock of a nats-server jumps: nothing that we have can do that."""
    raise NotPossibleError(NOT_REACHED)


async def _pid_of(site: Site, name: str, *, other_than: int | None = None) -> int:
    """Wait for a process of that name, and for another one than that."""
    pid = site.system.supervisor.pid

    await _until(lambda: pid(name) not in {None, other_than})
    found = pid(name)
    assert found is not None
    return found


async def _ended(pid: int, seconds: float) -> None:
    """Wait until a process has ended, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _until(lambda: not Path(f"/proc/{pid}").exists())


def _memory_bytes(pid: int) -> int:
    """What a process has of addresses."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _clock(site: Site, name: str) -> Clock:
    if name not in site.clocks:
        raise NotPossibleError(NO_LIBRARY)
    return site.clocks[name]


def _jump(random: Random) -> float:
    """Seconds, ahead or behind."""
    return random.choice((-1, 1)) * random.uniform(JUMP_SECONDS_MIN, JUMP_SECONDS_MAX)


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110 - the process is on its way up
            await asyncio.sleep(0.1)
