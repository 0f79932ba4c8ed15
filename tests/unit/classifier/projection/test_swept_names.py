"""Quota deletes the tombstone of a workload from the view: its name may come again, or what was before it."""

import asyncio

from shared.telemetry import probes
from tests.unit.classifier.projection.test_handlers import Stage

SUBJECT = "sluice.workload.hub.team.theirs"


async def end(stage: Stage) -> None:
    """The Workload object is deleted, and quota deletes its tombstone."""
    await stage.delete()
    assert stage.said()[-1].phase == "gone"
    stage.server.purge("WORKLOADS", SUBJECT, 1 << 30)


def test_reused_name_is_published_in_the_same_term() -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await end(stage)
        await stage.show()
        await asyncio.sleep(1)
        assert [state.phase for state in stage.said()] == ["waiting", "gone", "waiting"]

    stage.play(drive)


def test_reused_name_is_published_in_the_term_of_another_replica() -> None:
    stage = Stage()
    reused = probes.SWEPT_NAME_REUSED.fired

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await end(stage)
        await stage.show(name="another")  # Otherwise the view is empty, and nobody reads it.
        await asyncio.sleep(1)
        stage.world.crash("classifier")
        await asyncio.sleep(30)
        stage.world.process("second", stage._serve)
        await asyncio.sleep(30)
        await stage.show()
        await asyncio.sleep(30)
        theirs = [state.phase for state in stage.said() if state.name == "theirs"]
        assert theirs == ["waiting", "gone", "waiting"]

    stage.play(drive)
    assert probes.SWEPT_NAME_REUSED.fired == reused + 1


def test_what_a_killed_server_brought_back_gets_its_tombstone_again() -> None:
    stage = Stage()
    view = stage.server.view("WORKLOADS")
    view.keeps_replaced = True
    revived = probes.REVIVED.fired

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await end(stage)
        await stage.show(name="another")
        await asyncio.sleep(1)
        stage.world.crash("classifier")
        assert view.revive() == [SUBJECT]
        await asyncio.sleep(30)
        stage.world.process("second", stage._serve)
        await asyncio.sleep(30)
        theirs = [state.phase for state in stage.said() if state.name == "theirs"]
        assert theirs == ["waiting", "gone", "gone"]
        told = view.latest(SUBJECT, at=0.0)
        assert told is not None
        assert told.origin == stage.server.stream("WORKLOADS").last

    stage.play(drive)
    assert probes.REVIVED.fired == revived + 1
