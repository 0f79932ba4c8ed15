"""Copies on the spokes: reports about them, orphans, and the status that comes back to the hub."""

import asyncio
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.dispatches import Dispatch
from shared.testing.world.world import Faults
from tests.unit.dispatcher.harness import (
    Harness,
    job,
    start_on_west,
    workload_of,
)


def test_report_about_earlier_order_changes_nothing() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            west = await start_on_west(harness, train)
            await harness.decide(train, "evicted")
            withdrawn = await harness.until_order("west", "withdrawn")
            stale = withdrawn.model_copy(update={"number": west.number - 1})
            await harness.report_gone("west", stale)
            await harness.report_gone("west", stale)
            await harness.observe_copy("west", west, deleted=True)
            await harness.decide(train, "reserved")
            await asyncio.sleep(30)
            still = await harness.last_order("west")
            assert still is not None
            assert still.state == "withdrawn", "the order itself was not answered"

        harness.run(drive)


@pytest.mark.parametrize("collected", [True, False])
def test_orphaned_copy_is_withdrawn_only_if_orphans_are_collected(
    collected: bool,
) -> None:
    with Harness(spokes_seconds=1.0, collect_orphans=collected) as harness:

        async def drive() -> None:
            train = job()
            west = await start_on_west(harness, train)
            assert west.job is not None
            copy = {**west.job, "metadata": {**west.job["metadata"], "name": "ghost", "uid": "g"}}
            copy["metadata"]["labels"] = {
                **copy["metadata"]["labels"],
                "kueue.x-k8s.io/prebuilt-workload-name": "job-ghost",
            }
            await harness.observe(kinds.JOB, copy, cluster="west")
            await asyncio.sleep(10)
            entry = harness.server.latest("DISPATCHES", "sluice.dispatch.west.team-a.job-ghost")
            assert (entry is not None) is collected
            if entry is not None:
                order = Dispatch.decode(entry.data)
                assert (order.state, order.number) == ("withdrawn", west.number)

        harness.run(drive)


@pytest.mark.parametrize("seed", range(20))
def test_copy_vanishing_during_removal_does_not_crash_dispatcher(seed: int) -> None:
    slow = Faults(until_seconds=60, delay=0.5, delay_seconds=(0.1, 1.0))
    with Harness(faults=slow, seed=seed, spokes_seconds=1.0) as harness:

        async def drive() -> None:
            west = await start_on_west(harness, job())
            assert west.job is not None
            copy = {**west.job, "metadata": {**west.job["metadata"], "name": "ghost", "uid": "g"}}
            ghost = job("ghost")
            copy["metadata"]["labels"] = {
                **copy["metadata"]["labels"],
                "kueue.x-k8s.io/prebuilt-workload-name": workload_of("ghost"),
            }
            await harness.submit(ghost)
            await harness.decide(ghost, "reserved")
            await harness.observe(kinds.JOB, copy, cluster="west")
            await asyncio.sleep(0.3)
            await harness.observe(kinds.JOB, copy, cluster="west", deleted=True)
            await harness.until_check("Pending", "ghost")
            await asyncio.sleep(5)

        harness.run(drive)


def test_final_status_reaches_hub_before_copy_is_withdrawn() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            west = await start_on_west(harness, train)
            home = await harness.until_hub_status()
            assert (home.spoke, home.status) == ("west", {"active": 1})
            done: dict[str, Any] = {
                "succeeded": 1,
                "conditions": [{"type": "Complete", "status": "True"}],
            }
            await harness.observe_copy("west", west, **done)
            await harness.until_hub_status(status=done)
            kept = await harness.last_order("west")
            assert kept is not None
            assert kept.state == "chosen", "not before the hub's own job has ended"
            await harness.decide(train, "released")
            await harness.until_order("west", "withdrawn")

        harness.run(drive)


def test_success_during_withdrawal_reaches_hub_and_does_not_run_again() -> None:
    with Harness(spokes_seconds=1.0) as harness:

        async def drive() -> None:
            train = job()
            await start_on_west(harness, train)
            await harness.decide(train, "evicted")
            west = await harness.until_order("west", "withdrawn")
            await harness.decide(train, "reserved")
            done: dict[str, Any] = {"conditions": [{"type": "Complete", "status": "True"}]}
            await harness.report("west", west, "gone", ended=done)
            await harness.observe_copy("west", west, deleted=True)
            await harness.until_hub_status(status=done)
            await asyncio.sleep(60)
            check = await harness.last_check()
            assert check is not None
            assert check.message == 'The workload ended well on "west" as it was taken back'
            for spoke in ("east", "west"):
                order = await harness.last_order(spoke)
                assert order is not None
                assert order.state == "withdrawn", "it is not begun again"

        harness.run(drive)


def test_spec_change_at_hub_is_sent_to_chosen_spoke() -> None:
    with Harness() as harness:

        async def drive() -> None:
            await start_on_west(harness, job())
            await harness.observe(kinds.JOB, job(activeDeadlineSeconds=5))
            async with asyncio.timeout(60):
                while True:
                    found = await harness.last_order("west")
                    if found is not None and found.wish is not None:
                        break
                    await asyncio.sleep(0.1)
            assert found.wish == {"activeDeadlineSeconds": 5}

        harness.run(drive)


def test_eviction_on_spoke_retries_with_its_message() -> None:
    with Harness() as harness:

        async def drive() -> None:
            west = await start_on_west(harness, job())
            await harness.observe_remote_workload(
                "west", west, reserved=True, evicted="Preempted by a local job"
            )
            retry = await harness.until_check("Retry")
            text = 'Workload evicted on worker cluster: "Preempted by a local job"'
            assert retry.message == text

        harness.run(drive)
