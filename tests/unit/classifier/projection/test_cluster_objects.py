"""What is kept of the objects that jobs depend on: the fields that are read, whatever else there is."""

import json
from typing import Any

import pytest

from services.classifier.projection.cluster_objects import ClusterObjects
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import DEFAULT_PRIORITY, ON_PREEMPTION
from shared.testing.builders import observed_object

FILLER: list[Any] = [{} for _ in range(100_000)]
"""Three bytes each on the wire, some sixty once they are read."""

ELSEWHERE: dict[str, Any] = {
    "metadata.annotations": {f"example.com/{n}": "x" for n in range(5000)},
    "metadata.finalizers": ["x"] * 100_000,
    "spec.x": FILLER,
    "status.x": FILLER,
    "data": {"x": "y" * 300_000},
    "x": FILLER,
}
INSIDE: dict[Kind, dict[str, Any]] = {
    kinds.ADMISSION_CHECK: {"spec.parameters": FILLER},
    kinds.CLUSTER_QUEUE: {
        "spec.resourceGroups": FILLER,
        "spec.admissionChecksStrategy": {"x": FILLER, "admissionChecks": "x" * 300_000},
        "spec.admissionChecks": {"x": FILLER},
    },
    kinds.LIMIT_RANGE: {"spec.limits": [{"type": "Pod", "x": FILLER}, *FILLER[:50_000]]},
    kinds.LOCAL_QUEUE: {"spec.fairSharing": {"x": FILLER}},
    kinds.NAMESPACE: {"spec.finalizers": FILLER},
    kinds.PRIORITY_CLASS: {"description": "y" * 300_000},
    kinds.RUNTIME_CLASS: {"scheduling": {"x": FILLER}},
    kinds.WORKLOAD_PRIORITY_CLASS: {"description": "y" * 300_000},
}


def test_every_kind_is_in_the_table() -> None:
    assert set(INSIDE) == set(ClusterObjects.watched())


@pytest.mark.parametrize("kind", INSIDE, ids=lambda kind: kind.kind)
def test_fields_without_a_reader_are_not_kept(kind: Kind) -> None:
    for path, value in (ELSEWHERE | INSIDE[kind]).items():
        objects = ClusterObjects()
        metadata: dict[str, Any] = {"name": "a", "uid": "u", "resourceVersion": "1"}
        obj: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {}}
        if kind.namespaced:
            metadata["namespace"] = "team"
        *parents, last = path.split(".")
        place = obj
        for parent in parents:
            place = place[parent]
        place[last] = value
        message = observed_object(kind, obj, cluster="east")
        assert len(message.encode()) > 100_000
        objects.observe(message)
        assert len(json.dumps(list(objects._of(kind).values()))) < 1000, path


def test_what_jobs_depend_on_is_kept() -> None:
    objects = ClusterObjects()
    notes = {DEFAULT_PRIORITY: "high", ON_PREEMPTION: "requeue", "example.com/other": "x"}
    checks = {"admissionChecks": [{"name": "one", "onFlavors": ["f"]}]}
    rows: tuple[tuple[Kind, dict[str, Any]], ...] = (
        (kinds.CLUSTER_QUEUE, {"spec": {"admissionChecksStrategy": checks, "admissionChecks": ["two"]}}),
        (kinds.LOCAL_QUEUE, {"annotations": notes, "spec": {"clusterQueue": "a"}}),
        (kinds.LIMIT_RANGE, {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
        (kinds.NAMESPACE, {"labels": {"team": "x"}}),
        (kinds.RUNTIME_CLASS, {"overhead": {"podFixed": {"cpu": "1"}}}),
        (kinds.PRIORITY_CLASS, {"value": 7, "globalDefault": True}),
    )  # fmt: skip
    for kind, parts in rows:
        said: dict[str, Any] = dict(parts)
        metadata: dict[str, Any] = {"name": "a", "uid": "u", "resourceVersion": "1"}
        metadata |= {key: said.pop(key) for key in ("annotations", "labels") if key in said}
        metadata |= {"namespace": "team"} if kind.namespaced else {}
        assert objects.observe(observed_object(kind, {"metadata": metadata, **said}))
    assert objects.admission_checks_of("team", "a") == {"one", "two"}
    assert objects.queue_annotation("team", "a", DEFAULT_PRIORITY) == "high"
    assert objects.queue_annotation("team", "a", ON_PREEMPTION) == "requeue"
    [limits] = objects.limit_ranges("team")
    assert limits["spec"] == {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}
    assert objects.namespace_labels("a") == {"team": "x"}
    runtime = objects.runtime_class("a")
    assert runtime is not None
    assert runtime["overhead"] == {"podFixed": {"cpu": "1"}}
    assert objects.global_default_priority_class() is not None
