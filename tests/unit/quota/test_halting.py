"""Where a log is full quota admits nobody and gives back what ends; what cannot be carried out waits."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.testing.waiting import eventually
from shared.testing.world.memory_streams import MemoryStream
from tests.unit.quota.service_setup import Setup, became, explained, says


@pytest.mark.parametrize("log", ["ADMISSIONS", "WORKLOADS", "OUTCOMES"])
async def test_nearly_full_log_stops_admission_until_it_has_room(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)
    used = {log: 0.85}

    monkeypatch.setattr(
        MemoryStream, "fullness", property(lambda stream: used.get(stream.name, 0.0))
    )
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("y")
    await says(setup, "y", f"{log} is 85% full")
    assert await setup.states("y") == []
    used.clear()
    await became(setup, "y", "admitted")


async def test_quota_lets_go_of_decision_that_patcher_cannot_read(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    await setup.workload("y")
    unreadable = (await setup.last("x")).replace(term=0, number=0)
    late = datetime.now(UTC) + timedelta(minutes=1)
    await setup.outcome(unreadable, "release", "refused", message="cannot be read", at=late)
    await became(setup, "y", "admitted")
    await became(setup, "x", "waiting")
    assert "cannot be read" in (await setup.last("x")).message


async def test_decision_that_cannot_be_carried_out_keeps_its_quota_until_it_can(
    setup: Setup,
) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x", phase="running", held=False, pods_active=True)
    await became(setup, "x", "admitted")
    decision = await setup.last("x")
    await setup.outcome(decision, "hold", "refused", message="its decision cannot be read")

    async def is_held_back() -> bool:
        [item] = (await explained(setup, "x")).items
        return "keeps its quota, but its decision cannot be read" in item.message

    async def is_not() -> bool:
        return not await is_held_back()

    await eventually(is_held_back)
    assert (await setup.last("x")).state == "admitted"
    await setup.outcome(decision, "hold", "applied")
    await eventually(is_not)
