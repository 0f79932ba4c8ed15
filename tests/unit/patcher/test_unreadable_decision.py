"""A decision that cannot be read becomes a dead letter with an outcome, so that quota lets go."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.bus.follow import recall
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.outcomes import DeadLetter
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    await subject.start_patcher()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


@pytest.mark.parametrize(("runs", "action"), [(False, "release"), (True, "hold")])
async def test_unreadable_decision_is_answered_and_kept_as_dead_letter(
    setup: Setup, runs: bool, action: str
) -> None:
    state = await setup.submit()
    if runs:
        state = state.replace(pods_active=True, held=False, phase="running")
        await setup.bus.publish(state)
    decision: Any = Admission(
        cluster="hub", namespace="default", name=state.name, uid=state.uid, state="admitted",
        term=3, number=7, decided_at=NOON, cluster_queue="cq",
    )  # fmt: skip
    object.__setattr__(decision, "encode", lambda: b'{"state": "admitted"}')
    await setup.bus.publish(decision)

    async def answered() -> bool:
        return any(outcome.number == 7 for outcome in await setup.outcomes())

    await eventually(answered)
    outcome = (await setup.outcomes())[-1]
    assert (outcome.result, outcome.action, outcome.term) == ("refused", action, 3)
    assert "cannot be read" in outcome.message
    dead: list[DeadLetter] = []

    async def buried() -> bool:
        await recall(setup.bus, {DeadLetter: lambda message, _: dead.append(message)})
        return bool(dead)

    await eventually(buried)
