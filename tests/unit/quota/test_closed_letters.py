"""Closed dead letters and answered requests leave the view of `DEAD` after a day; what is open stays."""

import asyncio
from datetime import timedelta

import pytest

from shared.bus.port import Entry, LaterError
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.quota.service_setup import NOON, Setup

DUE = timedelta(seconds=-60)
"""So that everything is old enough."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.quota.ended_work.LETTERS_SECONDS", 0.02)
    monkeypatch.setattr("services.quota.ended_work.LETTERS_AGE", DUE)
    monkeypatch.setattr("services.quota.ended_work.PAUSE_SECONDS", 0.0)


def letter(name: str) -> DeadLetter:
    """An open letter of a patcher."""
    return DeadLetter(
        service="patcher", original_subject=f"sluice.admission.hub.team.{name}", original_sequence=1,
        reason="why", body="{}", at=NOON,
    )  # fmt: skip


async def ask(setup: Setup, name: str) -> None:
    about = letter(name).original_subject
    await setup.bus.publish(
        RetryRequest(cluster="hub", service="patcher", original_subject=about, tries=1, at=NOON)
    )


def left(setup: Setup) -> set[str]:
    """What is in the view: sort and name of each message."""
    subjects = [one.subject.split(".") for one in setup.server.view("DEAD").messages.values()]
    return {f"{tokens[1]} {tokens[-1]}" for tokens in subjects}


async def fill(setup: Setup) -> None:
    """One letter of each sort, with its request; at last one that is open, which is the view's last."""
    for state in ("handled", "dropped"):
        await setup.bus.publish(letter(state))
        await ask(setup, state)
        await setup.bus.publish(letter(state).closed(state, NOON))
    await ask(setup, "forgotten")
    await ask(setup, "again")
    await setup.bus.publish(letter("again"))
    await setup.bus.publish(letter("unanswered"))
    await ask(setup, "unanswered")
    await setup.bus.publish(letter("last"))


OPEN = {"dead again", "dead unanswered", "retry unanswered", "dead last"}
CLOSED = {
    "dead handled", "retry handled", "dead dropped", "retry dropped", "retry forgotten", "retry again",
}  # fmt: skip


async def test_letters_that_are_closed_and_requests_that_are_answered_leave_the_view(
    setup: Setup,
) -> None:
    await setup.cluster(cpus=1)
    await fill(setup)
    await eventually(lambda: left(setup) == OPEN | CLOSED)  # The view is a moment behind the log.
    await setup.start_quota()
    await eventually(lambda: left(setup) == OPEN)
    await asyncio.sleep(0.1)
    assert left(setup) == OPEN


async def test_letter_that_was_closed_within_a_day_stays_visible(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.ended_work.LETTERS_AGE", timedelta(days=1))
    await setup.cluster(cpus=1)
    await fill(setup)
    await setup.start_quota()
    await asyncio.sleep(0.3)
    assert left(setup) == OPEN | CLOSED


async def test_request_that_the_patcher_has_not_handled_stays(setup: Setup) -> None:
    away = True

    async def handle(_entry: Entry) -> None:
        if away:
            raise LaterError("the API server does not answer", delay_seconds=0.05)

    patcher = MemoryBus(setup.server, instance="patcher")
    patcher.work("DEAD", "patcher-hub-retry", handle, filters=("sluice.retry.hub.patcher.>",))
    await patcher.start()
    await setup.cluster(cpus=1)
    await fill(setup)
    await setup.start_quota()
    requests = {one for one in CLOSED if one.startswith("retry")}
    await eventually(lambda: left(setup) == OPEN | requests)
    away = False
    await eventually(lambda: left(setup) == OPEN)
    await patcher.stop()
