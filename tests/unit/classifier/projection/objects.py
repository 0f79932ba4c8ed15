"""Builders of observed objects that projection tests share."""

from typing import Any

from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.observed import Observed
from shared.testing.builders import observed_object

Json = dict[str, Any]


QUEUE = {"kueue.x-k8s.io/queue-name": "main"}


def job(name: str = "train", *, uid: str = "u-1", **parts: Any) -> Json:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    metadata = {
        "name": name,
        "namespace": "team-a",
        "uid": uid,
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": dict(parts.pop("labels", QUEUE)),
        **parts.pop("metadata", {}),
    }
    spec = {"suspend": True, "template": template, **parts.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": parts.pop("status", {})}


def seen(kind: Kind, obj: Json, *, deleted: bool = False) -> Observed:
    return observed_object(kind, obj, deleted=deleted)


def with_quota(name: str, uid: str, count: int) -> Json:
    """The Workload object of a job that was admitted with so many pods."""
    assignment = {"name": "main", "count": count, "flavors": {"cpu": "f"}}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    workload = workload_name(kind="Job", group="batch", name=name, uid=uid)
    return {
        "metadata": {
            "name": workload,
            "namespace": "team-a",
            "uid": "w-1",
            "resourceVersion": "6",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": count}]},
        "status": {
            "conditions": [reserved],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        },
    }
