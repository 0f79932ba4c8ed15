"""What stands in ADMISSIONS and is no decision of ours takes no quota from anybody, and gives none."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from shared.bus.headers import TYPE
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import SCHEMA_VERSION
from shared.contracts.messages.outcomes import Outcome
from shared.testing.waiting import eventually
from tests.unit.quota.service_setup import Setup, became, outcome_of

TERM = "sluice.term.quota"
GARBAGE = [
    pytest.param(b'{"what": "ever"', {}, id="no JSON"),
    pytest.param(b"", {}, id="empty"),
    pytest.param(b"\xff", {TYPE: Admission.type}, id="no text"),
    pytest.param(b'{"state": "released"}', {TYPE: Admission.type}, id="lacks fields"),
]


@pytest.fixture
async def full() -> AsyncIterator[Setup]:
    """A queue that `x` fills; `y` waits."""
    subject = Setup()
    await subject.bus.start()
    await subject.cluster(cpus=1)
    await subject.workload("x")
    await subject.start_quota()
    await became(subject, "x", "admitted")
    await subject.workload("y")
    await became(subject, "y", "waiting")
    yield subject
    await subject.close()


async def repaired(setup: Setup, name: str, before: int) -> None:
    """A later leader has said the last decision again."""

    async def yes() -> bool:
        last = await setup.last(name)
        return last.term > before and last.state == "admitted"

    await eventually(yes)


@pytest.mark.parametrize(("data", "headers"), GARBAGE)
async def test_holder_behind_an_unreadable_decision_keeps_its_quota(
    full: Setup, data: bytes, headers: dict[str, str]
) -> None:
    held = await full.last("x")
    await full.stop_quota()
    full.server.publish(held.subject, data, headers)
    await full.start_quota("b")
    await repaired(full, "x", held.term)
    assert set(await full.states("y")) == {"waiting"}


async def test_leader_at_work_notices_an_unreadable_decision_and_writes_it_again(
    full: Setup,
) -> None:
    held = await full.last("x")
    full.server.publish(held.subject, b"{", {})
    await full.workload("z", priority=-1)  # The next decision finds the log moved.
    await repaired(full, "x", held.term)
    assert set(await full.states("y")) == {"waiting"}


async def test_outcome_behind_an_unreadable_one_gives_quota_back(full: Setup) -> None:
    await full.workload("x", active=False, version="2")
    await became(full, "x", "evicted")
    evicted = await full.last("x")
    await full.stop_quota()
    await full.outcome(evicted, "suspend", "applied", version="3")
    await full.workload("x", active=False, version="3", held=True)
    full.server.publish("sluice.outcome.hub.team.x", b"{", {})
    await full.start_quota("b")
    await became(full, "y", "admitted")


@pytest.mark.parametrize("when", ["before this release leads", "while this release leads"])
async def test_outcome_of_a_newer_schema_gives_quota_back(full: Setup, when: str) -> None:
    """A downgrade: the patcher of the newer release had carried out the eviction, and is gone."""
    await full.workload("x", active=False, version="2")
    await became(full, "x", "evicted")
    applied = outcome_of(await full.last("x"), "suspend", "applied", version="3")
    if when == "before this release leads":
        await full.stop_quota()
    await full.workload("x", active=False, version="3", held=True)
    newer = {TYPE: Outcome.type, SCHEMA_VERSION: "999"}
    full.server.publish(applied.subject, applied.encode(), newer)
    if when == "before this release leads":
        await full.start_quota("b")
    await became(full, "y", "admitted")


async def test_decision_of_a_newer_schema_holds_quota_and_is_written_again(full: Setup) -> None:
    """A downgrade: the leader of the newer release had decided last."""
    held = await full.last("x")
    await full.stop_quota()
    newer = {TYPE: Admission.type, SCHEMA_VERSION: "999"}
    full.server.publish(held.subject, held.encode(), newer)
    await full.start_quota("b")
    await repaired(full, "x", held.term)
    assert set(await full.states("y")) == {"waiting"}


async def test_term_is_above_what_outcomes_name_although_the_log_lost_its_tail() -> None:
    setup = Setup()
    await setup.bus.start()
    await setup.cluster()
    await setup.workload("x")
    term = int(datetime.now(UTC).timestamp()) + 1_800  # By a clock that is half an hour ahead.
    lost = Admission(
        cluster="hub", namespace="team", name="x", uid="u-x", state="evicted", term=term, number=9,
        decided_at=(await setup.workload("w")).created_at, cluster_queue="cq",
    )  # fmt: skip
    await setup.outcome(lost, "suspend", "applied")
    await setup.start_quota()
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).term > lost.term
    await setup.close()


async def test_term_is_new_although_log_and_view_lost_every_message(full: Setup) -> None:
    """Nothing on the bus names the term of before: only the clock does."""
    before = (await full.last("x")).term
    await full.stop_quota()
    for name in ("ADMISSIONS", "ADMISSIONS_NOW"):
        full.server.streams[name].truncate(0)
    await full.start_quota("b")

    async def decided() -> bool:
        return any(one.name == "x" for one in await full.log())

    await eventually(decided)
    assert (await full.last("x")).term >= before


async def test_unreadable_term_does_not_make_a_term_come_again(full: Setup) -> None:
    before = (await full.last("x")).term
    await full.stop_quota()
    full.server.publish(TERM, b"{", {})
    await full.start_quota("b")
    await full.workload("z", priority=-1)
    await became(full, "z", "waiting")
    assert (await full.last("z")).term > before
