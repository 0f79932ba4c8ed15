"""Commands that read streams drop void decisions; `sluice history` shows them as such."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from services.ctl.get.command import read as read_views
from services.ctl.inspect.history import history, history_json, history_lines
from services.ctl.inspect.preempted import preemptions
from services.whatif import reading
from shared.bus.nats.bus import NatsBus
from shared.bus.stream_reader import StreamReader, open_stream_reader
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.nats_server import nats_server

AT = datetime(2026, 1, 1, tzinfo=UTC)
WHO = {"cluster": "hub", "namespace": "team", "uid": "u"}


def decision(name: str, of: int, number: int, state: str = "admitted", **more: str) -> Admission:
    return Admission.model_validate(
        WHO
        | {"name": name, "term": of, "number": number, "decided_at": AT, "state": state}
        | {"cluster_queue": "cq", **more}
    )


def term(number: int) -> Term:
    return Term(term=number, holder=f"quota-{number}", began_at=AT)


LOG = (
    *(WorkloadState.model_validate(WHO | {"name": n, "phase": "waiting", "created_at": AT}) for n in "ab"),
    *(term(1), decision("a", 1, 1), decision("b", 1, 2), term(2)),
    decision("a", 1, 3, "evicted", preempted_by="team/b", reason="Preempted"),  # Void.
    decision("b", 2, 1, "waiting"),
)  # fmt: skip


@pytest.fixture
async def reader() -> AsyncIterator[StreamReader]:
    """A reader of a log, the last decision of which about `a` is void."""
    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="test", now=lambda: AT)
        await bus.start()
        for message in LOG:
            await bus.publish(message)
        items = bus.watch("ADMISSIONS", "sluice.admission.*.*.b")
        await anext(items)  # Now the view has all of it.
        await items.aclose()
        await bus.stop()
        async with open_stream_reader(server.url) as reader:
            yield reader


async def test_decisions_in_force_are_valid_ones(reader: StreamReader) -> None:
    views = await read_views(reader, [("ADMISSIONS", "sluice.admission.>")])
    assert {key.name: body["state"] for key, body in views.admissions.items()} == {"b": "waiting"}

    loaded = await reading.read(reader, at=AT, keep=True)
    decided = [
        (subject, body["term"]) for subject, body in loaded.messages if ".admission." in subject
    ]
    of_a, of_b = (f"sluice.admission.hub.team.{name}" for name in "ab")
    assert decided == [(of_b, 2), (f"log.{of_a}", 1), (f"log.{of_b}", 1), (f"log.{of_b}", 2)]


async def test_nobody_is_preempted_by_a_void_decision(reader: StreamReader) -> None:
    decisions = await reader.replay("ADMISSIONS", "sluice.admission.>")
    assert len(preemptions(decisions)) == 1
    assert preemptions(await reader.valid(decisions)) == []


async def test_history_marks_void_decisions(reader: StreamReader) -> None:
    events = await history(reader, "team", "a")
    assert [event.void for event in events if event.what == "admission"] == [False, True]
    assert "void, its leader was replaced: evicted in cq" in history_lines(events)[-2]
    assert '"void": true' in history_json(events)[-1]
    assert '"void"' not in history_json(events)[-2]
