"""Typed reading over both buses: the handler of each type, and what cannot be read."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest

from shared.bus.follow import dispatch, follow, read, recall
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission, Term
from shared.telemetry.metrics import UNREADABLE
from shared.testing.waiting import PATIENCE_SECONDS
from tests.contract.bus.stage import Stage

AT = datetime(2026, 11, 1, tzinfo=UTC)


def admission(name: str, number: int) -> Admission:
    return Admission(
        cluster="hub", namespace="team", name=name, uid="u", state="waiting",
        term=1, number=number, decided_at=AT,
    )  # fmt: skip


def entry(message: Admission, *, subject: str | None = None, type_: str | None = None) -> Entry:
    headers = {} if type_ is None else {"ce-type": type_}
    return Entry(
        subject=subject or message.subject,
        data=message.encode(),
        headers=headers,
        sequence=7,
        time=AT,
    )


def unreadable() -> float:
    return float(UNREADABLE.labels(stream="ADMISSIONS")._value.get())


async def test_other_tasks_have_turns_while_much_is_read(
    bus_factory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.bus.follow.TURN", 5)
    bus = bus_factory.bus()
    await bus.start()
    await asyncio.gather(*(bus.publish(admission(f"w{number}", number)) for number in range(50)))
    turn, read_in_turn = 0, Counter[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def on_admission(_message: Admission, _entry: Entry) -> None:
        read_in_turn[turn] += 1
        asyncio.get_running_loop().call_soon(next_turn)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await recall(bus, {Admission: on_admission})
    assert read_in_turn.total() == 50
    assert max(read_in_turn.values()) <= 5


async def test_each_message_goes_to_the_handler_of_its_type(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(Term(term=1, holder="one", began_at=AT))
    await bus.publish(admission("a", 1))
    await bus.publish(admission("b", 2))
    seen: list[tuple[str, int]] = []
    terms: list[int] = []

    async with asyncio.timeout(PATIENCE_SECONDS):
        last = await recall(
            bus,
            {
                Admission: lambda message, at: seen.append((message.name, at.sequence)),
                Term: lambda message, _at: terms.append(message.term),
            },
        )

    assert sorted(seen) == [("a", 2), ("b", 3)]
    assert terms == [1]
    assert last == 3


async def test_follow_reports_caught_up_and_continues(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(Term(term=1, holder="one", began_at=AT))
    await bus.publish(admission("a", 1))
    seen: list[str] = []
    caught_up, more = asyncio.Event(), asyncio.Event()

    def on_admission(message: Admission, _entry: Entry) -> None:
        seen.append(message.name)
        if message.name == "b":
            more.set()

    following = asyncio.create_task(
        follow(
            bus,
            {Admission: on_admission},
            filters=["sluice.admission.hub.>"],
            on_caught_up=caught_up.set,
        )
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await caught_up.wait()
        assert seen == ["a"]
        await bus.publish(admission("b", 2))
        await more.wait()

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert seen == ["a", "b"]


def test_body_under_the_subject_of_another_is_skipped_and_counted() -> None:
    before, seen = unreadable(), list[str]()
    lie = entry(admission("a", 1), subject="sluice.admission.hub.team.b", type_=Admission.type)

    dispatch(lie, {Admission: lambda message, _entry: seen.append(message.name)})

    assert seen == []
    assert unreadable() == before + 1


def test_message_of_a_type_without_handler_is_ignored() -> None:
    before, seen = unreadable(), list[str]()

    dispatch(
        entry(admission("a", 1), type_="dev.sluicegate.other.v1"),
        {Admission: lambda message, _entry: seen.append(message.name)},
    )

    assert seen == []
    assert unreadable() == before


def test_entry_without_type_goes_to_the_only_handler() -> None:
    seen: list[str] = []

    dispatch(entry(admission("a", 1)), {Admission: lambda message, _at: seen.append(message.name)})

    assert seen == ["a"]


def test_reading_no_entry_returns_none() -> None:
    assert read(None, Admission) is None
