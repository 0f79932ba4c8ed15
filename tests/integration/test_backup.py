"""What a backup holds: from it everything goes on in an empty server, as if nothing had been."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from services.ctl.dev.secure import secure
from services.ctl.main import app
from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.admin.apply import apply_at
from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.permissions import durables_of
from shared.bus.admin.snapshots import backup, restore
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.stream_reader import open_stream_reader
from shared.contracts.kube import kinds
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.workloads import Finish, WorkloadState
from shared.runtime.command import CommandError, Exit
from shared.testing.builders import cluster_queue_spec, observed, workload
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.clock import now

Json = dict[str, Any]


def waiting(name: str, age: int, **more: Any) -> WorkloadState:
    return workload(name, cpu=2, created_at=now() - timedelta(seconds=age), **more)


def world() -> list[Message]:
    """A queue for one at a time, one who has it, and one who waits."""
    queue = cluster_queue_spec(2, "any")
    return [
        observed(kinds.NAMESPACE, "team", {}),
        observed(kinds.RESOURCE_FLAVOR, "any", {}),
        observed(kinds.CLUSTER_QUEUE, "cq", queue),
        observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, "team"),
        waiting("first", 60),
        waiting("second", 30),
        Synced(cluster="hub", epoch="1", kinds=[], at=now()),
    ]


@asynccontextmanager
async def deciding(url: str) -> AsyncIterator[NatsBus]:
    """A quota service that decides there, and a bus to tell it things."""
    bus, own = (NatsBus(url=url, instance=name, now=now) for name in ("test", "quota"))
    await bus.start()
    await own.start()
    service = assemble(settings=QuotaSettings(reason_delay_seconds=0), bus=own, now=now)
    running = asyncio.create_task(service.run())
    yield bus
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await own.stop()
    await bus.stop()


async def decisions(url: str) -> list[Any]:
    async with open_stream_reader(url) as look:
        return await look.now("ADMISSIONS", "sluice.admission.>")


async def decided(url: str) -> list[tuple[str, str, int]]:
    """Name, state and term of all that was ever decided."""
    async with open_stream_reader(url) as look:
        bodies = [seen.body for seen in await look.replay("ADMISSIONS", "sluice.admission.>")]
    return [(body["name"], body["state"], body["term"]) for body in bodies]


async def until(url: str, wanted: dict[str, str]) -> None:
    """The last decision about each workload: its state and reason."""
    found: dict[str, str] = {}

    async def shown() -> bool:
        bodies = [seen.body for seen in await decisions(url)]
        found.update({one["name"]: f"{one['state']} {one['reason']}".strip() for one in bodies})
        return found == wanted

    await eventually(shown, lambda: found)


async def sluice(url: str, *arguments: str) -> Result:
    command = [*arguments, "--nats-url", url]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command))


async def test_services_continue_from_a_backup_in_an_empty_server(tmp_path: Path) -> None:
    target = str(tmp_path / "backup")
    async with nats_server() as old:
        async with deciding(old.url) as bus:
            for message in world():
                await bus.publish(message)
            await until(old.url, {"first": "admitted", "second": "waiting WaitingForQuota"})
            done = await sluice(old.url, "bus", "backup", target)
            assert "ADMISSIONS: " in done.stdout, done
            assert "LEASES" not in done.stdout
        before = await decided(old.url)

    async with nats_server(streams=False) as new:
        done = await sluice(new.url, "bus", "restore", target)
        assert done.exit_code == Exit.OK, done
        applied = await sluice(new.url, "bus", "apply")
        changes = [line for line in applied.stdout.splitlines() if "unchanged" not in line]
        streams = [line for line in changes if "/" not in line]
        assert streams == ["LEASES: created"], "all else is as it was declared"
        durables = sorted(line.partition("/")[2] for line in changes if "/" in line)
        assert durables == sorted(f"{name}: created" for name in durables_of("hub"))
        async with deciding(new.url) as bus:
            await bus.publish(Synced(cluster="hub", epoch="2", kinds=[], at=now()))
            finish = Finish(success=True, message="done", at=now())
            await bus.publish(waiting("first", 60, phase="finished", finish=finish))
            await until(new.url, {"first": "released Finished", "second": "admitted"})
        after = await decided(new.url)
        assert after[: len(before)] == before
        news = after[len(before) :]
        assert [(name, state) for name, state, _ in news] == [
            *(("first", "released"), ("second", "admitted")),
        ], "nothing is decided twice"
        assert {term > before[-1][2] for *_, term in news} == {True}, "a term is never used again"


async def test_restore_never_overwrites_a_stream(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    async with nats_server() as server:
        done = await sluice(server.url, "bus", "backup", str(target))
        assert done.exit_code == Exit.OK, done
        kept = json.loads((target / "WORKLOADS" / "backup.json").read_text())
        assert kept["config"]["name"] == "WORKLOADS"
        for arguments, said in {
            ("bus", "backup", str(target)): "is there already and is not empty",
            ("bus", "restore", str(target)): "is there already: nothing was restored",
            ("bus", "restore", str(tmp_path)): "has no backup",
        }.items():
            refused = (await sluice(server.url, *arguments)).exception
            assert isinstance(refused, CommandError)
            assert said in str(refused)
            assert refused.status == Exit.FAILED


async def test_user_that_declares_streams_may_back_up_and_restore(tmp_path: Path) -> None:
    secured = secure(tmp_path / "users", (), now())
    for turn in ("save", "restore"):
        server = await EmbeddedServer(tmp_path / turn, config=secured.config).start()
        try:
            access = secured.access("bus")
            if turn == "save":
                await apply_at(server.url, access=access)
            async with open_stream_reader(server.url, access=access) as look:
                do = backup if turn == "save" else restore
                done = [
                    saved.stream async for saved in do(look, tmp_path / "backup", ElectionRetry())
                ]
            assert {"ADMISSIONS", "ADMISSIONS_NOW"} <= set(done)
            assert "Violation" not in server.log
        finally:
            await server.kill()


async def test_stream_that_the_server_cannot_read_just_now_is_asked_for_again(
    tmp_path: Path,
) -> None:
    server = await EmbeddedServer(tmp_path / "server").start()
    try:
        await apply_at(server.url, cluster="hub")
        (state,) = (tmp_path / "server").glob("**/WORKLOADS_NOW/obs/patcher-hub-workload/o.dat")
        good = state.read_bytes()
        told: list[str] = []

        def mend(text: str) -> None:
            told.append(text)
            state.write_bytes(good)

        state.write_bytes(b"spoiled")
        async with open_stream_reader(server.url) as look:
            saved = {
                one.stream async for one in backup(look, tmp_path / "backup", ElectionRetry(mend))
            }
        assert {"WORKLOADS_NOW", "WORKLOADS"} <= saved
        assert [text.partition(" 500 ")[0] for text in told] == ["snapshot of WORKLOADS_NOW:"]
    finally:
        await server.kill()
