"""Builders of messages for tests: complete, valid, with a default for all that a test does not name."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import JobRef, PodSet, WorkloadState

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The time of creation and decision if a test gives none."""

_NOTHING: Final[Mapping[str, Any]] = {}


def observed_object(
    kind: Kind,
    obj: Mapping[str, Any],
    *,
    cluster: str = "hub",
    version: int | str | None = None,
    deleted: bool = False,
) -> Observed:
    """Return the message that the watcher of `cluster` publishes about `obj`.

    Its uid and version are those of the metadata; an object without a uid gets its name as uid.
    """
    metadata = {"uid": obj["metadata"]["name"]} | obj["metadata"]
    return Observed(
        cluster=cluster,
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespace=metadata.get("namespace"),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=str(metadata.get("resourceVersion", "1") if version is None else version),
        deleted=deleted,
        object={**obj, "metadata": metadata},
    )


def observed(
    kind: Kind,
    name: str,
    spec: Mapping[str, Any] = _NOTHING,
    namespace: str | None = None,
    *,
    version: int | str = "1",
    deleted: bool = False,
    metadata: Mapping[str, Any] = _NOTHING,
    **more: Any,
) -> Observed:
    """Return the message about an object of the hub with this spec; `more` are its other parts."""
    known: dict[str, Any] = {"name": name, "uid": f"{kind.plural}-{name}"}
    if namespace is not None:
        known["namespace"] = namespace
    obj = {"metadata": {**known, **metadata}, "spec": dict(spec), **more}
    return observed_object(kind, obj, version=version, deleted=deleted)


def cluster_queue_spec(
    cpu: int | str, flavor: str = "default", *, limits: Mapping[str, str] = _NOTHING, **spec: Any
) -> dict[str, Any]:
    """Return the spec of a ClusterQueue with CPUs of one flavor, open to every namespace.

    `limits` are other fields of the quota (`borrowingLimit`), `spec` other fields of the spec.
    """
    quota = {"name": "cpu", "nominalQuota": str(cpu), **limits}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [quota]}]}
    return {"namespaceSelector": {}, "resourceGroups": [group], **spec}


def job_owner(name: str, *, uid: str | None = None, kind: str = "Job") -> JobRef:
    """Return the reference to a job; its uid is ``Job-<name>`` if none is given."""
    return JobRef(
        api_version="batch/v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        name=name,
        uid=uid or f"{kind}-{name}",
    )


def workload(name: str, *, cpu: int | str = "1", **more: Any) -> WorkloadState:
    """Return a waiting workload of one pod in LocalQueue ``team/main``; `more` are its other fields."""
    fields: dict[str, Any] = {
        "cluster": "hub",
        "namespace": "team",
        "name": name,
        "uid": f"u-{name}",
        "version": "1",
        "phase": "waiting",
        "queue": "main",
        "created_at": NOON,
        "pod_sets": [PodSet(name="main", count=1, requests={"cpu": str(cpu)})],
    }
    return WorkloadState.model_validate(fields | more)


def admission(
    about: WorkloadState, state: str = "admitted", *, flavor: str = "default", **more: Any
) -> Admission:
    """Return the decision of quota about a workload: each requested resource from `flavor`."""
    pod_sets = [
        PodSetAssignment(
            name=each.name,
            count=each.count,
            flavors=dict.fromkeys(each.requests, flavor),
            usage=each.requests,
        )
        for each in about.pod_sets
    ]
    fields: dict[str, Any] = {
        "cluster": about.cluster,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
        "state": state,
        "term": 1,
        "number": 1,
        "decided_at": NOON,
        "queue": about.queue,
        "cluster_queue": "cq",
        "priority": about.priority,
        "generation": about.generation,
        "pod_sets": pod_sets,
    }
    return Admission.model_validate(fields | more)
