"""A workload's name may come again after quota has deleted its tombstone from the view."""

import asyncio

from shared.telemetry import probes
from tests.unit.classifier.projection.test_handlers import Stage

SUBJECT = "sluice.workload.hub.team.theirs"


async def end(stage: Stage) -> None:
    """The Workload object is deleted, and quota deletes its tombstone."""
    await stage.delete()
    assert stage.said()[-1].phase == "gone"
    stage.server.purge("WORKLOADS", SUBJECT, 1 << 30)


def test_name_comes_again_in_the_same_term() -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await end(stage)
        await stage.show()
        await asyncio.sleep(1)
        assert [state.phase for state in stage.said()] == ["waiting", "gone", "waiting"]

    stage.play(drive)


def test_name_comes_again_in_the_term_of_another_replica() -> None:
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
