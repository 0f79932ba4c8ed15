"""Whoever may publish orders makes no patcher do what no hub may ask: real bus, simulated clusters."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from services.patcher.cluster.writer import get_or_none
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import (
    COPY_FINALIZER,
    LEASE,
    ORDER,
    ORIGIN,
    PREBUILT_WORKLOAD,
)
from shared.contracts.messages.workloads import JobRef
from shared.testing.waiting import eventually, first_value
from tests.integration.forged_stage import HUB, SPOKE, TENANT, Forgery, forgery, now

NAME = "job-train-1"
LABELS = {ORIGIN: "multikueue", PREBUILT_WORKLOAD: NAME, "kueue.x-k8s.io/queue-name": "main"}
MARK = f"{HUB}/7"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Forgery]:
    async with forgery() as found:
        yield found


def job(**changes: Any) -> Object:
    """A copy as a hub orders it, and what an attacker changes: `metadata__…`, `spec__…`, or a top field."""
    metadata: Object = {
        "name": "train",
        "namespace": TENANT,
        "labels": dict(LABELS),
        "annotations": {ORDER: MARK},
        "finalizers": [COPY_FINALIZER],
    }
    containers = [
        {"name": "c", "image": "evil", "securityContext": {"privileged": True},
         "resources": {"requests": {"cpu": "1"}}},
    ]  # fmt: skip
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    found: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }
    for path, value in changes.items():
        *fields, last = path.split("__")
        place = found
        for field in fields:
            place = place[field]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return found


def order(**changes: Any) -> Dispatch:
    usual: dict[str, Any] = {
        "spoke": SPOKE, "cluster": HUB, "namespace": TENANT, "name": NAME, "uid": "u",
        "state": "offered", "number": 7, "job": job(), "at": now(),
    }  # fmt: skip
    return Dispatch(**(usual | changes))


def target(**changes: Any) -> JobRef:
    usual = {"api_version": "batch/v1", "kind": "Job", "plural": "jobs", "name": "train"}
    return JobRef(uid="u", **{**usual, **changes})


def without(key: str) -> dict[str, str]:
    return {name: value for name, value in LABELS.items() if name != key}


KUBE_SYSTEM = job(metadata__namespace="kube-system")
OWNER = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "name": "w", "uid": "u"}
POD = {"apiVersion": "v1", "kind": "Pod"}
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
RUN = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "spec": {"pipelineSpec": {}}}
WORKLOAD: Object = {
    "apiVersion": kinds.WORKLOAD.api_version,
    "kind": "Workload",
    "metadata": {
        "name": NAME, "namespace": TENANT, "labels": {ORIGIN: "multikueue"},
        "annotations": {ORDER: MARK},
    },
    "spec": {"queueName": "main", "priority": 0, "podSets": []},
}  # fmt: skip

FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "a privileged Job in kube-system": (
        {"namespace": "kube-system", "job": KUBE_SYSTEM}, "SLUICE_EXCLUDED_NAMESPACES"),
    "a Job in kube-public": (
        {"namespace": "kube-public", "job": job(metadata__namespace="kube-public")}, "excluded"),
    "a Job in our own namespace": (
        {"namespace": "sluicegate", "job": job(metadata__namespace="sluicegate")}, "excluded"),
    "an order for a tenant, with an object in kube-system": (
        {"job": KUBE_SYSTEM}, "the order is for 'team-a'"),
    "an object without a namespace": ({"job": job(metadata__namespace=None)}, "the order is for"),
    "an order to the hub's own patcher": ({"spoke": HUB}, "is the hub itself"),
    "an order to the hub, of a hub that is none": (
        {"spoke": HUB, "cluster": "elsewhere"}, "is the hub itself"),
    "an order to the hub, of another hub, withdrawn": (
        {"spoke": HUB, "cluster": "west", "state": "withdrawn"}, "is the hub itself"),
    "an order of a hub that is not this cluster's": (
        {"cluster": "west", "job": job(metadata__annotations={ORDER: "west/7"})}, "SLUICE_HUB"),
    "an order of the spoke to itself": (
        {"cluster": SPOKE, "job": job(metadata__annotations={ORDER: "east/7"})}, "the hub itself"),
    "a Job that is not held": ({"job": job(spec__suspend=False)}, "must be created held"),
    "a Job that says nothing of being held": ({"job": job(spec__suspend=None)}, "created held"),
    "a PipelineRun that is not held": ({"job": job(**RUN)}, "must be created held"),
    "a Job without the mark of its origin": (
        {"job": job(metadata__labels=without(ORIGIN))}, ORIGIN),
    "a Job without the name of its Workload": (
        {"job": job(metadata__labels=without(PREBUILT_WORKLOAD))}, PREBUILT_WORKLOAD),
    "a Job with the name of somebody else's Workload": (
        {"job": job(metadata__labels={**LABELS, PREBUILT_WORKLOAD: "job-other"})}, "job-other"),
    "a Job without the mark of its order": ({"job": job(metadata__annotations={})}, ORDER),
    "a Job with the mark of another order": (
        {"job": job(metadata__annotations={ORDER: "hub/6"})}, "hub/6"),
    "a Job with a lease that is no length of time": (
        {"job": job(metadata__annotations={ORDER: MARK, LEASE: "soon"})}, "must be seconds"),
    "a Job with a lease that never ends": (
        {"job": job(metadata__annotations={ORDER: MARK, LEASE: "inf"})}, "must be seconds"),
    "a Pod": ({"job": job(**POD)}, "nothing that can wait"),
    "a ClusterRoleBinding": ({"job": job(**ROLE)}, "nothing that can wait"),
    "a Secret": ({"job": job(apiVersion="v1", kind="Secret")}, "nothing that can wait"),
    "a Job of a version that is not the Integration's": (
        {"job": job(apiVersion="batch/v1beta1")}, "must be 'batch/v1'"),
    "an object without a kind": ({"job": job(kind=None)}, "nothing that can wait"),
    "a Job without a queue": (
        {"job": job(metadata__labels=without("kueue.x-k8s.io/queue-name"))}, "names no LocalQueue"),
    "a Job in a queue that does not exist": (
        {"job": job(metadata__labels={**LABELS, "kueue.x-k8s.io/queue-name": "made-up"})},
        "LocalQueue team-a/made-up does not exist"),
    "a Job that a Workload seems to own": (
        {"job": job(metadata__ownerReferences=[{**OWNER, "controller": True}])}, "ownerReferences"),
    "a Job with a generated name": ({"job": job(metadata__generateName="x-")}, "generateName"),
    "a Job with a status": ({"job": job(status={"active": 1})}, "job.status"),
    "a Job with a finalizer of somebody else": (
        {"job": job(metadata__finalizers=["example.com/stay"])}, "finalizers"),
    "a Job without a name": ({"job": job(metadata__name=None)}, "metadata.name"),
    "metadata that is a text": ({"job": job(metadata="x")}, "must be an object"),
    "labels that are a list": ({"job": job(metadata__labels=["x"])}, "map of strings"),
    "a spec that is a list": ({"job": job(spec=[1])}, "spec"),
    "a template that is a text": ({"job": job(spec__template="x")}, "spec.template"),
    "a target that is another job": ({"target": target(name="other")}, "the job is 'train'"),
    "a target of a kind that cannot wait": (
        {"state": "chosen", "job": None, "wish": {"a": 1},
         "target": target(api_version="apps/v1", kind="Deployment", plural="deployments")},
        "nothing that can wait"),
    "a Workload where no Kueue is": ({"job": None, "workload": WORKLOAD}, "no Kueue of its own"),
    "the withdrawal of a Secret": (
        {"state": "withdrawn", "job": job(apiVersion="v1", kind="Secret")}, "nothing that can wait"),
    "the withdrawal of a job in another namespace": (
        {"state": "withdrawn", "job": KUBE_SYSTEM}, "the order is for"),
    "the withdrawal of a job without marks": (
        {"state": "withdrawn", "job": job(metadata__labels={})}, ORIGIN),
    "the withdrawal of another hub's copy": (
        {"state": "withdrawn", "job": job(metadata__annotations={ORDER: "west/7"})}, "must name the hub"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), FORGERIES.values(), ids=FORGERIES.keys())
async def test_forged_order_is_refused_and_changes_nothing(
    stage: Forgery, changes: dict[str, Any], why: str
) -> None:
    before = [await cluster.contents() for cluster in stage.clusters.values()]
    assert why in await stage.why_refused(order(**changes))
    assert [await cluster.contents() for cluster in stage.clusters.values()] == before
    assert all(cluster.works for cluster in stage.clusters.values())


async def test_order_of_the_hub_is_carried_out(stage: Forgery) -> None:
    await stage.bus.publish(order())
    made = await first_value(partial(get_or_none, stage.spoke.kube, kinds.JOB, TENANT, "train"))
    assert made["spec"]["suspend"]
    assert made["metadata"]["labels"] == LABELS


async def test_order_changes_no_job_that_it_did_not_make(stage: Forgery) -> None:
    """The last field of the second order shows when the first was handled: they have one key."""
    spec = job()["spec"]
    mine = await stage.spoke.make(kinds.JOB, "mine", namespace=TENANT, spec=spec)
    wish = {"suspend": False, "activeDeadlineSeconds": 5}
    chosen = {"state": "chosen", "job": None, "wish": wish}
    await stage.bus.publish(order(target=target(name="mine"), **chosen))
    await stage.bus.publish(order())
    await first_value(partial(get_or_none, stage.spoke.kube, kinds.JOB, TENANT, "train"))
    assert await stage.spoke.kube.get(kinds.JOB, TENANT, "mine") == mine


CHANGES: dict[str, Object] = {
    "it starts": {"suspend": False},
    "its pods run something else": {"template": {"spec": {"containers": []}}},
    "it has more pods": {"parallelism": 100},
    "somebody else runs it": {"managedBy": "example.com/evil"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_order_changes_its_copy_only_so_that_it_ends(stage: Forgery, change: Object) -> None:
    await stage.bus.publish(order())
    before = await first_value(partial(get_or_none, stage.spoke.kube, kinds.JOB, TENANT, "train"))
    seconds = before["spec"].get("activeDeadlineSeconds", 1_000) - 1
    wish = {**change, "activeDeadlineSeconds": seconds}
    await stage.bus.publish(order(state="chosen", job=None, target=target(), wish=wish))

    async def shortened() -> bool:
        found = await stage.spoke.kube.get(kinds.JOB, TENANT, "train")
        return bool(found["spec"].get("activeDeadlineSeconds") == seconds)

    await eventually(shortened)
    after = await stage.spoke.kube.get(kinds.JOB, TENANT, "train")
    assert {**after["spec"], "activeDeadlineSeconds": 0} == {
        **before["spec"],
        "activeDeadlineSeconds": 0,
    }
