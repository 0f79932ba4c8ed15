"""`sluice bus migrate`: from an open server to one with users, and nothing has another number."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from services.ctl.dev.secure import Secured, secure
from services.ctl.main import app
from shared.bus.admin.apply import apply
from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.migration import Step, migrate, plan
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.port import Entry
from shared.bus.stream_reader import JetStreamError, StreamReader, open_stream_reader
from shared.bus.streams import epoch_of, load
from shared.runtime.command import CommandError
from shared.testing.builders import workload
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.clock import now

Json = dict[str, Any]
BODY = b"large" * 100_000


@asynccontextmanager
async def both(tmp_path: Path) -> AsyncIterator[tuple[str, StreamReader, StreamReader]]:
    """An open server with work half done, and an empty one with users."""
    secured = secure(tmp_path / "users", (), now())
    closed = await EmbeddedServer(tmp_path / "closed", config=secured.config).start()
    try:
        async with nats_server() as old:
            await furnish(old.url)
            async with (
                open_stream_reader(old.url) as source,
                open_stream_reader(closed.url, access=secured.access("bus")) as target,
            ):
                yield old.url, source, target
    finally:
        await closed.kill()


async def furnish(url: str) -> None:
    bus = NatsBus(url=url, instance="patcher", now=now)

    async def handle(_: Entry) -> None:
        pass

    async def all_is_handled() -> bool:
        async with open_stream_reader(url) as look:
            log = await look.call("STREAM.INFO.WORKLOADS")
            found = await look.call("CONSUMER.LIST.WORKLOADS_NOW", {"offset": 0})
        floors = [one["ack_floor"]["stream_seq"] for one in found["consumers"]]
        return floors == [log["state"]["last_seq"]]

    bus.work("WORKLOADS", "patcher-hub-workload", handle)
    await bus.start()
    for name in ("a", "b", "a"):
        await bus.publish(workload(name, created_at=now()))
    await bus.put_body("a-body", BODY)
    await eventually(all_is_handled)
    await bus.stop()


async def state(look: StreamReader) -> dict[str, Any]:
    """What is in each stream, and where its durables stand."""
    found: dict[str, Any] = {}
    for name in load().configs():
        try:
            info = await look.call(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
        except JetStreamError:
            found[name] = None
            continue
        consumers = await look.call(f"CONSUMER.LIST.{name}", {"offset": 0})
        kept = ["messages", "last_seq", "subjects", "num_deleted"]
        if info["state"]["messages"]:
            kept.append("first_seq")  # An empty stream begins at 0, or at 1 once it was restored.
        found[name] = {
            "state": {field: info["state"].get(field) for field in kept},
            "durables": {
                one["name"]: (one["ack_floor"]["stream_seq"], one["num_pending"])
                for one in consumers["consumers"]
            },
            "epoch": epoch_of(info["config"]),
        }
    return found


def actions(steps: list[Step]) -> set[str]:
    return {step.action for step in steps}


async def moved(source: StreamReader, target: StreamReader, folder: Path) -> list[Step]:
    return [step async for step in migrate(source.nc, target.nc, folder)]


async def test_migration_keeps_every_sequence_durable_and_body(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, source, target):
        assert actions(await plan(source.nc, target.nc)) == {"move"}
        before = await state(source)
        assert before["WORKLOADS"]["state"]["last_seq"] == 3
        assert before["WORKLOADS_NOW"]["durables"]
        steps = await moved(source, target, tmp_path / "first")
        assert actions(steps) == {"moved"}, steps
        assert await state(target) == before
        again = await moved(source, target, tmp_path / "second")
        assert actions(again) == {"moved"}, "it may be repeated"
        assert not (tmp_path / "second").exists(), "nothing was copied again"
        assert await state(target) == before


async def test_server_that_does_not_answer_for_a_while_is_asked_again() -> None:
    async with nats_server() as server, open_stream_reader(server.url) as look:
        told: list[str] = []

        def wake(text: str) -> None:
            told.append(text)
            server.signal(signal.SIGCONT)

        server.signal(signal.SIGSTOP)
        assert actions(await plan(look.nc, look.nc, retry=ElectionRetry(wake))) == {"moved"}
        assert "asking again" in told[0]


async def test_streams_that_apply_made_empty_are_replaced(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, source, target):
        for name, config in load().configs().items():
            await call(target.nc, f"STREAM.CREATE.{name}", config)
        assert "WORKLOADS: move, 3 messages up to 3 (in the place of an empty one)" in map(
            str, await plan(source.nc, target.nc)
        )
        async for step in migrate(source.nc, target.nc, tmp_path / "first"):
            if step.stream == "WORKLOADS_NOW":
                await asyncio.sleep(2)  # So long a view would follow an empty log meanwhile.
        assert await state(target) == await state(source)


async def test_log_that_went_on_at_the_source_is_refused_and_not_overwritten(
    tmp_path: Path,
) -> None:
    async with both(tmp_path) as (url, source, target):
        await moved(source, target, tmp_path / "first")
        before = await state(target)
        bus = NatsBus(url=url, instance="late", now=now)
        await bus.start()
        await bus.publish(workload("late", created_at=now()))
        await bus.stop()
        refused = [step for step in await plan(source.nc, target.nc) if step.action == "refused"]
        assert [step.stream for step in refused] == ["WORKLOADS"]
        assert "stop the services" in refused[0].detail
        await moved(source, target, tmp_path / "second")
        assert await state(target) == before


@pytest.mark.parametrize("made", [True, False])
async def test_server_with_other_streams_is_refused(tmp_path: Path, *, made: bool) -> None:
    async with both(tmp_path) as (_, source, target), nats_server(streams=made) as other:
        if made:
            await furnish(other.url)
            async with open_stream_reader(other.url) as theirs:
                await moved(theirs, target, tmp_path / "first")
                found = {step.stream: step.action for step in await plan(source.nc, target.nc)}
                assert found["WORKLOADS"] == "refused"
        else:
            async with open_stream_reader(other.url) as theirs:
                assert actions(await plan(theirs.nc, target.nc)) == {"absent"}


async def test_apply_after_a_migration_changes_nothing(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, source, target):
        await moved(source, target, tmp_path / "first")
        report = await apply(target.nc)
        assert {change.action for change in report.changes} == {"unchanged"}, report


async def test_command_shows_its_plan_then_moves_and_says_what_is_refused(tmp_path: Path) -> None:
    secured = Secured(folder=tmp_path / "users", config=tmp_path / "users" / "server.conf")
    async with both(tmp_path) as (url, _, target):
        to = ("--nats-url", f"nats://{target.nc.connected_url.netloc}")  # type: ignore[union-attr]

        async def sluice(*arguments: str) -> Result:
            command = ["bus", "migrate", "--from", url, *arguments, *to]
            environment = secured.environment("bus")
            return await asyncio.to_thread(
                lambda: CliRunner().invoke(app, command, env=environment)
            )

        unsure = (await sluice()).exception
        assert "needs --plan or --yes" in str(unsure)
        planned = await sluice("--plan")
        assert "WORKLOADS: move, 3 messages up to 3" in planned.stdout, planned
        assert (await state(target))["WORKLOADS"] is None
        done = await sluice("--yes")
        assert "WORKLOADS_NOW: moved, 2 messages up to 3 (1 durables)" in done.stdout, done
        await furnish(url)
        refused = await sluice("--plan")
        assert "stop the services" in refused.stdout
        assert isinstance(refused.exception, CommandError)
