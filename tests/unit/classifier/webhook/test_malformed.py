"""Objects whose fields have other types than their kind's definition says: a webhook sees them first."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.review import Outcome
from services.classifier.webhook.reviewing.reviewer import Reviewer
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from shared.integrations import Integrations
from shared.integrations.registry import opted_documents
from tests.unit.classifier.webhook.reviews import RULES, review, run
from tests.unit.classifier.webhook.test_app import service

QUEUED = {"kueue.x-k8s.io/queue-name": "main"}
POD = {"spec": {"containers": [{"name": "c"}]}}
NO_POD = {"spec": {"containers": [True], "initContainers": 1, "resources": True}}


def obj(api_version: str, kind: str, spec: Any, **more: Any) -> dict[str, Any]:
    metadata = {"name": "x", "namespace": "ns", "labels": QUEUED}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, **more}


def job(**more: Any) -> dict[str, Any]:
    return obj("batch/v1", "Job", {"template": POD}, **more)


def worker_set(template: Any) -> dict[str, Any]:
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    return obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def wrapper(inner: Any) -> dict[str, Any]:
    spec = {"components": [{"template": inner}]}
    return obj("workload.codeflare.dev/v1beta2", "AppWrapper", spec)


def inner_job(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": POD}, **parts}


def context() -> NamespaceContext:
    frameworks = ("pod", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
    integrations = Integrations()
    for one in opted_documents(frameworks):
        integrations.apply({**one, "metadata": {**one["metadata"], "uid": "u"}})
    return NamespaceContext(
        patchers=frozenset({"p"}), knows_decisions=True, integrations=integrations
    )


MALFORMED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "metadata that is null": (job(metadata=None), job()),
    "metadata that is a truth value": (job(metadata=True), job()),
    "labels that are a list": (job(metadata={"labels": ["a"]}), job()),
    "annotations of numbers": (job(metadata={"annotations": {"a": 1}}), job()),
    "owners that are no maps": (job(metadata={"ownerReferences": [True]}), job()),
    "an owner without a kind": (job(metadata={"ownerReferences": [{"controller": True}]}), job()),
    "a name that is a list": (job(metadata={"name": ["x"]}), job()),
    "containers of a worker that are no maps": (worker_set(NO_POD), worker_set(POD)),
    "metadata of a worker that is a list": (worker_set({**POD, "metadata": [1]}), worker_set(POD)),
    "a template that is a text": (worker_set("x"), worker_set(POD)),
    "a wrapped object without metadata": (wrapper(inner_job(metadata=True)), wrapper(inner_job())),
    "a wrapped object without spec": (wrapper(inner_job(spec=True)), wrapper(inner_job())),
    "a wrapped pod with no maps as containers": (
        wrapper({"apiVersion": "v1", "kind": "Pod", **NO_POD}),
        wrapper(inner_job()),
    ),
    "annotations of a Workflow that are a truth value": (
        obj("argoproj.io/v1alpha1", "Workflow", {}, metadata={"annotations": True}),
        obj("argoproj.io/v1alpha1", "Workflow", {}),
    ),
    "a map that is a list where a hold is written": (
        obj("kubeflow.org/v1", "JAXJob", {"runPolicy": [1], "jaxReplicaSpecs": {}}),
        obj("kubeflow.org/v1", "JAXJob", {"runPolicy": {"suspend": True}}),
    ),
    "a pod with no maps as containers": (
        obj("v1", "Pod", NO_POD["spec"], metadata={"labels": {
            **QUEUED, "kueue.x-k8s.io/pod-group-name": "g"}}),
        obj("v1", "Pod", POD["spec"]),
    ),
    "a TaskRun whose workspaces are no maps": (
        obj("tekton.dev/v1", "TaskRun", {"workspaces": [{"persistentVolumeClaim": True}]}),
        obj("tekton.dev/v1", "TaskRun", True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "repaired"])
@pytest.mark.parametrize("named", MALFORMED)
def test_malformed_object_is_answered(named: str, operation: str) -> None:
    malformed, before = MALFORMED[named]
    here = context()
    reviewer = Reviewer(here=WithinBudget(context_of=lambda _namespace: here))
    if operation == "CREATE":
        body = review(malformed)
    elif operation == "UPDATE":
        body = review(malformed, operation="UPDATE", oldObject=before)
    else:
        body = review(before, operation="UPDATE", oldObject=malformed)

    reply = asyncio.run(reviewer.mutate(body, RULES, None))

    assert reply.outcome in {Outcome.MUTATED, Outcome.UNCHANGED, Outcome.REFUSED}


def refused(cause: str) -> float:
    return REGISTRY.get_sample_value("sluicegate_webhook_refused_total", {"cause": cause}) or 0.0


async def test_object_on_which_our_code_fails_is_refused_and_logged_once(tmp_path: Path) -> None:
    def fail() -> str | None:
        raise LookupError("no such thing")

    before = refused("unreadable")
    with capture_logs() as lines:
        async with service(
            tmp_path, reviewer=Reviewer(here=WithinBudget(new_traceparent=fail))
        ) as webhook:
            answers = [await webhook.review(run()) for _ in range(3)]

    assert [answer["allowed"] for answer in answers] == [False] * 3
    message = answers[0]["status"]["message"]
    assert message.endswith("PipelineRun ns/p-: cannot be read: LookupError: no such thing")
    assert refused("unreadable") == before + 3
    events = [line["event"] for line in lines]
    assert events.count("an object cannot be reviewed") == 1
    assert events.count("an object was refused at admission") == 1
