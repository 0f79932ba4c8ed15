"""Views of three servers hear from their logs again after all servers were killed."""

import asyncio
from contextlib import suppress
from pathlib import Path

from nats.aio.msg import Msg
from structlog.testing import capture_logs

from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.nats.tails.sources import is_cut_off
from shared.bus.port import BusError
from shared.bus.streams import LEADER_ELECTED, load, view_of
from shared.testing.deployed import bus_of
from shared.testing.waiting import eventually
from tests.contract.deploy.test_nats import ALL_SECONDS, applied, folder, three, user_of

__all__ = ["folder"]

OUTAGES = 5


async def hear_from_their_logs(bus: NatsBus) -> bool:
    """Whether every view does."""
    with suppress(BusError):
        for log in load().logs:
            if is_cut_off(await call(bus.connection.nc, f"STREAM.INFO.{view_of(log)}")):
                return False
        return True
    return False


async def test_views_that_an_election_cut_off_are_led_by_another_server(folder: Path) -> None:
    async with three(folder) as servers, asyncio.timeout(ALL_SECONDS):
        await applied(servers[0].url, user_of(folder, "bus"))
        bus = bus_of("quota", ",".join(one.url for one in servers), user_of(folder, "quota"))
        with capture_logs() as said:
            await bus.start()
            await eventually(lambda: hear_from_their_logs(bus))
            elected: set[str] = set()
            moved: dict[str, str] = {}

            async def hear(message: Msg) -> None:
                elected.add(message.subject.rpartition(".")[2])

            await bus.connection.nc.subscribe(LEADER_ELECTED, cb=hear)
            for _ in range(OUTAGES):  # Which views find their log without a leader is chance.
                said.clear()
                await asyncio.gather(*(one.kill() for one in servers))
                await asyncio.gather(*(one.start() for one in servers))
                await eventually(lambda: hear_from_their_logs(bus))
                moved = {one["view"]: one["leader"] for one in said if "cut off" in one["event"]}
                if moved:
                    break
            info = {one: await call(bus.connection.nc, f"STREAM.INFO.{one}") for one in moved}
            led = {one: found["cluster"]["leader"] for one, found in info.items()}
            elected.clear()
            await call(bus.connection.nc, "STREAM.LEADER.STEPDOWN.WORKLOADS_NOW")
            await eventually(lambda: "WORKLOADS_NOW" in elected)
            await bus.stop()
    assert moved, f"no view was cut off in {OUTAGES} outages: does nats-server do without us?"
    assert led != moved, "another server leads at least one of them"
    assert not [one for one in said if "denies permission" in one["event"]]
