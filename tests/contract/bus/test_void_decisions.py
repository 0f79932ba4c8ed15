"""Over both buses: who asks the log for a decision is told none of a leader that had been replaced."""

import pytest

from shared.bus.follow import recall
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.subjects import RULING
from tests.contract.bus.stage import Readings, Stage
from tests.contract.bus.test_order import decision, term, write

SUBJECT = decision("a", 1, 1).subject


class Unreadable(Admission):
    """A decision that nobody can decode; its header says who decided it."""

    def encode(self) -> bytes:
        return b'{"what": "ever"'


LOGS: dict[str, tuple[tuple[Term | Admission, ...], int | None]] = {
    "nothing is decided about it": ((term(1), decision("b", 1, 1)), None),
    "no leader says that it began": ((decision("a", 2, 1), decision("a", 1, 2)), 2),
    "its leader rules": ((term(1), decision("a", 1, 1), decision("a", 1, 2)), 3),
    "its leader was replaced later": ((term(1), decision("a", 1, 1), term(2)), 2),
    "a void one is behind a valid one": (
        (term(1), decision("a", 1, 1), term(2), decision("a", 1, 2, state="released")),
        2,
    ),
    "two void ones are behind that of the next leader": (
        (
            *(term(1), decision("a", 1, 1), term(2), decision("a", 2, 1)),
            *(decision("a", 1, 2), decision("b", 2, 2), decision("a", 1, 3)),
        ),
        4,
    ),
    "a valid one is behind a void one": (
        (term(1), term(2), decision("a", 1, 1), decision("a", 2, 1)),
        4,
    ),
    "all are void": ((term(1), term(2), decision("a", 1, 1), decision("a", 1, 2)), None),
    "it is void by an earlier epoch": (
        (term(1, epoch=7), decision("a", 1, 1, epoch=7), decision("a", 9, 1)),
        2,
    ),
}


@pytest.mark.parametrize("has_read", [False, True], ids=["has read nothing", "has read the log"])
@pytest.mark.parametrize(("log", "sequence"), LOGS.values(), ids=LOGS)
async def test_last_decision_is_the_last_valid_one(
    bus_factory: Stage,
    read: Readings,
    log: tuple[Term | Admission, ...],
    sequence: int | None,
    *,
    has_read: bool,
) -> None:
    writer, bus = bus_factory.bus("writer"), bus_factory.bus("reader")
    await writer.start()
    await bus.start()
    await write(writer, *log)
    if has_read:
        await read(bus.replay("ADMISSIONS")).until_caught_up()

    for current in (False, True):
        last = await bus.latest("ADMISSIONS", SUBJECT, current=current)
        assert (last and last.sequence) == sequence
    # Another decision of its leader, which the bus has not read, is judged anew.
    await write(writer, term(11, epoch=7), decision("a", 10, 1, epoch=7))
    last = await bus.latest("ADMISSIONS", SUBJECT)
    assert (last and last.sequence) == sequence


async def test_last_decision_without_header_is_judged_by_its_body(
    bus_factory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admission, "ruling", None)  # As 2f44c83 wrote it.
    bus = bus_factory.bus()
    await bus.start()
    await write(bus, term(1), decision("a", 1, 1), term(2), decision("a", 1, 2))

    last = await bus.latest("ADMISSIONS", SUBJECT)
    assert last is not None
    assert (last.sequence, RULING in last.headers) == (2, False)


async def test_last_term_is_told_whatever_its_number(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await write(bus, term(2), term(1))

    last = await bus.latest("ADMISSIONS", term(1).subject)
    assert last is not None
    assert last.sequence == 2


async def test_what_one_looks_up_in_the_log_is_void_or_not_as_one_asks(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await write(bus, term(2), decision("a", 1, 1), decision("b", 2, 1), decision("a", 2, 2))

    async def found(*, subject: str, valid: bool) -> int | None:
        entry = await bus.at_or_after("ADMISSIONS", 2, subject=subject, valid=valid)
        return None if entry is None else entry.sequence

    assert [await found(subject=one, valid=False) for one in (">", SUBJECT)] == [2, 2]
    assert [await found(subject=one, valid=True) for one in (">", SUBJECT)] == [3, 4]


async def test_decision_that_nobody_can_read_lets_none_count_that_is_void(
    bus_factory: Stage,
) -> None:
    bus, known = bus_factory.bus(), list[int]()
    await bus.start()
    await write(bus, term(1), decision("a", 1, 1), term(2), decision("a", 1, 2, state="released"))
    unreadable = decision("a", 2, 1).model_dump()
    await write(bus, Unreadable.model_validate(unreadable))

    def on_admission(_message: Admission, entry: Entry) -> None:
        known.append(entry.sequence)

    await recall(bus, {Admission: on_admission}, filters=[SUBJECT])
    assert set(known) == {2}
