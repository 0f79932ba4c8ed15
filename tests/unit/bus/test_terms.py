"""What it costs to judge the last decision of a workload."""

from datetime import UTC, datetime

import pytest

from shared.bus.order.terms import Terms
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Term
from shared.contracts.subjects import RULING
from shared.testing.world.memory_streams import matches

AT = datetime(2026, 1, 2, tzinfo=UTC)
DECIDED = "sluice.admission.hub.team-a.a"
OTHER = "sluice.admission.hub.team-a.b"
TERM = "sluice.term.quota"


class Log:
    """Answers for the next entry of a subject, and counts how often it was asked; its view is empty."""

    def __init__(self, *written: tuple[str, int]) -> None:
        """`written`: subject and term of each message."""
        self.entries = [entry(sequence, *one) for sequence, one in enumerate(written, start=1)]
        self.asked = 0

    async def next_entry(self, stream: str, subject: str, after: int) -> Entry | None:
        self.asked += 1
        if stream != Term.stream:
            return None
        found = (e for e in self.entries[after:] if matches(e.subject, (subject,)))
        return next(found, None)


def entry(sequence: int, subject: str, term: int) -> Entry:
    return Entry(
        subject=subject,
        data=b'{"epoch": 0, "term": %d}' % term,
        headers={} if subject == TERM else {RULING: f"0.{term}"},
        sequence=sequence,
        time=AT,
    )


LEARNED = 2
"""Requests of a look for Terms where none is new: one to the log, one to the view."""

CASES: dict[str, tuple[int, int]] = {
    "it is what the bus has read last": (5, 0),
    "it is older than what the bus has read last": (2, 0),
    "it is newer than all that the bus has read": (6, LEARNED),
}


@pytest.mark.parametrize(("sequence", "asked"), CASES.values(), ids=CASES)
async def test_last_decision_is_judged_without_a_request_unless_the_bus_has_read_nothing_as_late(
    sequence: int, asked: int
) -> None:
    log = Log((TERM, 1), (DECIDED, 1), (TERM, 2), (DECIDED, 2), (OTHER, 2), (DECIDED, 2))
    terms = Terms(log.next_entry)
    await terms.refresh(0)
    assert not any(terms.is_void(one) for one in log.entries[:5])
    before = log.asked

    last = log.entries[sequence - 1]
    assert await terms.valid(last) is last
    assert log.asked - before == asked
    assert await terms.valid(last) is last
    assert log.asked - before == asked, "whoever asks again has it"
