"""What is about workloads that are over leaves the views: orders, reports, statuses and answers of checks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from shared.bus.port import Entry, LaterError
from shared.contracts.controllers import WINDOW
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.contracts.windows import WINDOWS
from shared.testing.waiting import first_value
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import EPOCH
from tests.unit.dispatcher.harness import CHECK, NAMESPACE, Harness, job, offer, workload_of

FORGOTTEN_SECONDS: Final = 800
"""Of virtual time: longer than an end stays in the view, and than the dispatcher sleeps in between."""

NEVER: Final = "nights"
"""A window check whose window opens in years."""


async def newer_messages(harness: Harness) -> None:
    """Messages of others at the end of the views: the last one always stays."""
    at = harness.world.now()
    about = {"cluster": "elsewhere", "namespace": NAMESPACE, "name": "w", "uid": "u"}
    await harness.bus.publish(
        Dispatch(**about, spoke="elsewhere", number=1, state="withdrawn", at=at)
    )
    await harness.bus.publish(
        CheckState(**about, check=CHECK, service="dispatcher", state="Ready", at=at)
    )


async def reserve_unknown(harness: Harness) -> Object:
    """Reserve quota for a workload that no spoke can run; it is rejected, without any order."""
    train = job()
    owner = JobRef(
        api_version="example.com/v1", kind="Thing", plural="things", name="train", uid="u"
    )
    await harness.bus.publish(
        WorkloadState(
            cluster="hub", namespace=NAMESPACE, uid="uid-train", name=workload_of(), phase="waiting",
            created_at=EPOCH, owner=owner,
        )
    )  # fmt: skip
    await harness.decide(train, "reserved")
    return train


async def reserve_by_window(harness: Harness) -> Object:
    """Reserve quota for a workload whose window is closed."""
    metadata = {"name": NEVER, "annotations": {WINDOWS: "0 0 29 feb * for 1h"}}
    check = {"metadata": metadata, "spec": {"controllerName": WINDOW}}
    await harness.observe(kinds.ADMISSION_CHECK, check)
    train = job()
    await harness.submit(train)
    await harness.decide(train, "reserved", NEVER)
    return train


async def until_answer(harness: Harness, check: str, *, after: int = 0) -> CheckState:
    """Wait for an answer about a reservation with a greater number."""
    subject = f"sluice.check.hub.{NAMESPACE}.{workload_of()}.{check}.dispatcher"

    async def fetch() -> CheckState | None:
        entry = harness.server.latest("CHECKS", subject)
        state = None if entry is None else CheckState.decode(entry.data)
        return state if state is not None and state.attempt > after else None

    return await first_value(fetch, f"answer of {check}", seconds=120, look_seconds=0.1)


Reserve = Callable[[Harness], Awaitable[Object]]

ANSWERED: Final[dict[str, tuple[Reserve, str, bool]]] = {
    "an answer of a MultiKueue check without an order": (reserve_unknown, CHECK, True),
    "an answer of a window check": (reserve_by_window, NEVER, True),
    "an answer of a window check in a hub without spokes": (reserve_by_window, NEVER, False),
}
"""How quota is reserved, the check that answers, and whether the hub has a MultiKueue check."""


@pytest.mark.parametrize("restarts", [False, True], ids=["in one term", "after a restart"])
@pytest.mark.parametrize(("reserve", "check", "configured"), ANSWERED.values(), ids=list(ANSWERED))
def test_answer_leaves_the_view_once_quota_is_lost_and_hinders_no_later_one(
    reserve: Reserve, check: str, configured: bool, restarts: bool
) -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = await reserve(harness)
            first = await until_answer(harness, check)
            await newer_messages(harness)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await harness.view("CHECKS") == ["hub", "elsewhere"], "it holds quota"
            await harness.decide(train, "waiting", check)
            if restarts:
                harness.world.crash("dispatcher", down_seconds=3)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await harness.view("CHECKS") == ["elsewhere"]
            if restarts:
                harness.world.crash("dispatcher", down_seconds=3)
            await harness.decide(train, "reserved", check)
            again = await until_answer(harness, check, after=first.attempt)
            assert again.state == first.state
            await harness.decide(train, "released", check)
            await newer_messages(harness)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await harness.view("CHECKS") == ["elsewhere"]

        harness.run(drive, configured=configured)


def test_messages_leave_views_after_last_copy_is_gone() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            east, west = await offer(harness, train)
            await harness.decide(train, "released")
            await harness.until_order("west", "withdrawn")
            await harness.observe_copy("east", east, deleted=True)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert "east" in await harness.view("DISPATCHES"), "one copy still exists"
            assert "hub" in await harness.view("CHECKS"), "it has an order"
            await harness.observe_copy("west", west, deleted=True)
            await harness.report_gone("west", west)
            await newer_messages(harness)
            await asyncio.sleep(120)
            assert await harness.view("DISPATCHES") == ["elsewhere"]
            assert await harness.view("CHECKS") == ["elsewhere"]

        harness.run(drive)


def test_hub_status_stays_in_view_until_job_shows_it() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            east, west = await offer(harness, train)
            await harness.observe_remote_workload("west", west)
            await harness.until_order("west", "chosen")
            await harness.observe_copy("west", west, active=1)
            await harness.until_hub_status(status={"active": 1})
            train["status"] = {"active": 1}
            await harness.observe(kinds.JOB, train)
            await harness.decide(train, "evicted")
            await harness.until_order("west", "withdrawn")
            for spoke, order in (("east", east), ("west", west)):
                await harness.observe_copy(spoke, order, deleted=True)
                await harness.report_gone(spoke, order)
            await newer_messages(harness)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert "hub" in await harness.view("DISPATCHES"), "the hub's patcher was away"
            train["status"] = {}
            await harness.observe(kinds.JOB, train)
            await asyncio.sleep(120)
            assert await harness.view("DISPATCHES") == ["elsewhere"]

        harness.run(drive)


@pytest.mark.parametrize("restarts", [False, True], ids=["in one term", "after a restart"])
def test_order_and_what_is_about_it_stay_in_view_until_the_patcher_has_passed_it(
    restarts: bool,
) -> None:
    with Harness(spokes=("west",)) as harness:
        away = True

        async def handle(_entry: Entry) -> None:
            if away:
                raise LaterError("the API server does not answer", delay_seconds=5)

        async def drive() -> None:
            nonlocal away
            patcher = MemoryBus(harness.server, instance="patcher-west")
            filters = ("sluice.dispatch.west.>",)
            patcher.work("DISPATCHES", "patcher-west-dispatch", handle, filters=filters)
            await patcher.start()
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            west = await harness.until_order("west", "offered")
            await harness.decide(train, "released")
            await harness.until_order("west", "withdrawn")
            await harness.report_gone("west", west)
            await newer_messages(harness)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await harness.view("DISPATCHES") == ["west", "hub", "west", "elsewhere"]
            if restarts:
                harness.world.crash("dispatcher", down_seconds=3)
            away = False
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await harness.view("DISPATCHES") == ["elsewhere"]
            assert await harness.view("CHECKS") == ["elsewhere"]

        harness.run(drive)
