"""What the dispatcher does when a spoke is not heard, comes back, or says what it should not."""

import asyncio
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.effects import Dispatch
from shared.contracts.messages.spokes import SCHEMA, Beat, CopyState
from shared.testing.world.world import Faults
from tests.unit.dispatcher.stage import Stage, job, named

LOST: dict[str, Any] = {
    "worker_lost_timeout_seconds": 60.0,
    "silent_seconds": 15.0,
    "spokes_seconds": 1.0,
}


async def running_in_the_west(stage: Stage, obj: kinds.Object) -> Dispatch:
    """Admitted, chosen on west, and running there."""
    await stage.submit(obj)
    await stage.decide(obj, "reserved")
    west = await stage.until_dispatch("west", "offered")
    await stage.show_copy("west", west)
    await stage.show_quota("west", west)
    await stage.until_dispatch("west", "chosen")
    await stage.decide(obj, "admitted")
    await stage.show_copy("west", west, active=1)
    return west


def test_what_runs_on_a_lost_spoke_is_not_started_elsewhere() -> None:
    with Stage(**LOST) as stage:

        async def drive() -> None:
            await running_in_the_west(stage, job())
            stage.silent.add("west")
            await asyncio.sleep(600)
            chosen = await stage.dispatch("west")
            assert chosen is not None
            assert chosen.state == "chosen"
            check = await stage.check()
            assert check is not None
            assert check.state == "Ready"

        stage.play(drive)


def test_an_operator_may_declare_a_spoke_lost() -> None:
    with Stage(**LOST) as stage:

        async def drive() -> None:
            train = job()
            await running_in_the_west(stage, train)
            stage.silent.add("west")
            await asyncio.sleep(100)
            lost = {"sluicegate.dev/lost": "the machine room burnt down"}
            metadata = {"name": "west", "uid": "uid-west", "annotations": lost}
            await stage.see(kinds.MULTIKUEUE_CLUSTER, {"metadata": metadata, "spec": {}})
            retry = await stage.until_check("Retry")
            assert retry.message == 'Admitting remote lost: "west"'
            await stage.decide(train, "evicted")
            await stage.until_dispatch("west", "withdrawn")
            before = await stage.dispatch("east")
            await stage.decide(train, "reserved")
            if before is not None:
                await stage.say_gone("east", before)
            again = await stage.until_dispatch("east", "offered")
            assert before is None or again.number > before.number

        stage.play(drive)


def test_with_leases_what_a_lost_spoke_had_is_started_elsewhere_after_the_time_out() -> None:
    settings = {
        **LOST,
        "redispatch": "afterLease",
        "stop_seconds": 10.0,
        "patcher_down_seconds": 20.0,
    }
    with Stage(**settings) as stage:

        async def drive() -> None:
            train = job()
            west = await running_in_the_west(stage, train)
            assert west.job is not None
            annotations = west.job["metadata"]["annotations"]
            assert annotations["sluicegate.dev/lease-seconds"] == "30"
            stage.silent.add("west")
            silent_since = stage.world.loop.time()
            retry = await stage.until_check("Retry")
            assert stage.world.loop.time() - silent_since >= 55
            assert retry.message == 'Admitting remote lost: "west"'

        stage.play(drive)


def test_a_dispatcher_that_was_cut_off_itself_asks_before_it_believes_in_a_loss() -> None:
    settings = {
        **LOST,
        "redispatch": "afterLease",
        "stop_seconds": 10.0,
        "patcher_down_seconds": 20.0,
    }
    with Stage(**settings) as stage:

        async def drive() -> None:
            await running_in_the_west(stage, job())
            stage.world.partition("dispatcher", "bus", seconds=200)
            await asyncio.sleep(300)
            check = await stage.check()
            assert check is not None
            assert check.state == "Ready"

        stage.play(drive)


def test_a_spoke_that_says_no_more_is_offered_nothing_and_its_offers_go_elsewhere() -> None:
    with Stage(**LOST) as stage:

        async def drive() -> None:
            stage.silent.add("east")
            await asyncio.sleep(20)
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            await stage.until_dispatch("west", "offered")
            assert await stage.dispatch("east") is None

        stage.play(drive)


def test_a_spoke_of_another_version_is_offered_nothing_and_it_is_said_why() -> None:
    with Stage(**LOST) as stage:
        stage.forms["east"] = 2

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await asyncio.sleep(3)
            await stage.decide(train, "reserved")
            await stage.until_dispatch("west", "offered")
            assert await stage.dispatch("east") is None
            state = await stage.until_spoke("east", active=False)
            assert (state.reason, state.message) == (
                "SchemaMismatch",
                "It speaks version 2, this hub version 1: update the older one",
            )

        stage.play(drive)


def test_a_spoke_whose_api_server_is_away_is_offered_nothing_and_it_is_said_why() -> None:
    with Stage(**LOST) as stage:
        stage.cut_off.add("west")

        async def drive() -> None:
            state = await stage.until_spoke("west", active=False)
            assert state.reason == "ClientConnectionFailed"
            assert state.message == "Its patcher is heard, but does not reach its API server"
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            await stage.until_dispatch("east", "offered")
            assert await stage.dispatch("west") is None

            stage.cut_off.clear()
            await stage.until_spoke("west", active=True)
            await stage.until_dispatch("west", "offered")

        stage.play(drive)


def test_what_runs_where_the_api_server_is_away_runs_on() -> None:
    with Stage(**LOST) as stage:

        async def drive() -> None:
            west = await running_in_the_west(stage, job())
            stage.cut_off.add("west")
            await stage.until_spoke("west", active=False)
            await asyncio.sleep(120)
            order = await stage.dispatch("west")
            assert order is not None
            assert (order.state, order.number) == ("chosen", west.number)

        stage.play(drive)


def test_a_cluster_that_is_named_twice_is_used_once_and_keeps_what_runs_there() -> None:
    with Stage(spokes=("east", "west", "orient"), dispatcher="best-fit", **LOST) as stage:
        stage.identities = {"east": "one", "west": "another", "orient": "one"}

        async def drive() -> None:
            state = await stage.until_spoke("orient", active=False)
            assert (state.reason, state.message) == (
                "BadConfig", 'It is the same cluster as "east"',
            )  # fmt: skip
            await stage.show_queues()
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            east = await stage.until_dispatch("east", "offered")
            for name in ("east", "orient"):  # Both watchers see what the one patcher made.
                await stage.show_copy(name, east)
                await stage.show_quota(name, east)
            await stage.until_dispatch("east", "chosen")
            await asyncio.sleep(120)
            assert await stage.dispatch("orient") is None, "its copy is no stray"

        stage.play(drive)


def test_the_hub_under_another_name_is_no_spoke() -> None:
    with Stage(**LOST) as stage:
        stage.identities = {"hub": "one", "east": "one"}

        async def drive() -> None:
            stage.world.outside(stage.live("hub"))
            state = await stage.until_spoke("east", active=False)
            assert state.message == 'It is the same cluster as "hub" (this hub)'
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            await stage.until_dispatch("west", "offered")
            assert await stage.dispatch("east") is None

        stage.play(drive)


def test_a_taken_name_sends_it_to_the_other_spoke() -> None:
    with Stage(dispatcher="best-fit", fallback_seconds=5.0) as stage:

        async def drive() -> None:
            await stage.show_queues()
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            east = await stage.until_dispatch("east", "offered")
            await stage.report("east", east, "taken", "Job team-a/train is there already")
            await stage.until_dispatch("west", "offered")
            await stage.until_dispatch("east", "withdrawn")

        stage.play(drive)


def test_a_late_or_repeated_report_about_an_earlier_order_changes_nothing() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            west = await running_in_the_west(stage, train)
            await stage.decide(train, "evicted")
            withdrawn = await stage.until_dispatch("west", "withdrawn")
            stale = withdrawn.model_copy(update={"number": west.number - 1})
            await stage.say_gone("west", stale)
            await stage.say_gone("west", stale)
            await stage.show_copy("west", west, deleted=True)
            await stage.decide(train, "reserved")
            await asyncio.sleep(30)
            still = await stage.dispatch("west")
            assert still is not None
            assert still.state == "withdrawn", "the order itself was not answered"

        stage.play(drive)


def copy_state(spoke: str, order: Dispatch, stage: Stage) -> CopyState:
    return CopyState(
        spoke=spoke, cluster="hub", namespace=order.namespace, name=order.name, uid=order.uid,
        number=order.number, state="gone", at=stage.world.now(),
    )  # fmt: skip


def test_a_spoke_that_speaks_for_another_is_not_believed() -> None:
    with Stage(**LOST) as stage:

        async def drive() -> None:
            train = job()
            west = await running_in_the_west(stage, train)
            await stage.decide(train, "evicted")
            await stage.until_dispatch("west", "withdrawn")
            stage.forge(copy_state("west", west, stage), under=copy_state("east", west, stage))
            await stage.show_copy("west", west, deleted=True)
            stage.silent.add("west")
            beats = [
                Beat(spoke=spoke, instance="east", number=10_000, form=SCHEMA, at=stage.world.now())
                for spoke in ("west", "east")
            ]
            await stage.decide(train, "reserved")
            for _ in range(30):
                stage.forge(beats[0], under=beats[1])
                await asyncio.sleep(1)

            still = await stage.dispatch("west")
            assert still is not None
            assert still.state == "withdrawn", "west itself has not said that its copy is gone"
            await stage.until_spoke("west", active=False)  # It is not west that is heard.

        stage.play(drive)


@pytest.mark.parametrize("seconds", [-600, 600])
def test_clocks_ten_minutes_apart_make_nobody_lost(seconds: int) -> None:
    with Stage(**LOST) as stage:
        stage.skew_seconds = seconds

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            # Quota's clock is ten minutes ahead of ours, the spokes' are before or behind.
            await stage.decide(train, "reserved", ahead_seconds=600)
            west = await stage.until_dispatch("west", "offered")
            await stage.show_copy("west", west)
            await stage.show_quota("west", west)
            await stage.until_dispatch("west", "chosen")

        stage.play(drive)


@pytest.mark.parametrize("collected", [True, False])
def test_a_copy_of_an_order_that_nobody_knows_is_withdrawn_unless_orphans_are_left_alone(
    collected: bool,
) -> None:
    with Stage(spokes_seconds=1.0, collect_orphans=collected) as stage:

        async def drive() -> None:
            train = job()
            west = await running_in_the_west(stage, train)
            assert west.job is not None
            copy = {**west.job, "metadata": {**west.job["metadata"], "name": "ghost", "uid": "g"}}
            copy["metadata"]["labels"] = {
                **copy["metadata"]["labels"],
                "kueue.x-k8s.io/prebuilt-workload-name": "job-ghost",
            }
            await stage.see(kinds.JOB, copy, cluster="west")
            await asyncio.sleep(10)
            entry = stage.server.latest("DISPATCHES", "sluice.dispatch.west.team-a.job-ghost")
            assert (entry is not None) is collected
            if entry is not None:
                order = Dispatch.decode(entry.data)
                assert (order.state, order.number) == ("withdrawn", west.number)

        stage.play(drive)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_that_goes_while_it_is_planned_to_remove_it_ends_nobody(seed: int) -> None:
    slow = Faults(until_seconds=60, delay=0.5, delay_seconds=(0.1, 1.0))
    with Stage(faults=slow, seed=seed, spokes_seconds=1.0) as stage:

        async def drive() -> None:
            west = await running_in_the_west(stage, job())
            assert west.job is not None
            copy = {**west.job, "metadata": {**west.job["metadata"], "name": "ghost", "uid": "g"}}
            ghost = job("ghost")
            copy["metadata"]["labels"] = {
                **copy["metadata"]["labels"],
                "kueue.x-k8s.io/prebuilt-workload-name": named("ghost"),
            }
            await stage.submit(ghost)
            await stage.decide(ghost, "reserved")
            await stage.see(kinds.JOB, copy, cluster="west")
            await asyncio.sleep(0.3)
            await stage.see(kinds.JOB, copy, cluster="west", deleted=True)
            await stage.until_check("Pending", "ghost")
            await asyncio.sleep(5)

        stage.play(drive)


def test_the_end_comes_home_whole_before_the_copy_goes() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            west = await running_in_the_west(stage, train)
            home = await stage.until_home()
            assert (home.spoke, home.status) == ("west", {"active": 1})
            done: dict[str, Any] = {
                "succeeded": 1,
                "conditions": [{"type": "Complete", "status": "True"}],
            }
            await stage.show_copy("west", west, **done)
            await stage.until_home(status=done)
            kept = await stage.dispatch("west")
            assert kept is not None
            assert kept.state == "chosen", "not before the hub's own job has ended"
            await stage.decide(train, "released")
            await stage.until_dispatch("west", "withdrawn")

        stage.play(drive)


def test_what_ended_well_while_it_was_taken_back_comes_home_and_is_not_run_again() -> None:
    with Stage(spokes_seconds=1.0) as stage:

        async def drive() -> None:
            train = job()
            await running_in_the_west(stage, train)
            await stage.decide(train, "evicted")
            west = await stage.until_dispatch("west", "withdrawn")
            await stage.decide(train, "reserved")
            done: dict[str, Any] = {"conditions": [{"type": "Complete", "status": "True"}]}
            await stage.report("west", west, "gone", ended=done)
            await stage.show_copy("west", west, deleted=True)
            await stage.until_home(status=done)
            await asyncio.sleep(60)
            check = await stage.check()
            assert check is not None
            assert check.message == 'The workload ended well on "west" as it was taken back'
            for spoke in ("east", "west"):
                order = await stage.dispatch(spoke)
                assert order is not None
                assert order.state == "withdrawn", "it is not begun again"

        stage.play(drive)


def test_what_its_user_changes_at_the_hub_is_carried_to_the_copy() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await running_in_the_west(stage, job())
            await stage.see(kinds.JOB, job(activeDeadlineSeconds=5))
            async with asyncio.timeout(60):
                while True:
                    found = await stage.dispatch("west")
                    if found is not None and found.wish is not None:
                        break
                    await asyncio.sleep(0.1)
            assert found.wish == {"activeDeadlineSeconds": 5}

        stage.play(drive)


def test_an_eviction_on_the_spoke_is_told_at_the_hub() -> None:
    with Stage() as stage:

        async def drive() -> None:
            west = await running_in_the_west(stage, job())
            await stage.show_quota("west", west, reserved=True, evicted="Preempted by a local job")
            retry = await stage.until_check("Retry")
            text = 'Workload evicted on worker cluster: "Preempted by a local job"'
            assert retry.message == text

        stage.play(drive)
