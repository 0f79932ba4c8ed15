"""A copy on a spoke is given the priority class that its job has at the hub by now."""

from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.effects import Dispatch
from tests.unit.patcher.stage import NOON
from tests.unit.patcher.test_spokes import ORDER, ORIGIN, Spoke, copy, order, spoke

__all__ = ["spoke"]

LABEL = "kueue.x-k8s.io/priority-class"
CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}
COMPLETE = {"type": "Complete", "status": "True"}


def ranked(class_: str) -> Object:
    made = copy()
    made["metadata"]["labels"][LABEL] = class_
    return made


def workload(class_: str, priority: int) -> Object:
    """What a Kueue of its own is given."""
    return {
        "apiVersion": kinds.WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {
            "name": "wl", "namespace": "default",
            "labels": {ORIGIN: "multikueue"}, "annotations": {ORDER: "hub/7"},
        },
        "spec": {
            "queueName": "main", "active": True,
            "priority": priority, "priorityClassRef": {**CLASS, "name": class_},
            "podSets": [{"name": "main", "count": 1, "template": copy()["spec"]["template"]}],
        },
    }  # fmt: skip


def low(state: Any = "offered", **more: Any) -> Dispatch:
    return order(state, **({"job": ranked("low"), "priority_class": "low"} | more))


def high(state: Any = "offered", **more: Any) -> Dispatch:
    job = None if state == "chosen" else ranked("high")
    options: dict[str, Any] = {"job": job, "priority_class": "high", "reranked": True}
    return order(state, **(options | more))


async def say(spoke: Spoke, one: Dispatch) -> None:
    """The order is on the log, and comes."""
    await spoke.bus.publish(one)
    await spoke.apply(one)


async def shown(spoke: Spoke) -> tuple[str, str]:
    """The class of the copy, and the version that says whether it was written again."""
    job = await spoke.job()
    assert job is not None
    return job["metadata"]["labels"][LABEL], job["metadata"]["resourceVersion"]


@pytest.mark.parametrize("state", ["offered", "chosen"])
async def test_the_copy_follows_and_is_written_once(spoke: Spoke, state: str) -> None:
    await say(spoke, low())
    await say(spoke, high(state))
    after = await shown(spoke)
    assert after[0] == "high"
    await spoke.apply(high(state))
    assert await shown(spoke) == after
    assert await spoke.said() is None


async def test_an_order_that_comes_late_takes_no_newer_class_back(spoke: Spoke) -> None:
    await say(spoke, low())
    back = high(priority_class="low", job=ranked("low"))
    await say(spoke, high())
    await spoke.apply(back)
    assert (await shown(spoke))[0] == "high"


async def test_what_was_withdrawn_meanwhile_is_left_alone(spoke: Spoke) -> None:
    await say(spoke, low())
    await spoke.bus.publish(order("withdrawn"))
    await spoke.apply(high())
    assert (await shown(spoke))[0] == "low"


OTHERS: dict[str, dict[str, Any]] = {
    "of an earlier order": {"annotations": {ORDER: "hub/6"}},
    "of another hub": {"annotations": {ORDER: "hub-b/7"}},
    "no copy": {"labels": {LABEL: "low"}, "annotations": {}},
}


@pytest.mark.parametrize("more", OTHERS.values(), ids=OTHERS.keys())
async def test_what_that_order_did_not_make_is_left_alone(
    spoke: Spoke, more: dict[str, Any]
) -> None:
    theirs = ranked("low")
    theirs["metadata"] |= more
    await spoke.kube.create(kinds.JOB, theirs)
    await say(spoke, high("chosen"))
    assert (await shown(spoke))[0] == "low"


async def test_a_copy_that_has_ended_stays_as_it_was(spoke: Spoke) -> None:
    await say(spoke, low())
    ended = {"status": {"conditions": [COMPLETE]}}
    await spoke.kube.patch(kinds.JOB, "default", "train", ended, subresource="status")
    before = await shown(spoke)
    await say(spoke, high("chosen"))
    assert await shown(spoke) == before


async def test_a_copy_on_its_way_out_stays_as_it_was_and_one_that_is_gone_is_no_trouble(
    spoke: Spoke,
) -> None:
    await say(spoke, low())
    await spoke.kube.delete(kinds.JOB, "default", "train")
    await say(spoke, high("chosen"))
    assert (await shown(spoke))[0] == "low"
    await spoke.apply(order("withdrawn"))
    await say(spoke, high("chosen"))
    assert await spoke.job() is None


async def remote(spoke: Spoke) -> tuple[int, str, str]:
    found = await spoke.kube.get(kinds.WORKLOAD, "default", "wl")
    spec = found["spec"]
    name, version = spec["priorityClassRef"]["name"], found["metadata"]["resourceVersion"]
    return spec["priority"], name, version


async def test_where_a_kueue_admits_its_workload_follows_and_the_job_that_has_come_of_it(
    spoke: Spoke,
) -> None:
    await say(spoke, low(workload=workload("low", 10)))
    await say(spoke, high(workload=workload("high", 100)))
    first = await remote(spoke)
    assert first[:2] == (100, "high")
    assert await spoke.job() is None, "it is made once the spoke is chosen"
    await say(spoke, high("chosen", job=ranked("high"), workload=workload("high", 100)))
    assert await remote(spoke) == first
    again = high("chosen", job=ranked("low"), workload=workload("low", 11), priority_class="low")
    await say(spoke, again)
    assert (await remote(spoke))[:2] == (11, "low")
    assert (await shown(spoke))[0] == "low"


async def test_a_workload_that_has_finished_stays_as_it_was(spoke: Spoke) -> None:
    await say(spoke, low(workload=workload("low", 10)))
    at = NOON.strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "",
        "lastTransitionTime": at,
    }
    patch = {"status": {"conditions": [said]}}
    await spoke.kube.patch(kinds.WORKLOAD, "default", "wl", patch, subresource="status")
    before = await remote(spoke)
    await say(spoke, high(workload=workload("high", 100)))
    assert await remote(spoke) == before
