"""`sluice spokes` beside a running system: a row for each, and an operator's word that one is lost."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.ctl.admin.lost_spoke import write_declaration
from services.ctl.main import app
from services.simulator.app import Simulator
from services.simulator.local import LocalKube
from shared.bus.nats.bus import NatsBus
from shared.contracts.kube.kinds import MULTIKUEUE_CLUSTER
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import SpokeCounts, SpokeState
from shared.runtime.command import CommandError
from shared.testing.builders import observed
from shared.testing.nats_server import nats_server
from tests.contract.bus.stage import Reading

LOST = "sluicegate.dev/lost"


def named(spoke: str) -> Observed:
    return observed(MULTIKUEUE_CLUSTER, spoke)


def standing(spoke: str, *, active: bool, why: str) -> SpokeState:
    return SpokeState(
        cluster="hub", spoke=spoke, active=active, reason="Active" if active else "DeclaredLost",
        message=why, counts=SpokeCounts(offered=1, chosen=3), free={"cpu": "5"},
        at=datetime.now(UTC),
    )  # fmt: skip


async def test_exit_status_of_spokes_says_whether_all_are_connected() -> None:
    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="test", now=lambda: datetime.now(UTC))
        await bus.start()
        shown = []
        for west in (
            standing("west", active=True, why="Connected"),
            standing("west", active=False, why="An operator declared it lost: flood"),
        ):
            for message in (named("west"), west):
                await bus.publish(message)
            for log in ("OBSERVED", "SPOKES"):
                await Reading(bus.watch(log)).until_caught_up()  # The command reads the views.
            shown.append(
                await asyncio.to_thread(
                    CliRunner().invoke, app, ["spokes", "--nats-url", server.url]
                )
            )
        await bus.stop()
    assert [result.exit_code for result in shown] == [0, 1], [r.output for r in shown]
    row = shown[0].stdout.splitlines()[1].split()
    assert row[:5] == ["west", "True", "1", "3", "0"]
    assert "cpu=5" in row
    assert shown[1].stdout.rstrip().endswith("DeclaredLost: An operator declared it lost: flood")


async def test_spoke_is_declared_lost_and_found_again(tmp_path: Path) -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    try:
        kube, kind = LocalKube(simulator.api), MULTIKUEUE_CLUSTER
        file = tmp_path / "kubeconfig"
        file.write_text(simulator.kubeconfig())
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "west"}}
        await kube.create(kind, obj)

        async def say(*words: str) -> str:
            command = ["spokes", *words, "--kubeconfig", str(file)]
            result = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert result.exit_code == 0, result.output
            return result.stdout.strip()

        async def annotations() -> dict[str, str]:
            found: dict[str, str] = (await kube.get(kind, None, "west"))["metadata"].get(
                "annotations"
            ) or {}
            return found

        given_up = "multikueuecluster west is given up as lost: flood"
        assert await say("lost", "west", "--reason", "flood") == given_up
        assert await annotations() == {LOST: "flood"}
        assert await say("lost", "west", "--reason", "flood") == f"{given_up} already"
        assert await say("found", "west") == "multikueuecluster west is not given up"
        assert await annotations() == {}
        with pytest.raises(CommandError, match="multikueuecluster nowhere: not found"):
            await write_declaration(kube, "nowhere", "flood")
    finally:
        await simulator.stop()
