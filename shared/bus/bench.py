"""Measure the bus on this machine: ``python -m shared.bus.bench [messages] [--users]``.

Server and client share the machine's cores. One line for each figure. With ``--users`` each client has the
user and the account that it has in a deployment; without, the server is open, as for `sluice dev`.
"""

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from shared.bus.admin.accounts import hub_configuration
from shared.bus.admin.apply import apply_at
from shared.bus.admin.permissions import consumers_of, reads_of, rights_of, writes_of
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp, Entry
from shared.bus.streams import DATA
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.subjects import Stream, subject_filter
from shared.settings.access import Access, new_key

MESSAGES: Final = 20_000
PROBES: Final = 300


def _workload(number: int, made: datetime) -> WorkloadState:
    return WorkloadState(
        cluster="hub",
        namespace=f"team-{number % 50}",
        name=f"job-{number}",
        uid=f"uid-{number}",
        phase="waiting",
        queue="queue",
        created_at=made,
        pod_sets=[PodSet(name="main", count=1, requests={"cpu": "2", "memory": "4Gi"})],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """A server, and the folder with the keys of its users; None: it asks for none."""

    url: str
    keys: Path | None

    def access(self, user: str) -> Access:
        return Access() if self.keys is None else Access(nkey=self.keys / user)

    def bus(self, user: str) -> NatsBus:
        return NatsBus(
            url=self.url,
            instance=user,
            now=lambda: datetime.now(UTC),
            access=self.access(user),
            reads=None if self.keys is None else reads_of(user),
            writes=None if self.keys is None else writes_of(user, "hub"),
            consumers=consumers_of(user),
        )


@asynccontextmanager
async def _server(*, users: bool) -> AsyncIterator[_Site]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        folder = Path(directory)
        config, keys = DATA / "server.conf", None
        if users:
            keys, public = folder, {}
            for user in rights_of():
                seed, public[user] = new_key()
                (folder / user).write_text(seed)
            config = folder / "server.conf"
            accounts = hub_configuration(public, spokes=())
            config.write_text((DATA / "server.conf").read_text() + accounts)
        server = await EmbeddedServer(folder, config=config).start()
        site = _Site(url=server.url, keys=keys)
        try:
            await apply_at(server.url, access=site.access("bus"), cluster="hub" if users else None)
            yield site
        finally:
            await server.stop()


class _Measure:
    def __init__(self, what: str, count: int) -> None:
        self._what, self._count = what, count

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        wall = time.perf_counter() - self._wall
        cpu = (time.process_time() - self._cpu) / self._count * 1e6
        _say(f"{self._what:<28} {self._count / wall:>9,.0f}/s   {cpu:6.1f} us CPU each")


async def _publish(bus: NatsBus, count: int, *, fenced: bool) -> None:
    messages = [_workload(number, datetime.now(UTC)) for number in range(count)]
    first = await bus.last_sequence(Stream.WORKLOADS)
    with _Measure("publish, fenced" if fenced else "publish", count):
        for number, message in enumerate(messages):
            bus.publish(message, expect_last=first + number if fenced else None)
            if number % 256 == 0:
                await asyncio.sleep(0)
        await bus.flush()


async def _list(bus: NatsBus, what: str, count: int) -> None:
    reading = bus.watch(Stream.WORKLOADS) if what == "watch" else bus.replay(Stream.WORKLOADS)
    async with aclosing(reading) as items:
        with _Measure(f"{what}, to caught up", count):
            async for item in items:
                if isinstance(item, CaughtUp):
                    break


async def _latency(bus: NatsBus, made: datetime) -> None:
    """From the call of `publish` to the entry of a watch of the view."""
    took: list[float] = []
    async with aclosing(bus.watch(Stream.WORKLOADS)) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
        for number in range(PROBES):
            began = time.perf_counter()
            bus.publish(_workload(number, made))
            await anext(items)
            took.append(time.perf_counter() - began)
    took.sort()
    _say(
        f"publish to watch             p50 {took[PROBES // 2] * 1e3:.2f} ms   "
        f"p99 {took[PROBES * 99 // 100] * 1e3:.2f} ms"
    )


async def _work(site: _Site, count: int) -> None:
    bus, done, handled = site.bus("patcher"), asyncio.Event(), 0

    async def handle(_entry: Entry) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            done.set()

    bus.work(
        Stream.WORKLOADS,
        "patcher-hub-workload",
        handle,
        filters=(subject_filter("workload", "hub"),),
    )
    with _Measure("durable work", count):
        await bus.start()
        await done.wait()
    await bus.stop()


async def _main(count: int, *, users: bool) -> None:
    async with _server(users=users) as site:
        bus, reader = site.bus("classifier"), site.bus("tracer")
        await bus.start()
        await reader.start()
        await _publish(bus, count, fenced=False)
        await _publish(bus, count, fenced=True)
        await _list(bus, "watch", count)
        await _list(reader, "replay", 2 * count)
        await _latency(bus, datetime.now(UTC))
        await _work(site, count)
        await reader.stop()
        await bus.stop()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    numbers = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    asyncio.run(_main(numbers[0] if numbers else MESSAGES, users="--users" in sys.argv))
