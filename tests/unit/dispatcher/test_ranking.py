"""A copy follows the priority class of its job, while it waits and while it runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.effects import Dispatch
from tests.unit.dispatcher.stage import Stage, job, named

LABEL = "kueue.x-k8s.io/priority-class"
VALUES = {"low": 10, "high": 100}


def ranked(class_: str | None) -> Object:
    """The job, with that label."""
    train = job()
    train["metadata"]["labels"] |= {LABEL: class_} if class_ else {}
    return train


async def classes(stage: Stage, **values: int) -> None:
    """The hub has these."""
    for name, value in values.items():
        obj: Object = {"metadata": {"name": name, "uid": name}, "value": value}
        await stage.see(kinds.WORKLOAD_PRIORITY_CLASS, obj)


async def offered(stage: Stage, class_: str | None) -> Dispatch:
    """A job of that class is offered to east."""
    await classes(stage, **VALUES)
    await stage.submit(ranked(class_))
    await stage.decide(ranked(class_), "reserved")
    return await stage.until_dispatch("east", "offered")


def play(
    drive: Callable[[Stage], Awaitable[None]], *, kueue: bool = False, **settings: Any
) -> None:
    with Stage(spokes=("east",), **settings) as stage:
        stage.kueues |= {"east"} if kueue else set()

        async def act() -> None:
            await asyncio.sleep(1)
            await drive(stage)

        stage.play(act)


async def told(stage: Stage) -> Dispatch:
    """What east was told last, once there is nothing more to say."""
    await asyncio.sleep(2)
    last = await stage.dispatch("east")
    assert last is not None
    return last


def test_a_copy_that_waits_follows_by_the_same_order() -> None:
    async def drive(stage: Stage) -> None:
        first = await offered(stage, "low")
        assert (first.priority_class, first.reranked) == ("low", False)
        await stage.show_copy("east", first)
        await stage.see(kinds.JOB, ranked("high"))
        last = await told(stage)
        assert (last.state, last.priority_class, last.reranked) == ("offered", "high", True)
        assert last.job is not None
        assert last.job["metadata"]["labels"][LABEL] == "high", "if it is made only now"
        assert (last.number, last.attempt, last.at) == (first.number, first.attempt, first.at), (
            "it is no new offer: its patience goes on"
        )

    play(drive)


def test_a_copy_that_is_not_seen_yet_follows_too() -> None:
    async def drive(stage: Stage) -> None:
        await offered(stage, "low")
        await stage.see(kinds.JOB, ranked("high"))
        assert (await told(stage)).priority_class == "high"

    play(drive)


def test_a_copy_that_runs_follows_and_its_job_is_not_sent_again() -> None:
    async def drive(stage: Stage) -> None:
        first = await offered(stage, "low")
        await stage.show_copy("east", first, active=1)
        await stage.until_dispatch("east", "chosen")
        await stage.see(kinds.JOB, ranked("high"))
        last = await told(stage)
        assert (last.state, last.priority_class, last.reranked) == ("chosen", "high", True)
        assert last.job is None

    play(drive)


def test_a_copy_that_has_ended_is_left_alone() -> None:
    async def drive(stage: Stage) -> None:
        first = await offered(stage, "low")
        done = {"type": "Complete", "status": "True"}
        await stage.show_copy("east", first, conditions=[done])
        before = await stage.until_dispatch("east", "chosen")
        await stage.see(kinds.JOB, ranked("high"))
        assert await told(stage) == before

    play(drive)


def test_a_copy_whose_order_was_lost_is_told_what_its_job_has_now() -> None:
    async def drive(stage: Stage) -> None:
        order = {"sluicegate.dev/order": "hub/5"}
        labels = {
            "kueue.x-k8s.io/prebuilt-workload-name": named(),
            "kueue.x-k8s.io/multikueue-origin": "multikueue",
            LABEL: "low",
        }
        copy = job()
        copy["metadata"] |= {"uid": "east-1", "annotations": order, "labels": labels}
        await stage.see(kinds.JOB, {**copy, "status": {"active": 1}}, cluster="east")
        await classes(stage, **VALUES)
        await stage.submit(ranked("high"))
        await stage.decide(ranked("high"), "reserved")
        adopted = await stage.until_dispatch("east", "chosen")
        assert (adopted.number, adopted.priority_class, adopted.reranked) == (5, "high", True)

    play(drive, collect_orphans=False)


def test_what_the_hub_itself_does_not_follow_is_not_carried() -> None:
    async def drive(stage: Stage) -> None:
        before = await offered(stage, "low")
        for class_ in ("unheard-of", None):
            await stage.see(kinds.JOB, ranked(class_))
            assert await told(stage) == before
        await classes(stage, low=11)
        assert await told(stage) == before, "its own class of that name counts on a spoke"

    play(drive)


def test_a_class_where_there_was_none_is_not_carried() -> None:
    async def drive(stage: Stage) -> None:
        before = await offered(stage, None)
        await stage.see(kinds.JOB, ranked("high"))
        assert await told(stage) == before

    play(drive)


def test_a_kueue_of_its_own_is_told_the_class_and_what_it_is_worth_here() -> None:
    async def drive(stage: Stage) -> None:
        async def said() -> tuple[int, str]:
            spec = ((await told(stage)).workload or {})["spec"]
            reference = spec["priorityClassRef"]
            assert (reference["group"], reference["kind"]) == (
                "kueue.x-k8s.io",
                "WorkloadPriorityClass",
            )
            return spec["priority"], reference["name"]

        await offered(stage, "low")
        assert await said() == (10, "low")
        await stage.see(kinds.JOB, ranked("high"))
        assert await said() == (100, "high")
        await classes(stage, high=101)
        assert await said() == (101, "high")
        last = await told(stage)
        assert last.job is not None
        assert last.job["metadata"]["labels"][LABEL] == "high", "for when it is made"

    play(drive, kueue=True)
