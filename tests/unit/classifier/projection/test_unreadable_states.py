"""A message in WORKLOADS that nobody can read: its workload is told again, or told to be gone."""

import asyncio

import pytest

from services.classifier.projection.handlers import ROOM_SECONDS
from shared.bus.headers import EVENT_ID
from shared.contracts.messages.base import SCHEMA_VERSION, UndecodableError
from shared.contracts.messages.workloads import WorkloadState
from tests.unit.classifier.projection.test_handlers import Stage
from tests.unit.classifier.projection.test_swept_names import SUBJECT, end

MESSAGES = [
    pytest.param(b'{"what": "ever"', {}, id="no JSON"),
    pytest.param(b"", {}, id="empty"),
    pytest.param(b"\xff\xfe", {}, id="no text"),
    pytest.param(b'{"cluster": "hub"}', {EVENT_ID: "x"}, id="lacks fields"),
    pytest.param(b"{}", {SCHEMA_VERSION: "999"}, id="of a newer schema"),
]


def phases(stage: Stage) -> list[str | None]:
    """Phase of each message about the workload; None for what nobody can read."""
    found: list[str | None] = []
    for one in stage.server.streams["WORKLOADS"].messages.values():
        try:
            found.append(WorkloadState.decode(one.data, one.headers).phase)
        except UndecodableError:
            found.append(None)
    return found


@pytest.mark.parametrize(("data", "headers"), MESSAGES)
@pytest.mark.parametrize("truncated", [False, True], ids=["with history", "without history"])
def test_workload_that_ended_behind_an_unreadable_message_is_gone(
    data: bytes, headers: dict[str, str], truncated: bool
) -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        stage.world.crash("classifier")
        stage.server.publish(SUBJECT, data, headers)
        if truncated:
            stage.server.streams["WORKLOADS"].truncate(1)
        await stage.delete()
        stage.world.restart("classifier")
        await asyncio.sleep(60)
        assert phases(stage) == [*([] if truncated else ["waiting"]), None, "gone"]

    stage.play(drive)


@pytest.mark.parametrize(("data", "headers"), MESSAGES)
def test_state_behind_an_unreadable_message_is_published_again(
    data: bytes, headers: dict[str, str]
) -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        stage.server.publish(SUBJECT, data, headers)
        await asyncio.sleep(ROOM_SECONDS + 60)
        assert phases(stage) == ["waiting", None, "waiting"]
        stored = list(stage.server.streams["WORKLOADS"].messages.values())
        assert WorkloadState.decode(stored[0].data) == WorkloadState.decode(stored[-1].data)

    stage.play(drive)


def test_state_of_a_reused_name_behind_an_unreadable_message_is_published_again() -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await end(stage)
        await stage.show()
        await asyncio.sleep(1)
        stage.server.publish(SUBJECT, b"{", {})
        await asyncio.sleep(ROOM_SECONDS + 60)
        assert phases(stage) == ["waiting", "gone", "waiting", None, "waiting"]

    stage.play(drive)


def test_tombstone_before_an_unreadable_message_is_published_again() -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await stage.delete()
        stage.server.publish(SUBJECT, b"{", {})
        await asyncio.sleep(ROOM_SECONDS + 60)
        assert phases(stage) == ["waiting", "gone", None, "gone"]

    stage.play(drive)


def test_subject_of_no_workload_does_not_stop_the_projection() -> None:
    stage = Stage()

    async def drive() -> None:
        stage.server.publish("sluice.workload.hub.team.theirs.more", b"{", {})
        stage.server.publish("sluice.workload.hub.=x.theirs", b"{", {})
        await asyncio.sleep(ROOM_SECONDS + 60)
        await stage.show()
        await asyncio.sleep(1)
        assert phases(stage) == [None, None, "waiting"]

    stage.play(drive)
