"""What `sluice explain` adds to the answer of quota: who preempted a workload that waits again."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.ctl.inspect import explain
from services.ctl.inspect.explain import add_preemptors, explained
from shared.bus.embedded import EmbeddedServer
from shared.bus.stream_reader import Seen, StreamReader, open_stream_reader
from shared.contracts.messages.admissions import Admission
from tests.integration.buses import make

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)

HOUR = timedelta(hours=1)

DECISIONS: dict[str, tuple[tuple[str | None, ...], timedelta, str | None]] = {
    "nobody preempted it": ((None,), HOUR, None),
    "an earlier one of its name was": (("team/big",), timedelta(0), None),
    "one did": (
        ("team/big",),
        HOUR,
        "Preempted:       by team/big at 2026-01-05T11:59:00+00:00 (60s)",
    ),
    "the last of two counts": (
        ("team/big", "team/bigger"),
        HOUR,
        "Preempted:       by team/bigger at 2026-01-05T11:59:00+00:00 (60s)",
    ),
}


class Silent(StreamReader):
    """The connection to a server that falls silent."""

    async def replay(self, log: str, *filters: str, since: datetime | None = None) -> list[Seen]:
        await asyncio.Event().wait()
        return await super().replay(log, *filters, since=since)


async def test_facts_do_not_wait_for_a_log_that_does_not_answer(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "LOG_SECONDS", 0.05)
    item: dict[str, Any] = {"cluster": "hub", "namespace": "team", "name": "job-a"}
    item |= {"reason": "WaitingForQuota", "message": "no", "created_at": NOW.isoformat()}
    async with open_stream_reader(server.url) as reader:
        reader.__class__ = Silent
        await add_preemptors(reader, [item])
    assert not [line for line in explained(item, NOW) if "Preempted:" in line]


@pytest.mark.parametrize(("preemptors", "age", "line"), DECISIONS.values(), ids=list(DECISIONS))
async def test_a_workload_that_waits_again_says_who_preempted_it(
    server: EmbeddedServer, preemptors: tuple[str | None, ...], age: timedelta, line: str | None
) -> None:
    bus = make(server)
    await bus.start()
    for number, preemptor in enumerate(preemptors):
        await bus.publish(
            Admission.model_validate(
                {
                    "cluster": "hub", "namespace": "team", "name": "job-a", "uid": "u-a",
                    "state": "evicted", "term": 1, "number": number, "cluster_queue": "cq",
                    "decided_at": NOW - timedelta(minutes=len(preemptors) - number),
                    "preempted_by": preemptor, "message": "Preempted",
                }
            )
        )  # fmt: skip
    item: dict[str, Any] = {
        "cluster": "hub", "namespace": "team", "name": "job-a", "reason": "WaitingForQuota",
        "message": "no", "created_at": (NOW - age).isoformat(),
    }  # fmt: skip
    await bus.stop()
    async with open_stream_reader(server.url) as reader:
        await add_preemptors(reader, [item])
    told = [each.strip() for each in explained(item, NOW) if "Preempted:" in each]
    assert told == ([] if line is None else [line])
