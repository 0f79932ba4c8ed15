"""A newer release lists a cluster, and this one comes back: what it cannot read is not gone."""

import asyncio
from contextlib import nullcontext

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.base import SCHEMA_VERSION
from shared.contracts.messages.observed import Synced
from shared.contracts.subjects import join
from shared.telemetry import probes
from shared.testing.builders import workload
from shared.testing.probing import acts
from tests.unit.classifier.projection.test_handlers import Stage

NEWER = {SCHEMA_VERSION: "999"}
LATER = join("observed", "hub", "team", "later", detail=kinds.WORKLOAD.detail)
SYNCED = join("observed", "hub", None, None, detail="synced")


@pytest.mark.parametrize("lists", [True, False], ids=["listed it", "was listing it"])
def test_what_a_newer_release_wrote_is_not_gone(lists: bool) -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        stage.world.crash("classifier")
        await stage.bus.publish(workload("later", namespace="team", uid="u-later"))
        stage.server.publish(LATER, b"{}", NEWER)
        if lists:
            stage.server.publish(SYNCED, b"{}", NEWER)
        stage.world.restart("classifier")
        with nullcontext() if lists else acts(probes.NEWER_LISTING):
            await asyncio.sleep(60)
        assert [state.phase for state in stage.said() if state.name == "later"] == ["waiting"]

    stage.play(drive)


def test_what_this_release_lists_later_counts_again() -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        stage.world.crash("classifier")
        for name in ("later", "ended"):
            await stage.bus.publish(workload(name, namespace="team", uid=f"u-{name}"))
        stage.server.publish(LATER, b"{}", NEWER)
        stage.world.restart("classifier")
        await asyncio.sleep(60)
        await stage.show(name="later")
        await stage.bus.publish(Synced(cluster="hub", epoch="2", kinds=[], at=stage.world.now()))
        await asyncio.sleep(60)
        last = {state.name: state.phase for state in stage.said()}
        assert last == {"theirs": "waiting", "later": "waiting", "ended": "gone"}

    stage.play(drive)


def test_what_changed_behind_the_list_of_a_late_reader_is_not_gone() -> None:
    """The view has only its last state, which comes behind the list that it is in."""
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        stage.world.crash("classifier")
        await stage.bus.publish(workload("later", namespace="team", uid="u-later"))
        stage.server.publish(LATER, b"{}", NEWER)
        stage.world.restart("classifier")
        await asyncio.sleep(60)
        stage.world.links.hold("classifier", "bus", ways=("answer",), seconds=2)
        await stage.show()  # What comes behind it is read when this has arrived.
        await stage.show(name="later")
        await stage.bus.publish(Synced(cluster="hub", epoch="2", kinds=[], at=stage.world.now()))
        await stage.show(name="later")
        await asyncio.sleep(60)
        assert "gone" not in {state.phase for state in stage.said() if state.name == "later"}

    stage.play(drive)
