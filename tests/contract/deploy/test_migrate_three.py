"""Three open servers, and three with TLS and users, to which `sluice bus migrate` moves all of it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.bus.admin.apply import apply, apply_at
from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.migration import migrate
from shared.bus.admin.snapshots import backup
from shared.bus.embedded import EmbeddedServer
from shared.bus.port import UnavailableError
from shared.bus.stream_reader import StreamReader, open_stream_reader
from shared.bus.streams import DATA
from shared.settings.access import Access
from shared.settings.ports import reserve_port
from tests.contract.deploy.test_nats import (
    ALL_SECONDS,
    SERVERS,
    applied,
    folder,
    three,
    user_of,
)
from tests.integration.test_migrate import actions, furnish, state

__all__ = ["folder"]

OPEN = """
include "{settings}"
server_name: open-{number}
cluster {{ name: open, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""


@asynccontextmanager
async def three_open(folder: Path) -> AsyncIterator[list[EmbeddedServer]]:
    ports = [reserve_port() for _ in range(SERVERS)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = []
    for number, port in enumerate(ports):
        own = folder / f"open-{number}"
        own.mkdir()
        (own / "settings.conf").write_text((DATA / "server.conf").read_text())
        text = OPEN.format(settings="settings.conf", number=number, port=port, routes=routes)
        (own / "server.conf").write_text(text)
        servers.append(EmbeddedServer(own, config=own / "server.conf"))
    try:
        await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        await asyncio.gather(*(server.kill() for server in servers))


async def test_three_servers_with_tls_and_users_get_every_stream_of_three_open_ones(
    folder: Path,
) -> None:
    access = user_of(folder, "bus")
    async with (
        three_open(folder) as old,
        three(folder) as new,
        asyncio.timeout(ALL_SECONDS),
    ):
        await applied(old[0].url, Access())
        await furnish(old[0].url)
        async with (
            open_stream_reader(old[1].url) as source,
            open_stream_reader(new[1].url, access=access) as target,
        ):
            before = await state(source)
            steps = [step async for step in migrate(source.nc, target.nc, folder / "first")]
            assert actions(steps) == {"moved"}, "\n".join(map(str, steps))
            assert await state(target) == before
            again = [step async for step in migrate(source.nc, target.nc, folder / "second")]
            assert actions(again) == {"moved"}, again
            report = await apply(target.nc)
            assert {change.action for change in report.changes} == {"unchanged"}, report
            for stream in before:
                info = await target.call(f"STREAM.INFO.{stream}")
                assert info["config"]["num_replicas"] == SERVERS, stream
        with pytest.raises(UnavailableError):
            await apply_at(new[1].url, access=Access(ca=folder / "tls" / "ca.crt"))


async def test_election_delays_what_applies_and_copies_streams_and_spoils_nothing(
    folder: Path,
) -> None:
    async with three_open(folder) as servers, asyncio.timeout(ALL_SECONDS):
        await applied(servers[0].url, Access())
        await furnish(servers[0].url)
        async with open_stream_reader(servers[0].url) as look:
            for number, work in enumerate((_apply, _backup)):
                told: list[str] = []

                def wake(text: str, told: list[str] = told) -> None:
                    told.append(text)
                    for server in servers[1:]:
                        server.signal(signal.SIGCONT)

                for server in servers[1:]:
                    server.signal(signal.SIGSTOP)  # The one that is left elects nobody.
                await work(look, folder / str(number), ElectionRetry(wake))
                assert told


async def _apply(look: StreamReader, _: Path, retry: ElectionRetry) -> None:
    report = await apply(look.nc, cluster="hub", retry=retry)
    assert report.ok
    made = {change.action for change in report.changes} - {"unchanged"}
    assert made <= {"updated"}, "the durable that has work was made by its worker"


async def _backup(look: StreamReader, target: Path, retry: ElectionRetry) -> None:
    saved = {one.stream: one.messages async for one in backup(look, target, retry)}
    assert saved["WORKLOADS"] == 3
