"""A server that was cut off from the others answers with what it had, and is not believed for long."""

from collections.abc import AsyncIterator

import pytest

from shared.bus.port import CaughtUp, UnavailableError
from shared.contracts.messages.admissions import Admission
from shared.testing.builders import admission, workload
from shared.testing.waiting import eventually
from shared.testing.world.connection import Deposed
from shared.testing.world.memory_bus import MemoryBus, MemoryServer

LED = ("ADMISSIONS", "ADMISSIONS_NOW")


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer(replicated=True)


@pytest.fixture
async def leader(server: MemoryServer) -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(server, instance="quota-1")
    await bus.start()
    yield bus
    await bus.stop()


@pytest.fixture
async def cut_off(server: MemoryServer, leader: MemoryBus) -> AsyncIterator[MemoryBus]:
    """Connected to a server that has the first of two decisions only."""
    bus = MemoryBus(server, instance="patcher-1")
    await bus.start()
    await leader.publish(decision(1))
    server.deposed["patcher-1"] = Deposed(server, LED)
    await leader.publish(decision(2))
    yield bus
    server.deposed.clear()
    await bus.stop()


def decision(number: int) -> Admission:
    return admission(workload("train"), number=number)


async def test_deposed_server_answers_with_its_old_message(
    leader: MemoryBus, cut_off: MemoryBus
) -> None:
    subject = decision(1).subject
    numbers = [
        Admission.decode(entry.data).number
        for bus in (leader, cut_off)
        if (entry := await bus.latest("ADMISSIONS", subject)) is not None
    ]
    assert numbers == [2, 1]


async def test_deposed_server_refuses_current_reads_once_the_others_are_silent(
    server: MemoryServer, cut_off: MemoryBus
) -> None:
    subject = decision(1).subject
    assert await cut_off.latest("ADMISSIONS", subject, current=True) is not None
    server.deposed["patcher-1"] = Deposed(server, LED, silent_seconds=10.0)
    with pytest.raises(UnavailableError, match="not heard from the others"):
        await cut_off.latest("ADMISSIONS", subject, current=True)
    with pytest.raises(UnavailableError, match="not heard from the others"):
        await cut_off.log_end("ADMISSIONS")
    with pytest.raises(UnavailableError, match="not heard from the others"):
        await cut_off.void("ADMISSIONS")


async def test_last_decision_is_not_told_while_nobody_says_whether_a_leader_had_replaced_its_own(
    server: MemoryServer, cut_off: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.testing.world.memory_requests.ASK_SECONDS", 0.01)
    server.deposed["patcher-1"] = Deposed(server, ["ADMISSIONS"])  # Another one leads the view.
    with pytest.raises(UnavailableError, match="no Term"):
        await cut_off.latest("ADMISSIONS", decision(1).subject)


async def test_what_is_written_there_is_stored_once_it_is_back(
    server: MemoryServer, leader: MemoryBus, cut_off: MemoryBus
) -> None:
    stored = cut_off.publish(decision(3))
    server.deposed.clear()
    assert await stored == 3
    assert await leader.last_sequence("ADMISSIONS") == 3


async def test_reader_gets_what_it_missed(server: MemoryServer, cut_off: MemoryBus) -> None:
    server.deposed.clear()
    items = cut_off.watch("ADMISSIONS")
    assert [await anext(items), await anext(items)][1] == CaughtUp(sequence=2)
    server.deposed["patcher-1"] = Deposed(server, ["ADMISSIONS"])
    server.publish(decision(3).subject, decision(3).encode(), {})
    view = server.view("ADMISSIONS")

    async def is_in_view() -> bool:
        return view.sourced == 3

    await eventually(is_in_view)
    server.deposed.clear()
    entry = await anext(items)
    assert not isinstance(entry, CaughtUp)
    assert entry.sequence == 3
    await items.aclose()
