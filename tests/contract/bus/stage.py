"""The two stages on which the same suite plays: a real nats-server, and memory."""

import asyncio
import importlib
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, cast

import nats
import pytest

from shared.bus.admin.apply import apply_at
from shared.bus.admin.commit import commit
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.port import Bus, BusError, CaughtUp, Entry
from shared.contracts.messages.base import FORMAT
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.waiting import PATIENCE_SECONDS
from shared.testing.world.memory_streams import Dialect

QUICK_ACK_WAIT = pytest.mark.parametrize("ack_wait_seconds", [1.0], ids=["quick"])
"""Instead of 15 s, so that a crash is noticed within a test: others are not to see entries again."""


class Stage(Protocol):
    """A server, and buses that speak to it."""

    def bus(self, instance: str = "one", *, known_format: int = FORMAT) -> Bus:
        """A bus that is not started yet; stopped when the test ends."""

    async def commit(self, to: int) -> None:
        """Commit all streams to a format, as `sluice bus migrate --commit` of a release with it does."""

    async def crash(self, bus: Bus) -> None:
        """End it as SIGKILL would: nothing acknowledged, released or flushed."""

    async def fill_up(self, log: str) -> None:
        """From now on `log` takes nothing more."""

    async def make_room(self, log: str) -> None:
        """It does again."""

    async def wipe(self) -> None:
        """Come back with an empty disk, on which `sluice bus apply` has made the streams anew."""

    async def copy_disk(self, name: str) -> None:
        """Keep a copy of what is stored."""

    async def put_disk_back(self, name: str) -> None:
        """Come back with the disk as it was when it was copied."""


class NatsStage:
    """A real nats-server."""

    def __init__(
        self, server: EmbeddedServer, *, ack_wait_seconds: float, consumers: bool = True
    ) -> None:
        self.server = server
        self._ack_wait_seconds = ack_wait_seconds
        self._consumers = consumers
        self._buses: list[NatsBus] = []

    def bus(self, instance: str = "one", *, known_format: int = FORMAT) -> Bus:
        bus = NatsBus(
            url=self.server.url,
            instance=instance,
            now=lambda: datetime.now(UTC),
            ack_wait_seconds=self._ack_wait_seconds,
            consumers=self._consumers,
            known_format=known_format,
        )
        self._buses.append(bus)
        return bus

    async def commit(self, to: int) -> None:
        nc = await nats.connect(self.server.url)
        try:
            assert all([one.action == "committed" async for one in commit(nc, to=to)])
        finally:
            await nc.close()

    async def crash(self, bus: Bus) -> None:
        assert isinstance(bus, NatsBus)
        bus._connection._closing = True
        jobs = list(bus._worker._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await bus._connection.nc.close()

    async def fill_up(self, log: str) -> None:
        await self._limit(log, 1)

    async def make_room(self, log: str) -> None:
        await self._limit(log, -1)

    async def wipe(self) -> None:
        await self.server.kill()
        shutil.rmtree(self.server._directory / "jetstream")
        await self.server.start()
        await apply_at(self.server.url)

    async def copy_disk(self, name: str) -> None:
        await self.server.stop()
        disk = self.server._directory / "jetstream"
        shutil.copytree(disk, disk.with_name(name))
        await self.server.start()

    async def put_disk_back(self, name: str) -> None:
        await self.server.kill()
        disk = self.server._directory / "jetstream"
        shutil.rmtree(disk)
        disk.with_name(name).rename(disk)
        await self.server.start()

    async def _limit(self, log: str, max_bytes: int) -> None:
        nc = await nats.connect(self.server.url)
        try:
            ask = partial(call, nc, timeout_seconds=PATIENCE_SECONDS)
            config = (await ask(f"STREAM.INFO.{log}"))["config"]
            await ask(f"STREAM.UPDATE.{log}", config | {"max_bytes": max_bytes})
        finally:
            await nc.close()

    async def close(self) -> None:
        for bus in self._buses:
            await bus.stop()


class MemoryStage:
    """The simulated world's server, in this process."""

    def __init__(self) -> None:
        self._module = importlib.import_module("shared.testing.world.memory_bus")
        self._server = self._module.MemoryServer()
        self._disks: dict[str, Any] = {}
        self._buses: list[Any] = []

    def bus(self, instance: str = "one", *, known_format: int = FORMAT) -> Bus:
        dialect = Dialect()
        dialect.known_format = known_format
        bus = self._module.MemoryBus(self._server, instance=instance, dialect=dialect)
        self._buses.append(bus)
        return cast("Bus", bus)

    async def commit(self, to: int) -> None:
        self._server.committed = to

    async def crash(self, bus: Bus) -> None:
        crashing: Any = bus
        crashing.crash()
        self._buses.remove(bus)

    async def fill_up(self, log: str) -> None:
        self._server.streams[log].full = True

    async def make_room(self, log: str) -> None:
        self._server.streams[log].full = False

    async def wipe(self) -> None:
        self._server.wipe()

    async def copy_disk(self, name: str) -> None:
        self._disks[name] = self._server.copy_disk()

    async def put_disk_back(self, name: str) -> None:
        self._server.put_back(self._disks.pop(name))

    async def close(self) -> None:
        for bus in self._buses:
            await bus.stop()


AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def workload(name: str = "job-a", *, step: int = 0, namespace: str = "team-a") -> WorkloadState:
    """A state of one workload; `step` tells its states apart."""
    return WorkloadState(
        cluster="hub",
        namespace=namespace,
        name=name,
        uid=f"uid-{name[:20]}",
        generation=step,
        phase="waiting",
        created_at=AT,
    )


def outcome(name: str = "job-a", *, number: int = 1) -> Outcome:
    """What became of a decision."""
    return Outcome(
        cluster="hub",
        namespace="team-a",
        name=name,
        uid="uid",
        result="applied",
        action="release",
        term=1,
        number=number,
        at=AT,
    )


def step_of(entry: Entry) -> tuple[str, int]:
    """Name and step of the workload in `entry`."""
    state = WorkloadState.decode(entry.data, entry.headers)
    return state.name, state.generation


class Reading:
    """Entries of a watch or replay, taken one by one with a deadline."""

    def __init__(self, items: AsyncIterator[Entry | CaughtUp]) -> None:
        self._items = items

    async def next(self, *, seconds: float = PATIENCE_SECONDS) -> Entry | CaughtUp:
        async with asyncio.timeout(seconds):
            return await anext(self._items)

    async def until_caught_up(self) -> tuple[list[Entry], CaughtUp]:
        entries: list[Entry] = []
        while True:
            match await self.next():
                case CaughtUp() as end:
                    return entries, end
                case Entry() as entry:
                    entries.append(entry)

    async def entries(self, count: int) -> list[Entry]:
        taken: list[Entry] = []
        while len(taken) < count:
            match await self.next():
                case Entry() as entry:
                    taken.append(entry)
                case CaughtUp():
                    pass
        return taken

    async def nothing(self, *, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while. The reading is of no use afterwards."""
        try:
            await self.next(seconds=seconds)
        except TimeoutError:
            return True
        return False


class Readings:
    """Opens readings and ends them with the test."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    def __call__(self, items: AsyncIterator[Entry | CaughtUp]) -> Reading:
        closing: Any = items
        self._stack.push_async_callback(closing.aclose)
        return Reading(items)

    async def close(self) -> None:
        await self._stack.aclose()


async def error_of(done: Any) -> BusError | None:
    """The error that a publish ended with."""
    try:
        await done
    except BusError as error:
        return error
    return None
