"""What a job or a Workload may ask of Kueue and Sluicegate does not do.

It is never ignored: such a workload waits, and its reason names the field and what to do. Workloads of others
are stored as their authors wrote them: what has not the form of a field counts as absent.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from services.classifier.projection.pods.pod_templates import pod_spec_of
from shared.contracts.kube import names
from shared.contracts.kube.bodies import (
    Body,
    annotations_of,
    labels_of,
    list_at,
    map_at,
    spec_of,
)
from shared.contracts.kube.kinds import Object

_TOPOLOGY: Final = (
    *names.POD_SET_TOPOLOGIES,
    names.POD_SET_SLICE_TOPOLOGY,
    names.POD_SET_SLICE_CONSTRAINTS,
    names.POD_SET_SLICE_SIZE,
    names.POD_SET_GROUP,
)

_NOTES: Final = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount"})
"""Fields of a `topologyRequest` that say how pods are numbered, whether or not they shall run together.
Source: kubernetes-sigs/kueue@ff69552 pkg/controller/jobframework/tas.go."""

_NO_PLACEMENT: Final = "placement by topology is not offered"
_NO_BOOST: Final = frozenset({None, "", "0", "+0", "-0"})


def requests_not_offered(
    obj: Body, workload: Body | None, pod_sets: Sequence[Object]
) -> Iterator[str]:
    """Yield a sentence for each such request of a job, its Workload object and its pod sets.

    `obj` is the job, or a Workload object of its own; `pod_sets` are its raw `spec.podSets`.
    """
    yield from _of_metadata(obj, workload)
    if spec_of(workload).get("preemptionGates"):
        yield _sentence("spec.preemptionGates of its Workload", "preemption cannot be gated")
    for pod_set in [*pod_sets, *list_at(workload, "spec", "podSets")]:
        if _asks_for_placement(map_at(pod_set, "topologyRequest")):
            yield _sentence("topologyRequest of a pod set", _NO_PLACEMENT)
            break
    for pod_set in pod_sets:
        yield from _of_pods(map_at(pod_set))


def _asks_for_placement(request: Object) -> bool:
    """Whether a `topologyRequest` is more than a note.

    Kueue notes in the Workload of each Job, JobSet and training job by which label the pods are numbered.
    """
    return any(value for field, value in request.items() if field not in _NOTES)


def _of_metadata(obj: Body, workload: Body | None) -> Iterator[str]:
    """Annotations of the job and of its Workload object."""
    for found in (annotations_of(obj), labels_of(obj)):
        if found.get(names.ELASTIC_JOB) == "true":
            yield _sentence(names.ELASTIC_JOB, "a job cannot change its size while it runs")
            break
    if annotations_of(workload).get(names.PRIORITY_BOOST) not in _NO_BOOST:
        text = "use a WorkloadPriorityClass"
        yield _sentence(f"annotation {names.PRIORITY_BOOST} of its Workload", text)


def _of_pods(pod_set: Object) -> Iterator[str]:
    """Annotations and devices of the pods of one pod set."""
    name = pod_set.get("name")
    annotations = map_at(pod_set, "template", "metadata", "annotations")
    for key in _TOPOLOGY:
        if annotations.get(key):
            yield _sentence(f"pods of {name}: annotation {key}", _NO_PLACEMENT)
    pod = pod_spec_of(pod_set)
    if pod.get("resourceClaims") or any(_claims(one) for one in _containers(pod)):
        yield _sentence(f"pods of {name}: resourceClaims", "devices of claims are not counted")


def _containers(pod: Object) -> Iterator[Any]:
    for field in ("containers", "initContainers"):
        yield from list_at(pod, field)


def _claims(container: Any) -> bool:
    return bool(map_at(container, "resources").get("claims"))


def _sentence(what: str, why: str) -> str:
    return f"{what}: {why}; take it away"
