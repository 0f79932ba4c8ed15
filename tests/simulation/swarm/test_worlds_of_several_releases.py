"""What the next release writes in its own way: it reads it itself, this one puts it aside, terms stay."""

from datetime import UTC, datetime

import pytest

from services.simulator.scenarios.swarm.releases import NextRelease
from shared.bus.headers import build
from shared.bus.order.terms import _ruling_in
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import Message, NewerSchemaError
from shared.testing.world.memory_streams import Dialect

AT = datetime(2026, 1, 1, tzinfo=UTC)
TERM = Term(epoch=3, term=7, holder="quota-1", began_at=AT)


def written(message: Message, by: Dialect) -> Entry:
    headers = build(message, message_id="1", source="test", now=AT)
    data, told = by.written(message.encode(), headers, stream=message.stream)
    return Entry(subject=message.subject, data=data, headers=told, sequence=1, time=AT)


def test_this_release_reads_a_term_only_where_it_fences() -> None:
    entry = written(TERM, NextRelease(frozenset({"ADMISSIONS"})))
    with pytest.raises(NewerSchemaError):
        entry.read(Term)
    assert _ruling_in(entry.data) == (3, 7)


def test_next_release_reads_what_both_wrote() -> None:
    newer = NextRelease(frozenset({"ADMISSIONS"}))
    for by in (newer, Dialect()):
        assert newer.read(written(TERM, by)).read(Term) == TERM


def test_logs_that_it_did_not_change_are_as_before() -> None:
    entry = written(TERM, NextRelease(frozenset({"OBSERVED"})))
    assert entry.read(Term) == TERM
