"""`sluice hosts` beside a running system: what the records and the words about TaskRuns say, as a table."""

import asyncio
from datetime import UTC, datetime

from typer.testing import CliRunner

from services.ctl.main import app
from shared.bus.nats.bus import NatsBus
from shared.contracts.kube.kinds import CONFIG_MAP
from shared.contracts.messages.base import Message
from shared.contracts.messages.hosts import HostSlot, HostState, PlatformState
from shared.testing.builders import observed
from shared.testing.nats_server import nats_server
from tests.contract.bus.stage import Reading
from tests.unit.provisioner.harness import HOST_CONFIG, NAMESPACE

PLATFORM = "linux/ppc64le"


def said(now: datetime) -> list[Message]:
    seat = HostSlot(uid="u-1", namespace="team-a", name="one", host="power-1", address="10.0.0.1")
    return [
        observed(CONFIG_MAP, "host-config", namespace=NAMESPACE, data=HOST_CONFIG),
        PlatformState(cluster="hub", platform=PLATFORM, at=now, seats=[seat]),
        HostState(
            cluster="hub", namespace="team-a", name="two", uid="u-2", platform=PLATFORM,
            state="waiting", message=f"all hosts of {PLATFORM} are busy", at=now,
        ),
        HostState(
            cluster="hub", namespace="team-a", name="old", uid="u-0", platform=PLATFORM,
            state="released", at=now,
        ),
    ]  # fmt: skip


async def test_hosts_shows_running_and_waiting_task_runs() -> None:
    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="test", now=lambda: datetime.now(UTC))
        await bus.start()
        for message in said(datetime.now(UTC)):
            await bus.publish(message)
        for log in ("OBSERVED", "HOSTS"):
            await Reading(bus.watch(log)).until_caught_up()  # The command reads the views.
        await bus.stop()
        command = ["hosts", "--nats-url", server.url]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    row = next(line.split() for line in lines if line.startswith(PLATFORM))
    assert row[1:3] == ["static", "2"]
    assert row[3] == "1", "one is running"
    assert lines[-1] == f"team-a/two waits for {PLATFORM}: all hosts of {PLATFORM} are busy"
    assert "team-a/old" not in result.stdout
