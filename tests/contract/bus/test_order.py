"""What is stale is never believed: logs that begin anew, decisions of leaders that were replaced."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from services.patcher.cluster.cache import ObjectCache
from shared.bus.port import Bus, Entry, FencedError, LogChangedError
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.subjects import RULING
from shared.telemetry.metrics import VOID
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.contract.bus.conftest import READERS
from tests.contract.bus.stage import Readings, Stage, error_of, workload

AT = datetime(2026, 1, 2, tzinfo=UTC)


def term(number: int, *, epoch: int = 0) -> Term:
    return Term(epoch=epoch, term=number, holder=f"quota-{number}", began_at=AT)


def decision(
    name: str, of: int, number: int, *, state: str = "admitted", epoch: int = 0
) -> Admission:
    return Admission.model_validate(
        {
            "cluster": "hub", "namespace": "team-a", "name": name, "uid": f"u-{name}", "epoch": epoch,
            "state": state, "term": of, "number": number, "decided_at": AT,
        }
    )  # fmt: skip


async def write(bus: Bus, *messages: Term | Admission) -> None:
    for message in messages:
        await bus.publish(message)


def decided(entries: list[Entry]) -> list[tuple[str, int]]:
    read = [entry.read(Admission) for entry in entries if "admission" in entry.subject]
    return [(admission.name, admission.term) for admission in read]


class Decisions:
    """A handler that keeps what it was given."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    async def __call__(self, entry: Entry) -> None:
        self.entries.append(entry)


STALE = (
    term(1),
    decision("a", 1, 1),
    decision("b", 1, 2),
    term(2),
    decision("c", 2, 1),
    decision("a", 1, 3, state="released"),  # Void: term 2 began before it was stored.
    decision("d", 1, 4),  # Void, and the first of its subject.
    term(3),
    decision("e", 2, 2),  # Void for the last term, though its own came after that of `d`.
    decision("f", 3, 1),
)
VALID = [("a", 1), ("b", 1), ("c", 2), ("f", 3)]


@pytest.mark.parametrize("when", ["before", "while"])
@pytest.mark.parametrize("bus_factory", READERS, indirect=True)
async def test_every_reader_drops_what_a_replaced_leader_decided(
    bus_factory: Stage, read: Readings, when: str
) -> None:
    writer, bus, handler = bus_factory.bus("writer"), bus_factory.bus("reader"), Decisions()
    await writer.start()
    before = VOID.labels("ADMISSIONS")._value.get()
    bus.work("ADMISSIONS", "worker", handler, filters=("sluice.admission.>",))
    if when == "before":
        await write(writer, *STALE)
    await bus.start()
    view, log = read(bus.watch("ADMISSIONS")), read(bus.replay("ADMISSIONS"))
    tail = read(bus.replay("ADMISSIONS", "sluice.admission.>", start=5))
    if when == "while":
        await asyncio.gather(view.until_caught_up(), log.until_caught_up())
        await write(writer, *STALE)

    assert decided(await log.entries(7)) == VALID
    # Of the view: what a void decision took the place of is gone, and comes from the next leader.
    known: list[tuple[str, int]] = []
    while ("f", 3) not in known:
        known += decided(await view.entries(1))
    assert set(known) <= set(VALID)
    assert decided(await tail.entries(2)) == [("c", 2), ("f", 3)]
    await eventually(lambda: ("f", 3) in decided(handler.entries))
    await asyncio.sleep(0.2)
    assert set(decided(handler.entries)) <= set(VALID)
    assert VOID.labels("ADMISSIONS")._value.get() >= before + 9
    void = {
        one.entry.read(Admission).name: one.valid and one.valid.sequence
        for one in await bus.void("ADMISSIONS")
    }
    assert void == {"a": 2, "d": None, "e": None}, "each with its last valid decision"

    await write(writer, decision("a", 3, 2))
    assert decided(await view.entries(1)) == [("a", 3)]
    assert [one.entry.read(Admission).name for one in await bus.void("ADMISSIONS")] == ["d", "e"]


async def test_decision_of_an_earlier_epoch_is_void_whatever_its_term(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await write(bus, term(1, epoch=7), decision("a", 9, 1), decision("b", 1, 1, epoch=7))

    assert decided(await read(bus.replay("ADMISSIONS")).entries(2)) == [("b", 1)]


async def test_highest_term_is_that_of_the_log_before_this_bus_has_read_it(
    bus_factory: Stage,
) -> None:
    writer, bus = bus_factory.bus("writer"), bus_factory.bus("reader")
    await writer.start()
    await bus.start()
    assert await bus.highest_term("ADMISSIONS") == (0, 0)
    await write(writer, term(3), term(2), decision("a", 9, 1))
    assert await bus.highest_term("ADMISSIONS") == (0, 3)
    await write(writer, term(1, epoch=7))
    assert await bus.highest_term("ADMISSIONS") == (7, 1)


@pytest.mark.parametrize("bus_factory", READERS, indirect=True)
async def test_term_that_the_log_has_lost_counts_as_long_as_the_view_has_it(
    bus_factory: Stage, read: Readings
) -> None:
    writer, bus, handler = bus_factory.bus("writer"), bus_factory.bus("reader"), Decisions()
    await writer.start()
    await write(writer, term(1), decision("a", 1, 1), term(2))
    await write(writer, decision("a", 1, 2, state="released"), decision("b", 1, 3))  # Void.
    await write(writer, decision("c", 2, 1))
    view = read(writer.watch("ADMISSIONS", "sluice.admission.*.*.c"))
    assert decided(await view.entries(1)) == [("c", 2)], "the view has all of it"
    assert await writer.trim("ADMISSIONS", term(1).subject, up_to=6) == 2

    bus.work("ADMISSIONS", "worker", handler, filters=("sluice.admission.>",))
    await bus.start()
    assert await bus.highest_term("ADMISSIONS") == (0, 2)
    log = read(bus.replay("ADMISSIONS"))
    assert decided(await log.entries(2)) == [("a", 1), ("c", 2)]
    await eventually(lambda: bool(handler.entries) and handler.entries[-1].sequence == 6)
    assert decided(handler.entries) == [("c", 2)]
    void = {
        one.entry.read(Admission).name: one.valid and one.valid.sequence
        for one in await bus.void("ADMISSIONS")
    }
    assert void == {"a": 2, "b": None}


async def test_decision_of_release_without_header_is_judged_by_its_body(
    bus_factory: Stage, read: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admission, "ruling", None)  # As 2f44c83 wrote it.
    bus = bus_factory.bus()
    await bus.start()
    await write(bus, term(2), decision("a", 1, 1), decision("b", 2, 1))

    entries = await read(bus.replay("ADMISSIONS")).entries(2)
    assert decided(entries) == [("b", 2)]
    assert RULING not in entries[1].headers


async def test_leader_of_release_without_epochs_rules_the_log_after_downgrade(
    bus_factory: Stage, read: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await write(bus, term(4, epoch=7), decision("a", 4, 1, epoch=7))
    new = {kind: kind.encode for kind in (Term, Admission)}
    monkeypatch.setattr(Admission, "ruling", None)
    for kind in (Term, Admission):
        monkeypatch.setattr(kind, "encode", lambda one: without_epoch(new[type(one)](one)))
    await write(bus, term(5), decision("b", 5, 1), decision("c", 4, 2))
    monkeypatch.undo()
    await write(bus, term(6, epoch=7), decision("d", 5, 2, epoch=7), decision("e", 6, 1, epoch=7))

    entries = await read(bus.replay("ADMISSIONS")).entries(6)
    assert decided(entries) == [("a", 4), ("b", 5), ("e", 6)]


def without_epoch(body: bytes) -> bytes:
    """As 2f44c83 wrote it."""
    return json.dumps({k: v for k, v in json.loads(body).items() if k != "epoch"}).encode()


async def test_log_has_an_epoch_that_grows_when_it_is_made_anew(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    before = await bus.epoch("ADMISSIONS")
    await bus_factory.wipe()
    await eventually(lambda: bus.connected)
    assert 1_600_000_000_000 < before < await bus.epoch("ADMISSIONS")


@pytest.mark.parametrize("bus_factory", READERS, indirect=True)
async def test_log_that_was_emptied_is_read_and_worked_from_its_start(
    bus_factory: Stage, read: Readings
) -> None:
    bus, handler = bus_factory.bus(), Decisions()
    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    before = Cached(bus)
    view, log = read(bus.watch("WORKLOADS")), read(bus.replay("WORKLOADS"))
    for step in range(20):
        await bus.publish(workload("a", step=step))
    await bus.publish(workload("lost"))
    await write(bus, term(7), *(decision("a", 7, number) for number in range(1, 9)))
    await eventually(lambda: bool(handler.entries) and handler.entries[-1].sequence == 21)
    await eventually(lambda: (known := before.cache.admission("team-a", "a")) and known.number == 8)
    await log.entries(21)
    await view.until_caught_up()

    await bus_factory.wipe()
    await eventually(lambda: bus.connected)
    await bus.publish(workload("a", step=100))
    await write(bus, term(1), decision("a", 1, 1, state="released"))

    await eventually(lambda: handler.entries[-1].sequence == 1)
    for reading in (view, log):
        with pytest.raises(LogChangedError):
            await reading.entries(1000)
    assert {type(error) for error in await before.ended()} == {LogChangedError}, (
        "the process ends, and the next one begins with an empty cache"
    )

    after = Cached(bus)
    await eventually(lambda: (known := after.cache.admission("team-a", "a")) and known.term == 1)
    await eventually(
        lambda: (known := after.cache.workload("team-a", "a")) and known.generation == 100
    )
    assert after.cache.workload("team-a", "lost") is None
    for task in after.following:
        task.cancel()
    await after.ended()


class Cached:
    """A patcher's cache that follows the bus."""

    def __init__(self, bus: Bus) -> None:
        self.cache = ObjectCache(bus=bus, cluster="hub")
        runs = (self.cache.run_admissions, self.cache.run_workloads)
        self.following = [asyncio.create_task(run()) for run in runs]

    async def ended(self) -> list[BaseException | None]:
        return await asyncio.gather(*self.following, return_exceptions=True)


async def test_decision_of_a_replaced_leader_is_refused_though_its_predicted_sequence_comes_true(
    bus_factory: Stage,
) -> None:
    replaced, present = bus_factory.bus("replaced"), bus_factory.bus("present")
    await replaced.start()
    await present.start()
    assert await replaced.publish(term(1), expect_last=0) == 1
    assert await replaced.publish(decision("a", 1, 1), expect_last=1) == 2
    assert await present.publish(term(2), expect_last=2) == 3
    assert await present.publish(decision("b", 2, 1), expect_last=3) == 4

    with pytest.raises(FencedError):
        await replaced.publish(decision("a", 1, 2), expect_last=4)
    assert await present.publish(decision("b", 2, 2), expect_last=4) == 5


@pytest.mark.parametrize("foreign", [1, 2])
async def test_decision_is_refused_if_the_one_before_it_was(
    bus_factory: Stage, foreign: int
) -> None:
    leader, other = bus_factory.bus("leader"), bus_factory.bus("other")
    await leader.start()
    await other.start()
    assert await leader.publish(term(1), expect_last=0) == 1
    assert await leader.publish(decision("a", 1, 1), expect_last=1) == 2
    for number in range(foreign):
        await other.publish(decision(f"foreign-{number}", 1, 90 + number))

    # Predicts 2, 3, 4 … of which all but the first come true.
    window = [leader.publish(decision(f"w{i}", 1, 2 + i), expect_last=2 + i) for i in range(5)]

    assert {type(await error_of(one)) for one in window} == {FencedError}
    assert await leader.last_sequence("ADMISSIONS") == 2 + foreign
    assert await leader.publish(term(2), expect_last=2 + foreign) == 3 + foreign
    pipelined = [
        leader.publish(decision(f"x{i}", 2, i), expect_last=3 + foreign + i) for i in range(5)
    ]
    assert await asyncio.gather(*pipelined) == [4 + foreign + i for i in range(5)]


@pytest.mark.parametrize("others", [0, 9], ids=["it is shorter", "others have written there"])
async def test_writer_learns_that_the_log_lacks_what_it_acknowledged(
    bus_factory: Stage, others: int
) -> None:
    writer, other = bus_factory.bus("writer"), bus_factory.bus("other")
    await writer.start()
    await other.start()
    await writer.publish(workload("kept"))
    await bus_factory.copy_disk("before")
    if others:
        for step in range(others):
            await other.publish(workload("others", step=step))
        await bus_factory.copy_disk("after")
        await bus_factory.put_disk_back("before")
    lost = asyncio.ensure_future(writer.log_lost())
    for step in range(3):
        await writer.publish(workload("lost", step=step))
    assert (lost.done(), await writer.last_sequence("WORKLOADS")) == (False, 4)

    await bus_factory.put_disk_back("after" if others else "before")

    assert await writer.publish(workload("next")) == 2 + others
    assert await asyncio.wait_for(lost, PATIENCE_SECONDS) == "WORKLOADS"
    assert await other.publish(workload("next", step=1)) == 3 + others
