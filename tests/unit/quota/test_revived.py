"""What a leader has read is compared with the logs: an older state of what has ended is put right."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from services.quota.decider import Decider
from services.quota.engine import QuotaEngine
from services.quota.engine.facts import Fact, WorkloadGone
from services.quota.trust.revived import RevivedEntries
from shared.bus.port import Bus, Entry
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import admission, workload
from tests.unit.quota.service_setup import SETTINGS, Setup, became
from tests.unit.quota.test_ended_work import VIEWS, ended, left_views, lives, quick

__all__ = ["quick"]
NOW = datetime(2026, 1, 2, tzinfo=UTC)
AGE = timedelta(minutes=10)
WAITS: WorkloadState = workload("a")


def entry(sequence: int, *, message: Message = WAITS, age: timedelta = AGE) -> Entry:
    subject, time = message.subject, NOW - age
    return Entry(subject=subject, data=b"{}", headers={}, sequence=sequence, time=time)


class Log:
    """As much of a bus as asking for the last message of a subject takes."""

    def __init__(self, last: Entry | None) -> None:
        self.last = last
        self.asked = 0

    async def latest(self, _stream: str, _subject: str) -> Entry | None:
        self.asked += 1
        return self.last


def comparing(log: Log, applied: list[Entry]) -> RevivedEntries:
    """A term that has read up to sequence 9."""
    return RevivedEntries(
        cast("Bus", log),
        lambda: NOW,
        AGE.total_seconds(),
        apply=lambda _, one: applied.append(one),
        read_up_to=lambda _: 9,
    )


async def put_right(message: Message, read: Entry, last: Entry | None) -> tuple[list[Entry], int]:
    """What is applied after such an entry was read, up to sequence 9; how often the log was asked."""
    log, applied = Log(last), list[Entry]()
    revived = comparing(log, applied)
    revived.observe(message, read)
    await revived.look()
    return applied, log.asked


CASES: dict[str, tuple[Message, Entry | None, bool]] = {
    "a workload that has ended": (WAITS, entry(5), True),
    "a workload that lives": (WAITS, entry(3), False),
    "a change that is on its way": (WAITS, entry(10), False),
    "a workload whose history is gone": (WAITS, None, False),
    "a decision that holds quota": (admission(WAITS), entry(5), True),
}


@pytest.mark.parametrize(("message", "last", "is_put_right"), CASES.values(), ids=CASES)
async def test_what_is_newer_in_the_log_is_applied(
    message: Message, last: Entry | None, *, is_put_right: bool
) -> None:
    applied, asked = await put_right(message, entry(3, message=message), last)
    assert applied == ([last] if is_put_right else [])
    assert asked == 1


NEVER: dict[str, tuple[Message, timedelta]] = {
    "a workload that changed a moment ago": (WAITS, timedelta(minutes=9)),
    "a workload that is gone": (workload("a", phase="gone"), AGE),
    "a decision that holds nothing": (admission(WAITS, "released"), AGE),
}


@pytest.mark.parametrize(("message", "age"), NEVER.values(), ids=NEVER)
async def test_log_is_not_asked_about(message: Message, age: timedelta) -> None:
    read = entry(3, message=message, age=age)
    assert await put_right(message, read, entry(5)) == ([], 0)


async def test_what_is_decided_or_read_meanwhile_is_not_put_right() -> None:
    log, applied = Log(entry(5)), list[Entry]()
    revived = comparing(log, applied)
    revived.observe(WAITS, entry(3))
    revived.forget(WAITS)
    await revived.look()
    assert applied == []


@pytest.mark.parametrize("is_known", [True, False])
async def test_decision_about_an_unknown_workload_is_compared_before_the_first_decision(
    *, is_known: bool
) -> None:
    log, applied = Log(entry(5)), list[Entry]()
    revived = comparing(log, applied)
    held = admission(WAITS)
    revived.observe(held, entry(3, message=held))
    await revived.look_first(lambda _: is_known)
    assert len(applied) == (0 if is_known else 1)


@pytest.mark.parametrize("revived", [("ADMISSIONS",), ("ADMISSIONS", "WORKLOADS")])
@pytest.mark.parametrize("trimmed", [False, True])
async def test_next_leader_gives_back_what_a_killed_server_brought_back(
    setup: Setup, revived: tuple[str, ...], *, trimmed: bool
) -> None:
    """`trimmed`: the log has lost what it knew of the workload, and only its release is there."""
    for view in VIEWS:
        setup.server.view(view).keeps_replaced = True
    await setup.cluster(cpus=2)
    await setup.start_quota()
    gone = await ended(setup, "x")
    await lives(setup, "y")
    await left_views(setup, "x")
    await setup.stop_quota()
    back = {view: setup.server.view(view).revive() for view in revived}
    assert all(back.values()), back
    if trimmed:
        setup.server.trim("WORKLOADS", gone.subject, 1 << 30)
    await asyncio.sleep(0.1)
    await setup.start_quota("b")
    await setup.workload("z")
    await became(setup, "z", "admitted")


SECOND: dict[str, tuple[str, bool, bool, bool]] = {
    "it was released": ("released", True, False, True),
    "it waited, and nobody knows it": ("waiting", False, False, True),
    "it waits": ("waiting", True, False, False),
    "who follows reads one after the other": ("released", False, True, False),
}
"""The second decision, whether the workload is known, whether this process follows; whether quota is free."""


@pytest.mark.parametrize(
    ("state", "is_known", "follows", "is_free"), SECOND.values(), ids=SECOND.keys()
)
def test_second_decision_that_a_leader_reads_ends_what_the_first_one_held(
    monkeypatch: pytest.MonkeyPatch, state: str, *, is_known: bool, follows: bool, is_free: bool
) -> None:
    decider, facts = Decider(SETTINGS, follows=follows), list[Fact]()
    monkeypatch.setattr(QuotaEngine, "apply", lambda _, fact: facts.append(fact))
    decider.apply(Synced(cluster="hub", epoch="e", kinds=[], at=NOW))
    if is_known:
        decider.apply(WAITS)
    decider.restore(admission(WAITS, "evicted"))
    decider.restore(admission(WAITS, state))
    assert any(isinstance(fact, WorkloadGone) for fact in facts) is is_free


async def test_revived_decision_of_an_unknown_workload_holds_no_quota_at_the_first_decision(
    setup: Setup,
) -> None:
    setup.server.view("ADMISSIONS").keeps_replaced = True
    await setup.cluster(cpus=2)
    await setup.start_quota()
    await ended(setup, "x")
    await lives(setup, "y")
    await left_views(setup, "x")
    await setup.stop_quota()
    assert setup.server.view("ADMISSIONS").revive()
    await setup.workload("z")
    await asyncio.sleep(0.1)
    await setup.start_quota("b")
    await became(setup, "z", "admitted")
    assert await setup.states("z") == ["admitted"]
