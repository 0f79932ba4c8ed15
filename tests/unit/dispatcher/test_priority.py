"""A copy follows the priority class of its job, while it waits and while it runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.dispatches import Dispatch
from tests.unit.dispatcher.harness import Harness, job, workload_of

LABEL = "kueue.x-k8s.io/priority-class"
VALUES = {"low": 10, "high": 100}


def job_of_class(class_: str | None) -> Object:
    """The job, with that label."""
    train = job()
    train["metadata"]["labels"] |= {LABEL: class_} if class_ else {}
    return train


async def observe_classes(harness: Harness, **values: int) -> None:
    """The hub has these."""
    for name, value in values.items():
        obj: Object = {"metadata": {"name": name, "uid": name}, "value": value}
        await harness.observe(kinds.WORKLOAD_PRIORITY_CLASS, obj)


async def offered(harness: Harness, class_: str | None) -> Dispatch:
    """A job of that class is offered to east."""
    await observe_classes(harness, **VALUES)
    await harness.submit(job_of_class(class_))
    await harness.decide(job_of_class(class_), "reserved")
    return await harness.until_order("east", "offered")


def play(
    drive: Callable[[Harness], Awaitable[None]], *, kueue: bool = False, **settings: Any
) -> None:
    with Harness(spokes=("east",), **settings) as harness:
        harness.kueues |= {"east"} if kueue else set()

        async def act() -> None:
            await asyncio.sleep(1)
            await drive(harness)

        harness.run(act)


async def settled_order(harness: Harness) -> Dispatch:
    """The last order to east, after the dispatcher has settled."""
    await asyncio.sleep(2)
    last = await harness.last_order("east")
    assert last is not None
    return last


def test_waiting_copy_gets_new_priority_by_the_same_order() -> None:
    async def drive(harness: Harness) -> None:
        first = await offered(harness, "low")
        assert (first.priority_class, first.reranked) == ("low", False)
        await harness.observe_copy("east", first)
        await harness.observe(kinds.JOB, job_of_class("high"))
        last = await settled_order(harness)
        assert (last.state, last.priority_class, last.reranked) == ("offered", "high", True)
        assert last.job is not None
        assert last.job["metadata"]["labels"][LABEL] == "high", "if it is made only now"
        assert (last.number, last.attempt, last.at) == (first.number, first.attempt, first.at), (
            "it is no new offer: its patience goes on"
        )

    play(drive)


def test_offer_without_observed_copy_gets_new_priority() -> None:
    async def drive(harness: Harness) -> None:
        await offered(harness, "low")
        await harness.observe(kinds.JOB, job_of_class("high"))
        assert (await settled_order(harness)).priority_class == "high"

    play(drive)


def test_running_copy_gets_new_priority_without_its_job() -> None:
    async def drive(harness: Harness) -> None:
        first = await offered(harness, "low")
        await harness.observe_copy("east", first, active=1)
        await harness.until_order("east", "chosen")
        await harness.observe(kinds.JOB, job_of_class("high"))
        last = await settled_order(harness)
        assert (last.state, last.priority_class, last.reranked) == ("chosen", "high", True)
        assert last.job is None

    play(drive)


def test_finished_copy_keeps_its_priority() -> None:
    async def drive(harness: Harness) -> None:
        first = await offered(harness, "low")
        done = {"type": "Complete", "status": "True"}
        await harness.observe_copy("east", first, conditions=[done])
        before = await harness.until_order("east", "chosen")
        await harness.observe(kinds.JOB, job_of_class("high"))
        assert await settled_order(harness) == before

    play(drive)


def test_adopted_copy_gets_current_priority_of_job() -> None:
    async def drive(harness: Harness) -> None:
        order = {"sluicegate.dev/order": "hub/5"}
        labels = {
            "kueue.x-k8s.io/prebuilt-workload-name": workload_of(),
            "kueue.x-k8s.io/multikueue-origin": "multikueue",
            LABEL: "low",
        }
        copy = job()
        copy["metadata"] |= {"uid": "east-1", "annotations": order, "labels": labels}
        await harness.observe(kinds.JOB, {**copy, "status": {"active": 1}}, cluster="east")
        await observe_classes(harness, **VALUES)
        await harness.submit(job_of_class("high"))
        await harness.decide(job_of_class("high"), "reserved")
        adopted = await harness.until_order("east", "chosen")
        assert (adopted.number, adopted.priority_class, adopted.reranked) == (5, "high", True)

    play(drive, collect_orphans=False)


def test_unknown_class_removed_label_and_changed_value_are_not_sent() -> None:
    async def drive(harness: Harness) -> None:
        before = await offered(harness, "low")
        for class_ in ("unheard-of", None):
            await harness.observe(kinds.JOB, job_of_class(class_))
            assert await settled_order(harness) == before
        await observe_classes(harness, low=11)
        assert await settled_order(harness) == before, (
            "its own class of that name counts on a spoke"
        )

    play(drive)


def test_class_added_to_job_without_class_is_not_sent() -> None:
    async def drive(harness: Harness) -> None:
        before = await offered(harness, None)
        await harness.observe(kinds.JOB, job_of_class("high"))
        assert await settled_order(harness) == before

    play(drive)


def test_spoke_with_own_kueue_gets_class_and_value_of_hub() -> None:
    async def drive(harness: Harness) -> None:
        async def priority_of_workload() -> tuple[int, str]:
            spec = ((await settled_order(harness)).workload or {})["spec"]
            reference = spec["priorityClassRef"]
            assert (reference["group"], reference["kind"]) == (
                "kueue.x-k8s.io",
                "WorkloadPriorityClass",
            )
            return spec["priority"], reference["name"]

        await offered(harness, "low")
        assert await priority_of_workload() == (10, "low")
        await harness.observe(kinds.JOB, job_of_class("high"))
        assert await priority_of_workload() == (100, "high")
        await observe_classes(harness, high=101)
        assert await priority_of_workload() == (101, "high")
        last = await settled_order(harness)
        assert last.job is not None
        assert last.job["metadata"]["labels"][LABEL] == "high", "for when it is made"

    play(drive, kueue=True)
