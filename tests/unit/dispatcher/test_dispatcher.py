"""The whole service in virtual time: admissions and observations in, orders and check states out."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Literal

import pytest

from shared.bus.port import CaughtUp, Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import AdmissionState
from shared.contracts.messages.effects import CheckState, Dispatch
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.dispatcher.stage import CHECK, Stage, job, named


async def offer(stage: Stage, obj: Object) -> tuple[Dispatch, Dispatch]:
    """Submit and reserve; both spokes make their copies."""
    name = obj["metadata"]["name"]
    await stage.submit(obj)
    await stage.decide(obj, "reserved")
    east = await stage.until_dispatch("east", "offered", name)
    west = await stage.until_dispatch("west", "offered", name)
    await stage.show_copy("east", east)
    await stage.show_copy("west", west)
    return east, west


def test_the_first_spoke_where_the_copy_has_quota_wins_and_the_others_are_withdrawn() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            pending = await stage.until_check("Pending")
            assert pending.message == "The workload waits for one of: east, west"
            east = await stage.until_dispatch("east", "offered")
            west = await stage.until_dispatch("west", "offered")
            assert east.job is not None
            assert east.job["metadata"]["labels"] == {
                "kueue.x-k8s.io/queue-name": "main",
                "kueue.x-k8s.io/prebuilt-workload-name": named(),
                "kueue.x-k8s.io/multikueue-origin": "multikueue",
            }
            await stage.show_copy("east", east)
            await stage.show_copy("west", west)
            await stage.show_quota("west", west)
            ready = await stage.until_check("Ready")
            assert (ready.message, ready.spoke) == ('The workload was admitted on "west"', "west")
            chosen = await stage.until_dispatch("west", "chosen")
            assert chosen.job is None, "so that it is not made again when it is done and deleted"
            withdrawn = await stage.until_dispatch("east", "withdrawn")
            assert withdrawn.job == {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": "train",
                    "namespace": "team-a",
                    "labels": {
                        "kueue.x-k8s.io/prebuilt-workload-name": named(),
                        "kueue.x-k8s.io/multikueue-origin": "multikueue",
                    },
                    "annotations": {"sluicegate.dev/order": f"hub/{withdrawn.number}"},
                },
            }

        stage.play(drive)


def test_decisions_are_read_from_the_first_check_of_ours_on_also_the_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    watch = MemoryBus.watch

    def noted(bus: MemoryBus, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp]:
        read.append(stream)
        return watch(bus, stream, *filters)

    monkeypatch.setattr(MemoryBus, "watch", noted)
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            await asyncio.sleep(60)
            assert "SPOKES" in read
            assert "ADMISSIONS" not in read
            await stage.configure(stage.spokes)
            await stage.until_dispatch("east", "offered")
            assert read.count("ADMISSIONS") == 1

        stage.play(drive, configured=False)


def test_a_copy_that_runs_wins_too() -> None:
    with Stage() as stage:

        async def drive() -> None:
            east, _ = await offer(stage, job())
            await stage.show_copy("east", east, active=1)
            assert (await stage.until_check("Ready")).spoke == "east"

        stage.play(drive)


@pytest.mark.parametrize("state", ["evicted", "released"])
def test_when_the_hub_lets_go_every_copy_is_withdrawn(state: AdmissionState) -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            _, west = await offer(stage, train)
            await stage.show_quota("west", west)
            await stage.until_dispatch("west", "chosen")
            await stage.decide(train, "admitted")
            await asyncio.sleep(1)
            await stage.decide(train, state)
            await stage.until_dispatch("west", "withdrawn")

        stage.play(drive)


def test_the_next_reservation_waits_until_the_spoke_that_ran_it_says_that_it_is_gone() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            east, west = await offer(stage, train)
            await stage.show_quota("west", west)
            first = await stage.until_check("Ready")
            await stage.decide(train, "evicted")
            withdrawn = await stage.until_dispatch("west", "withdrawn")
            assert withdrawn.started
            await stage.show_copy("east", east, deleted=True)
            await stage.say_gone("east", east)
            await stage.decide(train, "reserved")
            pending = await stage.until_check("Pending", after=first.attempt)
            assert pending.message == (
                "The workload waits until its copy is confirmed to be gone from: west"
            )
            await asyncio.sleep(50)
            assert (await stage.until_dispatch("east", "withdrawn")).number == east.number
            await stage.show_quota("west", west, reserved=False)
            await stage.show_copy("west", west, deleted=True)
            await asyncio.sleep(50)
            assert (await stage.until_dispatch("east", "withdrawn")).number == east.number
            await stage.say_gone("west", withdrawn)
            again = await stage.until_dispatch("west", "offered")
            assert again.number > west.number
            await stage.until_dispatch("east", "offered")

        stage.play(drive)


def test_without_a_usable_spoke_the_workload_queues_again_later() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.configure(["north", "nowhere"])
            nowhere = {"metadata": {"name": "nowhere", "uid": "uid-nowhere"}, "spec": {}}
            await stage.see(kinds.MULTIKUEUE_CLUSTER, nowhere, deleted=True)
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            retry = await stage.until_check("Retry")
            assert retry.message == (
                "No usable worker cluster. Missing clusters: nowhere. Inactive clusters: north"
            )
            assert retry.requeue_after_seconds == 60
            await stage.decide(train, "evicted")
            await stage.sync("north")
            stage.world.outside(stage.live("north"))
            await asyncio.sleep(1)
            await stage.decide(train, "reserved")
            await stage.until_dispatch("north", "offered")
            await stage.until_check("Pending", after=retry.attempt)

        stage.play(drive)


def test_a_workload_without_our_check_is_none_of_our_business() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved", "machines")
            await asyncio.sleep(5)
            assert await stage.dispatch("east") is None
            assert await stage.check() is None

        stage.play(drive)


def test_nothing_is_sent_anywhere_before_the_other_checks_are_ready() -> None:
    with Stage() as stage:

        async def say(state: Literal["Pending", "Ready"], *, late: float = 0.0) -> None:
            said = CheckState(
                cluster="hub", namespace="team-a", name=named(), uid="uid-train", check="window",
                state=state, at=stage.world.now() - timedelta(seconds=late),
            )  # fmt: skip
            await stage.bus.publish(said)

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await asyncio.sleep(30)
            await say("Ready", late=5.0)
            await stage.decide(train, "reserved", CHECK, "window")
            pending = await stage.until_check("Pending")
            assert pending.message == "The workload waits for other admission checks: window"
            await say("Pending")
            await asyncio.sleep(30)
            assert await stage.dispatch("east") is None, "it was ready for an earlier reservation"

            await say("Ready")
            east = await stage.until_dispatch("east", "offered")
            await stage.show_copy("east", east)
            await stage.show_quota("east", east)
            await stage.until_dispatch("east", "chosen")

        stage.play(drive)


def test_who_shows_nothing_of_what_he_was_offered_comes_last_from_then_on() -> None:
    with Stage(dispatcher="best-fit") as stage:

        async def drive() -> None:
            await stage.show_queues()
            first, second = job("first"), job("second")
            await stage.submit(first)
            await stage.decide(first, "reserved")
            await stage.until_dispatch("east", "offered", "first")
            began = stage.world.loop.time()
            await stage.until_dispatch("west", "offered", "first")
            assert stage.world.loop.time() - began >= 10

            await stage.submit(second)
            await stage.decide(second, "reserved")
            await stage.until_dispatch("west", "offered", "second")
            assert await stage.dispatch("east", "second") is None
            await asyncio.sleep(10)
            assert (await stage.until_spoke("east", active=True)).failures == 1

        stage.play(drive)


@pytest.mark.parametrize("dispatcher", ["all-at-once", "best-fit"])
def test_a_job_may_demand_a_spoke(dispatcher: str) -> None:
    with Stage(dispatcher=dispatcher) as stage:

        async def drive() -> None:
            await stage.show_queues()
            train = job()
            train["metadata"]["labels"]["sluicegate.dev/spoke"] = "west"
            await stage.submit(train)
            await stage.decide(train, "reserved")
            await stage.until_dispatch("west", "offered")
            await asyncio.sleep(10)
            assert await stage.dispatch("east") is None

        stage.play(drive)


def test_a_job_that_demands_what_is_not_there_is_told_so() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            train["metadata"]["labels"]["sluicegate.dev/spoke"] = "north"
            await stage.submit(train)
            await stage.decide(train, "reserved")
            retry = await stage.until_check("Retry")
            assert retry.message == "No usable worker cluster. Not north: east, west"

        stage.play(drive)


def test_a_job_that_is_not_seen_yet_is_looked_for_again() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            await stage.decide(train, "reserved")
            await asyncio.sleep(5)
            assert await stage.dispatch("east") is None
            await stage.submit(train)
            await stage.until_dispatch("east", "offered")

        stage.play(drive)


def test_an_answer_is_never_older_than_the_question() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved", ahead_seconds=100)
            pending = await stage.until_check("Pending")
            assert (pending.at - stage.world.now()).total_seconds() > 90

        stage.play(drive)


def test_a_job_of_the_same_name_is_another_workload() -> None:
    with Stage() as stage:

        async def drive() -> None:
            east, west = await offer(stage, job())
            second = job(uid="another")
            await stage.submit(second)
            await stage.decide(second, "reserved")
            assert (await stage.until_dispatch("east", "offered", uid="another")).uid == "another"
            await stage.decide(job(), "released")
            await stage.until_dispatch("east", "withdrawn")
            await stage.until_dispatch("west", "withdrawn")
            assert east.uid == west.uid == "uid-train"

        stage.play(drive)


@pytest.mark.parametrize("moment", ["before the offer", "offered", "won", "admitted"])
def test_a_restart_goes_on_where_it_was(moment: str) -> None:
    with Stage() as stage:

        async def drive() -> None:
            def restart(now: str) -> None:
                if moment == now:
                    stage.world.crash("dispatcher", down_seconds=3)

            restart("before the offer")
            train = job()
            _, west = await offer(stage, train)
            restart("offered")
            await stage.show_quota("west", west)
            restart("won")
            ready = await stage.until_check("Ready")
            assert ready.spoke == "west"
            await stage.until_dispatch("west", "chosen")
            await stage.until_dispatch("east", "withdrawn")
            await stage.decide(train, "admitted")
            restart("admitted")
            await asyncio.sleep(10)
            chosen = await stage.dispatch("west")
            assert chosen is not None
            assert chosen.state == "chosen"
            await stage.decide(train, "released")
            await stage.until_dispatch("west", "withdrawn")

        stage.play(drive)


def test_a_choice_that_was_recorded_before_a_crash_is_kept_though_another_spoke_is_first_now() -> (
    None
):
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            east, west = await offer(stage, train)
            stage.world.partition("dispatcher", "bus")
            stage.world.crash("dispatcher")
            check = await stage.check()
            assert check is not None
            said = check.model_copy(update={"state": "Ready", "spoke": "east"})
            await stage.bus.publish(said)
            await stage.show_quota("west", west)
            await stage.show_quota("east", east)
            stage.world.heal("dispatcher", "bus")
            stage.world.restart("dispatcher")
            await stage.until_dispatch("east", "chosen")
            await stage.until_dispatch("west", "withdrawn")

        stage.play(drive)


def test_an_order_of_somebody_else_is_read_with_what_it_was_made_for_before_it_is_judged() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await asyncio.sleep(1)
            train = job()
            order = Dispatch(
                spoke="east",
                cluster="hub",
                namespace="team-a",
                name=named(),
                uid="uid-train",
                number=7,
                state="offered",
                at=stage.world.now(),
            )
            # The order overtakes the admission on the way to this dispatcher.
            said = stage.bus.publish(order)
            await stage.submit(train)
            await stage.decide(train, "reserved")
            await said
            await stage.until_dispatch("west", "offered")
            await asyncio.sleep(5)
            kept = await stage.dispatch("east")
            assert kept is not None
            assert (kept.state, kept.number) == ("offered", 7)

        stage.play(drive)


def test_what_is_over_leaves_the_views() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            east, west = await offer(stage, train)
            await stage.decide(train, "released")
            await stage.until_dispatch("west", "withdrawn")
            await stage.show_copy("east", east, deleted=True)
            await asyncio.sleep(800)
            assert "east" in await stage.view("DISPATCHES"), "a copy is there yet"
            await stage.show_copy("west", west, deleted=True)
            await stage.say_gone("west", west)
            await asyncio.sleep(120)
            assert await stage.view("DISPATCHES") == []
            assert await stage.view("CHECKS") == []

        stage.play(drive)


def test_what_was_sent_home_stays_until_the_hubs_job_shows_it() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            east, west = await offer(stage, train)
            await stage.show_quota("west", west)
            await stage.until_dispatch("west", "chosen")
            await stage.show_copy("west", west, active=1)
            await stage.until_home(status={"active": 1})
            train["status"] = {"active": 1}
            await stage.see(kinds.JOB, train)
            await stage.decide(train, "evicted")
            await stage.until_dispatch("west", "withdrawn")
            for spoke, order in (("east", east), ("west", west)):
                await stage.show_copy(spoke, order, deleted=True)
                await stage.say_gone(spoke, order)
            await asyncio.sleep(800)
            assert await stage.view("DISPATCHES") != [], "the hub's patcher was away"
            train["status"] = {}
            await stage.see(kinds.JOB, train)
            await asyncio.sleep(120)
            assert await stage.view("DISPATCHES") == []

        stage.play(drive)


def test_nothing_is_forgotten_before_home_is_told_that_it_runs_no_more() -> None:
    with Stage(forget_seconds=5, tidy_seconds=0.01) as stage:

        async def drive() -> None:
            train, others = job(), [job(f"other-{number}") for number in range(9)]
            east, west = await offer(stage, train)
            await stage.show_quota("west", west)
            await stage.until_dispatch("west", "chosen")
            await stage.show_copy("west", west, active=1)
            await stage.until_home(status={"active": 1})
            train["status"] = {"active": 1}
            await stage.see(kinds.JOB, train)
            await stage.decide(train, "evicted")
            await stage.until_dispatch("west", "withdrawn")
            await asyncio.sleep(10)
            for other in others:
                await stage.submit(other)
            for other in others:  # The dispatcher is at these when the last word of the copy comes.
                await stage.decide(other, "reserved")
            for spoke, order in (("east", east), ("west", west)):
                await stage.show_copy(spoke, order, deleted=True)
                await stage.say_gone(spoke, order)
            await stage.until_home(status={})

        stage.play(drive)
