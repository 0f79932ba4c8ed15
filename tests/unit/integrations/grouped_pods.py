"""Pods of groups, for the tests of those who deal with them."""

from typing import Any, Final

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import MANAGED_LABEL, QUEUE
from shared.integrations import Integration, opted_documents
from shared.integrations.groups import Group, member_of

PODS: Final = Integration.load(next(iter(opted_documents(["pod"]))))
PREFIX: Final = "kueue.x-k8s.io/"
NOON: Final = "2026-01-01T12:00:00Z"


def pod(
    name: str,
    phase: str = "Pending",
    *,
    gated: bool | None = None,
    total: object = 3,
    cpu: str = "1",
    role: str = "a",
    version: int = 1,
    stopped: bool = False,
    node: str = "",
    queue: str = "q",
    kept: bool = True,
    **more: Any,
) -> Object:
    """A pod of group `g`. A pending one is gated unless told otherwise. `more`: marks, and metadata."""
    marks = {
        PREFIX + mark.replace("_", "-"): more.pop(mark)
        for mark in ("pod_group_fast_admission", "pod_group_serving", "retriable_in_group")
        if mark in more
    }
    waits = phase == "Pending" if gated is None else gated
    target = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted"}
    resources = {"requests": {"cpu": cpu}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": NOON,
            "labels": {QUEUE: queue, MANAGED_LABEL: "true", PREFIX + "pod-group-name": "g"},
            "annotations": {
                PREFIX + "pod-group-total-count": str(total),
                PREFIX + "role-hash": role,
                **marks,
            },
            **({"finalizers": [MANAGED_LABEL]} if kept else {}),
            **more,
        },
        "spec": {
            "containers": [{"name": "c", "resources": resources}],
            **({"nodeName": node} if node else {}),
            **({"schedulingGates": [{"name": PREFIX + "admission"}]} if waits else {}),
        },
        "status": {"phase": phase, **({"conditions": [target]} if stopped else {})},
    }


def deleted(name: str, phase: str = "Running", *, seconds: int = 0, **more: Any) -> Object:
    """A pod that is being deleted and has so many seconds left."""
    given: dict[str, Any] = {"deletionTimestamp": NOON, "deletionGracePeriodSeconds": seconds}
    return pod(name, phase, **given, **more)


def group_of(*pods: Object) -> Group:
    group = Group(PODS, "team-a", "g")
    for one in pods:
        group.put(member_of(one, PODS), one)
    return group


def workload(*, quota: bool = True, finished: bool = False, **counts: int) -> Object:
    """The Workload of a group with so many pods in each role."""
    types = [*(["QuotaReserved"] if quota else []), *(["Finished"] if finished else [])]
    pod_sets = [
        {"name": name, "count": count, "template": {"spec": pod("x")["spec"]}}
        for name, count in counts.items()
    ]
    assigned = [{"name": name, "count": count} for name, count in counts.items()]
    admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "g",
            "namespace": "team-a",
            "uid": "w-1",
            "resourceVersion": "9",
            "creationTimestamp": NOON,
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
        },
        "spec": {"queueName": "q", "podSets": pod_sets},
        "status": {
            **({"admission": admission} if quota else {}),
            "conditions": [{"type": one, "status": "True", "reason": one} for one in types],
        },
    }
