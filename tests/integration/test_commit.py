"""`sluice bus migrate --commit`: before it the older release may come back, after it that one refuses."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from services.ctl.main import app
from shared.bus.admin.apply import apply
from shared.bus.admin.commit import commit
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import NewerFormatError
from shared.bus.spoke_gateway import SpokeGateway
from shared.bus.stream_reader import JetStreamError, StreamReader, open_stream_reader
from shared.bus.streams import committed_of, is_log_or_view, load
from shared.contracts.messages.base import COMMITTED, EPOCH, FORMAT
from shared.runtime.command import CommandError
from shared.runtime.service import Hosted, Program
from shared.settings.base import ServiceSettings
from shared.testing.deployed import bus_of
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.clock import now
from tests.integration.buses import make
from tests.integration.spoke_bus import bus_at
from tests.integration.spoke_servers import servers
from tests.integration.test_permissions import WORKERS
from tests.integration.test_permissions import server as secured_server

NEXT = FORMAT + 1
NAMES = [name for name in load().configs() if is_log_or_view(name)]
Json = dict[str, Any]

RAISED = (
    "from shared.contracts.messages import base; base.FORMAT += 1; "
    "from services.ctl.main import main; main()"
)
"""The program of the next release: the same, with a raised format."""


async def configs(look: StreamReader) -> dict[str, Json]:
    return {name: await config_of(look, name) for name in NAMES}


async def config_of(look: StreamReader, name: str) -> Json:
    config: Json = (await look.call(f"STREAM.INFO.{name}"))["config"]
    return config


async def ends(look: StreamReader) -> dict[str, int]:
    return {name: (await look.call(f"STREAM.INFO.{name}"))["state"]["last_seq"] for name in NAMES}


async def committed(look: StreamReader) -> set[str]:
    return {committed_of(config) for config in (await configs(look)).values()}


async def commit_to(server: EmbeddedServer, to: int) -> set[str]:
    async with open_stream_reader(server.url) as look:
        return {one.action async for one in commit(look.nc, to=to)}


async def sluice(server: EmbeddedServer, *arguments: str) -> Result:
    command = [*arguments, "--nats-url", server.url]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command))


async def test_command_commits_each_log_and_view_once_and_keeps_all_else(
    server: EmbeddedServer,
) -> None:
    async with open_stream_reader(server.url) as look:
        before = await configs(look)
        for arguments, problem in (
            (("--commit",), "needs --plan or --yes"),
            (("--plan",), "needs either --from or --commit"),
            (("--commit", "--from", server.url, "--yes"), "needs either --from or --commit"),
        ):
            assert problem in str((await sluice(server, "bus", "migrate", *arguments)).exception)
        planned = await sluice(server, "bus", "migrate", "--commit", "--plan")
        assert sorted(planned.stdout.splitlines()) == sorted(
            f"{name}: commit (format {FORMAT})" for name in NAMES
        )
        assert await configs(look) == before, "a plan changes nothing"
        done = await sluice(server, "bus", "migrate", "--commit", "--yes")
        assert f"ADMISSIONS_NOW: committed (format {FORMAT})" in done.stdout
        after = await configs(look)
        for name in NAMES:
            assert after[name]["metadata"].pop(COMMITTED) == str(FORMAT)
            assert after[name]["metadata"][EPOCH]
        assert after == before
        again = await sluice(server, "bus", "migrate", "--commit", "--yes")
        assert set(again.stdout.splitlines()) == {
            f"{n}: unchanged (format {FORMAT})" for n in NAMES
        }


async def test_streams_with_a_newer_format_are_not_lowered_and_apply_does_not_touch_them(
    server: EmbeddedServer,
) -> None:
    assert await commit_to(server, NEXT) == {"committed"}
    async with open_stream_reader(server.url) as look:
        before = await configs(look)
        reason = f"is committed to format {NEXT} of the logs, and this release has format {FORMAT}"
        lower = await sluice(server, "bus", "migrate", "--commit", "--yes")
        assert reason in lower.stdout
        assert "nothing was committed" in str(lower.exception)
        await look.call("STREAM.DELETE.QUEUES")
        applied = await sluice(server, "bus", "apply")
        assert reason in applied.stdout
        assert applied.exit_code == 1
        with pytest.raises(JetStreamError):
            await look.call("STREAM.INFO.QUEUES")
        assert await config_of(look, "WORKLOADS") == before["WORKLOADS"]


async def test_nothing_is_committed_while_a_stream_is_missing(server: EmbeddedServer) -> None:
    async with open_stream_reader(server.url) as look:
        await look.call("STREAM.DELETE.DEAD_NOW")
        refused = await sluice(server, "bus", "migrate", "--commit", "--yes")
        assert "DEAD_NOW: refused (it is missing: run `sluice bus apply`)" in refused.stdout
        assert isinstance(refused.exception, Exception)
        assert committed_of(await config_of(look, "ADMISSIONS")) == ""


async def test_apply_keeps_the_commit_and_takes_it_over_to_streams_that_it_makes(
    server: EmbeddedServer,
) -> None:
    await commit_to(server, FORMAT)
    async with open_stream_reader(server.url) as look:
        config = await config_of(look, "QUEUES")
        await look.call("STREAM.UPDATE.QUEUES", config | {"max_bytes": 1 << 20})
        for name in ("SPOKES", "SPOKES_NOW"):
            await look.call(f"STREAM.DELETE.{name}")
        report = await apply(look.nc, rebuild=["QUEUES_NOW"])
        actions = {change.stream: change.action for change in report.changes}
        assert actions["QUEUES"] == "updated"
        assert actions["QUEUES_NOW"] == "rebuilt"
        assert actions["SPOKES"] == actions["SPOKES_NOW"] == "created"
        assert await committed(look) == {str(FORMAT)}


async def test_streams_on_a_new_server_are_committed_to_nothing(server: EmbeddedServer) -> None:
    async with open_stream_reader(server.url) as look:
        assert await committed(look) == {""}


async def test_doctor_and_commands_that_publish_say_that_a_newer_release_is_needed(
    server: EmbeddedServer,
) -> None:
    await commit_to(server, NEXT)
    found = json.loads((await sluice(server, "doctor", "-o", "json")).stdout)
    [finding] = [each for each in found if f"format {NEXT}" in each["problem"]]
    assert finding["where"] == "streams"
    assert finding["wrong"]
    assert "install the newer release" in finding["advice"]
    refused = await sluice(server, "dead", "retry", "--all")
    assert isinstance(refused.exception, CommandError)
    assert f"committed to format {NEXT}" in str(refused.exception)


async def test_commit_that_was_interrupted_stops_the_older_release_and_may_be_repeated(
    server: EmbeddedServer,
) -> None:
    async with open_stream_reader(server.url) as look:
        writing = commit(look.nc, to=NEXT)
        first = await anext(writing)
        await writing.aclose()  # type: ignore[attr-defined]
        assert (first.stream, first.action) == ("ADMISSIONS", "committed")
        assert await committed(look) == {"", str(NEXT)}
        with pytest.raises(NewerFormatError):
            await make(server).start()
        assert await commit_to(server, NEXT) == {"unchanged", "committed"}
        assert await committed(look) == {str(NEXT)}


async def test_service_that_asks_for_nothing_finds_the_commit_by_itself(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.bus.nats.tails.lost.CHECK_SECONDS", 0.2)
    bus = make(server)
    await bus.start()
    await commit_to(server, NEXT)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await bus.outdated()).problem.startswith("stream ADMISSIONS is committed")
    await bus.stop()


async def test_service_that_is_ready_without_nats_is_not_ready_after_the_commit(
    server: EmbeddedServer,
) -> None:
    class Idle:
        async def run(self) -> None:
            await asyncio.Event().wait()

        def ready(self) -> str | None:
            return None

    settings = ServiceSettings(nats_url=server.url)
    hosted = Hosted(
        Program(
            name="classifier", settings=settings, build=lambda _: Idle(), ready_without_bus=True
        )
    )
    assert hosted.ready() is None
    await commit_to(server, NEXT)
    with pytest.raises(ExceptionGroup):
        await hosted.run()
    assert f"is committed to format {NEXT}" in (hosted.ready() or "")


async def test_each_user_of_the_bus_may_read_to_what_the_streams_are_committed(
    tmp_path: Path,
) -> None:
    async with secured_server(tmp_path) as (running, secured):
        async with open_stream_reader(running.url, access=secured.access("bus")) as look:
            assert {one.action async for one in commit(look.nc, to=NEXT)} == {"committed"}
        for user in (*WORKERS, "viewer"):
            bus = bus_of(user, running.url, secured.access(user))
            with pytest.raises(NewerFormatError):
                await bus.start()
            await bus.stop()


async def test_spoke_of_the_older_release_is_refused_behind_a_hub_of_the_newer_one() -> None:
    async with servers("east", door=False) as found:
        door = NatsBus(url=found.hub, instance="door", now=now, known_format=NEXT)
        await door.start()
        keeping = asyncio.create_task(SpokeGateway(door).run())
        try:
            async with bus_at(found.direct["east"], "before") as spoke:
                assert spoke.connected
            async with open_stream_reader(found.hub) as look:
                assert {one.action async for one in commit(look.nc, to=NEXT)} == {"committed"}
            for url in (found.direct["east"], found.leaf):
                with pytest.raises(NewerFormatError):
                    await NatsBus(url=url, instance="watcher-east", now=now).start()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await door.stop()


class Quota:
    """Quota as a process, and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode())

    @property
    def log(self) -> str:
        return "".join(self.lines)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def quota(server: EmbeddedServer, *, raised: bool = False) -> AsyncIterator[Quota]:
    how = ("-c", RAISED) if raised else ("-m", "services.ctl.main")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *how, "run", "quota"),
        env={
            "SLUICE_NATS_URL": server.url,
            "SLUICE_HEALTH_PORT": "0",
            "SLUICE_HEALTH_HOST": "127.0.0.1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    running = Quota(process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        await listening


async def leads(server: EmbeddedServer, running: Quota, terms: int) -> None:
    """Wait until quota has published so many terms in all."""
    async with open_stream_reader(server.url) as look:

        async def published() -> bool:
            return (await ends(look))["ADMISSIONS"] >= terms

        await eventually(published, lambda: running.log)


async def test_process_of_the_older_release_serves_until_the_commit_and_never_afterwards(
    server: EmbeddedServer,
) -> None:
    reason = f"is committed to format {NEXT} of the logs, and this release has format {FORMAT}"
    async with quota(server, raised=True) as running:
        await leads(server, running, 1)
    async with quota(server) as running:  # Back to the release before.
        await leads(server, running, 2)
        await commit_to(server, NEXT)
        assert await running.ended() == 1
    assert reason in running.log
    assert "the service cannot run" in running.log
    assert "install the newer release" in running.log
    assert "Traceback" not in running.log
    async with open_stream_reader(server.url) as look:
        before = await ends(look)
        async with quota(server) as running:
            assert await running.ended() == 1
        assert reason in running.log
        assert "Traceback" not in running.log
        assert await ends(look) == before, "it has published nothing"
    async with quota(server, raised=True) as running:
        await leads(server, running, 3)
