"""Orders that no hub may give, published by whoever holds the dispatcher's key (T3)."""

from collections.abc import Iterator
from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import COPY_FINALIZER, LEASE, ORDER
from shared.contracts.messages.workloads import JobRef
from tests.attacks.attack import Attack, Forge
from tests.attacks.forgery import HUB, SPOKE, TENANT, Forgery
from tests.attacks.ground import BreachError
from tests.clock import now

NAME = "job-train-1"
LABELS = {ORIGIN: "multikueue", PREBUILT_WORKLOAD: NAME, "kueue.x-k8s.io/queue-name": "main"}
MARK = f"{HUB}/7"


def attacks() -> Iterator[Attack]:
    """One row for each forged order."""
    for way, (changes, why) in FORGERIES.items():
        yield Attack(threat="T3", way=f"dispatcher orders {way}", forge=_ordering(changes, why))


def _ordering(changes: dict[str, Any], why: str) -> Forge:
    async def forge(stage: Forgery) -> None:
        before = await stage.contents()
        if why not in (told := await stage.why_refused(order(**changes))):
            raise BreachError(f"refused for another reason: {told}")
        await stage.judge(before)

    return forge


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
    "a Job with an annotation that names somebody else's Workload": (
        {"job": job(metadata__annotations={ORDER: MARK, PREBUILT_WORKLOAD: "job-other"})},
        "job-other"),
    "a Job without the mark of its order": ({"job": job(metadata__annotations={})}, ORDER),
    "a Job with the mark of another order": (
        {"job": job(metadata__annotations={ORDER: "hub/6"})}, "hub/6"),
    "a Job with a lease that is no length of time": (
        {"job": job(metadata__annotations={ORDER: MARK, LEASE: "soon"})}, "must be seconds"),
    "a Job with a lease that never ends": (
        {"job": job(metadata__annotations={ORDER: MARK, LEASE: "inf"})}, "must be seconds"),
    "a Pod": ({"job": job(**POD)}, "no Integration here is for it"),
    "a ClusterRoleBinding": ({"job": job(**ROLE)}, "no Integration here is for it"),
    "a Secret": ({"job": job(apiVersion="v1", kind="Secret")}, "no Integration here is for it"),
    "a Job of a version that is not the Integration's": (
        {"job": job(apiVersion="batch/v1beta1")}, "must be 'batch/v1'"),
    "an object without a kind": ({"job": job(kind=None)}, "no Integration here is for it"),
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
    "a target that is another job": ({"target": target(name="other")}, "must be 'train'"),
    "a target of a kind that cannot wait": (
        {"state": "chosen", "job": None, "wish": {"a": 1},
         "target": target(api_version="apps/v1", kind="Deployment", plural="deployments")},
        "no Integration here is for it"),
    "a Workload where no Kueue is": ({"job": None, "workload": WORKLOAD}, "no Kueue of its own"),
    "the withdrawal of a Secret": (
        {"state": "withdrawn", "job": job(apiVersion="v1", kind="Secret")}, "no Integration here is for it"),
    "the withdrawal of a job in another namespace": (
        {"state": "withdrawn", "job": KUBE_SYSTEM}, "the order is for"),
    "the withdrawal of a job without marks": (
        {"state": "withdrawn", "job": job(metadata__labels={})}, ORIGIN),
    "the withdrawal of another hub's copy": (
        {"state": "withdrawn", "job": job(metadata__annotations={ORDER: "west/7"})},
        "must be an order of 'hub'"),
}  # fmt: skip
