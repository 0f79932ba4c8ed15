"""What Kueue does and Sluicegate does not is never ignored: the workload waits and says why."""

from typing import Any

import pytest

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.not_offered import requests_not_offered
from services.classifier.projection.project import project_external
from shared.contracts.kube.bodies import as_body
from tests.unit.classifier.projection.objects import job

Json = dict[str, Any]
K = "kueue.x-k8s.io"
TOPOLOGY = "placement by topology is not offered; take it away"
DEVICES = "devices of claims are not counted; take it away"


def pods(annotations: Json | None = None, **spec: Any) -> Json:
    return {
        "name": "main",
        "template": {"metadata": {"annotations": annotations or {}}, "spec": spec},
    }


def annotated(**annotations: str) -> Json:
    return job(
        metadata={"annotations": {f"{K}/{k.replace('_', '-')}": v for k, v in annotations.items()}}
    )


def workload(annotations: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"annotations": annotations or {}}, "spec": spec}


CASES: dict[str, tuple[Json, Json | None, list[Json], list[str]]] = {
    "an ordinary job": (job(), None, [pods(containers=[{"name": "c"}])], []),
    "pods that shall run in one rack": (
        job(), None, [pods({f"{K}/podset-required-topology": "rack"})],
        [f"pods of main: annotation {K}/podset-required-topology: {TOPOLOGY}"],
    ),
    "pods that had better run in one rack": (
        job(), None, [pods({f"{K}/podset-preferred-topology": "rack"})],
        [f"pods of main: annotation {K}/podset-preferred-topology: {TOPOLOGY}"],
    ),
    "pods that want any topology": (
        job(), None, [pods({f"{K}/podset-unconstrained-topology": "true"})],
        [f"pods of main: annotation {K}/podset-unconstrained-topology: {TOPOLOGY}"],
    ),
    "pod sets that shall run together": (
        job(), None, [pods({f"{K}/podset-group-name": "both"})],
        [f"pods of main: annotation {K}/podset-group-name: {TOPOLOGY}"],
    ),
    "pods with slices": (
        job(), None, [pods({f"{K}/podset-slice-required-topology-constraints": "[]"})],
        [f"pods of main: annotation {K}/podset-slice-required-topology-constraints: {TOPOLOGY}"],
    ),
    "a Workload whose pod set asks for a topology": (
        job(), workload(podSets=[{"name": "main", "topologyRequest": {"required": "rack"}}]), [],
        [f"topologyRequest of a pod set: {TOPOLOGY}"],
    ),
    "a Workload that Kueue made, with the label by which pods are numbered": (
        job(), workload(podSets=[{"name": "main", "topologyRequest": {
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 2,
        }}]), [], [],
    ),
    "pods with claims for devices": (
        job(), None, [pods(resourceClaims=[{"name": "gpu"}])],
        [f"pods of main: resourceClaims: {DEVICES}"],
    ),
    "a container with a claim for a device": (
        job(), None, [pods(initContainers=[{"resources": {"claims": [{"name": "gpu"}]}}])],
        [f"pods of main: resourceClaims: {DEVICES}"],
    ),
    "a job that changes its size": (
        annotated(elastic_job="true"), None, [],
        [f"{K}/elastic-job: a job cannot change its size while it runs; take it away"],
    ),
    "a job that does not want to change its size": (annotated(elastic_job="false"), None, [], []),
    "a Workload with a boost": (
        job(), workload({f"{K}/priority-boost": "100"}), [],
        [f"annotation {K}/priority-boost of its Workload: use a WorkloadPriorityClass; take it away"],
    ),
    "a Workload with a boost of nothing": (job(), workload({f"{K}/priority-boost": "0"}), [], []),
    "a Workload whose preemptions are gated": (
        job(), workload(preemptionGates=[{"name": "g"}]), [],
        ["spec.preemptionGates of its Workload: preemption cannot be gated; take it away"],
    ),
    "a Workload that holds anything": (
        job(), workload(podSets="none"),
        ["main", {"template": 7}, pods(containers="none")], [],  # type: ignore[list-item]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_request_waits_with_a_reason(case: str) -> None:
    obj, of_job, pod_sets, said = CASES[case]
    given = None if of_job is None else as_body(of_job)
    assert list(requests_not_offered(as_body(obj), given, pod_sets)) == said


GATE = {f"{K}/admission-gated-by": "example.com/budget"}
RESERVED = {"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}}


@pytest.mark.parametrize(
    ("annotations", "status", "gated"),
    [
        (GATE, {}, "example.com/budget"),
        ({f"{K}/admission-gated-by": ""}, {}, None),
        ({}, {}, None),
        (GATE, RESERVED, None),
    ],
    ids=["behind a gate", "whose last gate is gone", "without gates", "that has quota"],
)
def test_gates_keep_a_workload_out_until_it_has_quota(
    annotations: Json, status: Json, gated: str | None
) -> None:
    metadata = {**job()["metadata"], "annotations": annotations}
    obj = as_body({"metadata": metadata, "spec": {"queueName": "q"}, **status})
    state = project_external(obj, cluster="hub", cluster_objects=ClusterObjects())
    assert state.gated == gated
    assert "gated" not in str(state.inadmissible)
