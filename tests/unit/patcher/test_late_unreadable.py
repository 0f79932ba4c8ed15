"""Quota of a decision that cannot be read is given back only if no release can start its job any more."""

import pytest

from services.patcher.unreadable_decisions import answer_unreadable
from shared.bus.port import Entry, LaterError
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from tests.unit.patcher.test_late_release import HELD, Replica, Stage, comes_to_nothing, staged


async def unreadable(stage: Stage, state: str = "evicted") -> Entry:
    """A decision on the log that no release of ours can read."""
    stage.number += 1
    decided = Admission(
        cluster="hub", namespace=stage.state.namespace, name=stage.state.name, uid=stage.state.uid,
        state=state, term=1, number=stage.number, decided_at=stage.first.jobs.now(),
    )  # fmt: skip
    object.__setattr__(decided, "encode", lambda: b'{"state": "of another release"}')
    await stage.bus.publish(decided)
    entry = await stage.bus.latest(Admission.stream, decided.subject)
    assert entry is not None
    return entry


async def answer(stage: Stage, replica: Replica, entry: Entry) -> tuple[str, str]:
    """Let a replica answer it; action and result of what it tells."""
    await stage.bus.publish(stage.state)
    state = await stage.bus.latest(WorkloadState.stream, stage.state.subject)
    assert state is not None
    replica.cache.apply_workload(state)
    await answer_unreadable(replica.jobs, entry, "a word of another release")
    outcome = await stage.bus.latest(
        Outcome.stream, f"sluice.outcome.hub.{'.'.join(stage.state.ref[1:])}"
    )
    assert outcome is not None
    told = outcome.read(Outcome)
    assert told.number == stage.number
    return told.action, told.result


@pytest.mark.parametrize("name", HELD)
async def test_release_on_its_way_is_not_taken_behind_quota_that_is_given_back(name: str) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")
    told = []

    async def give_back() -> None:
        told.append(await answer(stage, stage.second, await unreadable(stage)))

    stage.first.kube.meanwhile = give_back
    await comes_to_nothing(stage, admitted, "is not the last one")
    assert told == [("release", "refused")]


@pytest.mark.parametrize("name", HELD)
async def test_quota_of_a_job_that_runs_is_held_though_its_state_says_that_it_waits(
    name: str,
) -> None:
    stage = await staged(name)
    await stage.release(stage.first, await stage.decide("admitted"))
    entry = await unreadable(stage)
    if stage.state.owner is not None and stage.state.owner.is_group:
        with pytest.raises(LaterError, match="released meanwhile"):
            await answer(stage, stage.second, entry)
        stage.state = stage.state.replace(held=False)
    assert await answer(stage, stage.second, entry) == ("hold", "refused")
    assert await stage.runs()


async def test_older_decision_is_not_the_last_behind_one_that_cannot_be_read() -> None:
    stage = await staged("a Job")
    admitted = await stage.decide("admitted")
    await stage.first.jobs.check_is_last(admitted)
    await unreadable(stage)
    with pytest.raises(LaterError, match="is not the last one"):
        await stage.first.jobs.check_is_last(admitted)


async def test_quota_is_held_of_a_decision_of_which_nothing_is_known() -> None:
    stage = await staged("a Job")
    entry = await unreadable(stage)
    nameless = Entry(
        **{**{f: getattr(entry, f) for f in entry.__dataclass_fields__}, "headers": {}}
    )
    stage.number = 0
    assert await answer(stage, stage.first, nameless) == ("hold", "refused")


async def test_decision_behind_which_a_later_one_has_come_is_not_answered() -> None:
    stage = await staged("a Job")
    entry = await unreadable(stage)
    await stage.decide("admitted")
    await stage.bus.publish(stage.state)
    state = await stage.bus.latest(WorkloadState.stream, stage.state.subject)
    assert state is not None
    stage.first.cache.apply_workload(state)
    await answer_unreadable(stage.first.jobs, entry, "a word of another release")
    subject = f"sluice.outcome.hub.{'.'.join(stage.state.ref[1:])}"
    assert await stage.bus.latest(Outcome.stream, subject) is None
