"""A copy on a spoke gets the current priority class of the hub's job."""

from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.dispatches import Dispatch
from tests.unit.patcher.copy_stage import ORDER, ORIGIN, PREBUILT, Spoke, copy, order
from tests.unit.patcher.stage import NOON
from tests.unit.patcher.test_copies import spoke

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
async def test_copy_gets_the_new_class_in_one_write(spoke: Spoke, state: str) -> None:
    await say(spoke, low())
    await say(spoke, high(state))
    after = await shown(spoke)
    assert after[0] == "high"
    await spoke.apply(high(state))
    assert await shown(spoke) == after
    assert await spoke.reported() is None


async def test_late_order_does_not_revert_a_newer_class(spoke: Spoke) -> None:
    await say(spoke, low())
    back = high(priority_class="low", job=ranked("low"))
    await say(spoke, high())
    await spoke.apply(back)
    assert (await shown(spoke))[0] == "high"


async def test_withdrawn_copy_is_not_changed(spoke: Spoke) -> None:
    await say(spoke, low())
    await spoke.bus.publish(order("withdrawn"))
    await spoke.apply(high())
    assert (await shown(spoke))[0] == "low"


OTHERS: dict[str, dict[str, Any]] = {
    "of an earlier order": {"annotations": {ORDER: "hub/6"}},
    "of another hub": {"annotations": {ORDER: "hub-b/7"}},
    "of another workload": {"labels": {LABEL: "low", ORIGIN: "multikueue", PREBUILT: "other"}},
    "no copy": {"labels": {LABEL: "low"}, "annotations": {}},
    "no copy, with an order's mark": {"labels": {LABEL: "low", PREBUILT: "wl"}},
}


@pytest.mark.parametrize("more", OTHERS.values(), ids=OTHERS.keys())
async def test_copy_of_another_order_is_not_changed(spoke: Spoke, more: dict[str, Any]) -> None:
    theirs = ranked("low")
    theirs["metadata"] |= more
    await spoke.kube.create(kinds.JOB, theirs)
    await say(spoke, high("chosen"))
    assert (await shown(spoke))[0] == "low"


async def test_ended_copy_is_not_changed(spoke: Spoke) -> None:
    await say(spoke, low())
    ended = {"status": {"conditions": [COMPLETE]}}
    await spoke.kube.patch(kinds.JOB, "default", "train", ended, subresource="status")
    before = await shown(spoke)
    await say(spoke, high("chosen"))
    assert await shown(spoke) == before


async def test_deleted_copy_is_not_changed_and_a_gone_one_is_no_error(
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


async def test_class_is_written_on_workload_and_job_of_a_cluster_with_kueue(
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


async def test_finished_workload_is_not_changed(spoke: Spoke) -> None:
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
