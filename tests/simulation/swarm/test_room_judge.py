"""Which decisions the judge lets pass while a log has only the room for ends."""

from datetime import timedelta

import pytest

from services.simulator.judge import checks
from services.simulator.judge.message_logs import MessageLogs, Record
from shared.contracts.messages.admissions import Term
from tests.simulation.swarm.history import AT, History

TERM_BEGAN, FULL_SINCE, FULL_UNTIL = (AT + timedelta(seconds=one) for one in (1, 100, 300))


def decided(*, at: float, stored: float, clock_off: float = 0.0) -> MessageLogs:
    """One admission, in seconds of the world, by a leader whose clock is off."""
    history = History()
    off = timedelta(seconds=clock_off)
    history.decide("one", decided_at=AT + timedelta(seconds=at) + off)
    [record] = history.message_logs.admissions
    history.message_logs.admissions = [
        Record(sequence=2, time=AT + timedelta(seconds=stored), message=record.message)
    ]
    term = Term(term=1, epoch=1, holder="quota-1", began_at=TERM_BEGAN + off)
    history.message_logs.terms.append(Record(sequence=1, time=TERM_BEGAN, message=term))
    return history.message_logs


@pytest.mark.parametrize("clock_off", [-60.0, 0.0, 60.0])
@pytest.mark.parametrize(
    ("at", "stored", "wrong"),
    [
        pytest.param(90, 91, False, id="before the log was full"),
        pytest.param(90, 150, False, id="before, and stored late"),
        pytest.param(110, 111, False, id="when nobody could know"),
        pytest.param(130, 131, True, id="when its leader knew"),
        pytest.param(130, 290, True, id="when its leader knew, and stored late"),
        pytest.param(301, 302, False, id="when there was room again"),
    ],
)
def test_admission_is_judged_by_when_it_was_decided(
    at: float, stored: float, clock_off: float, *, wrong: bool
) -> None:
    logs = decided(at=at, stored=stored, clock_off=clock_off)
    found = checks.none_admitted_without_room(logs, [("OUTCOMES", FULL_SINCE, FULL_UNTIL)])
    assert len(found) == wrong
