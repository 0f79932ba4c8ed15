"""Webhooks with match conditions, and the configuration that ships while nobody answers."""

from typing import Any

import pytest

from services.ctl.setup.webhook import validating_manifest, webhook_manifest
from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.kube.names import QUEUE
from tests.unit.simulator.builders import kind
from tests.unit.simulator.webhooks import GROUP, Reviewer, configure, create, hook

DEAD = "https://127.0.0.1:1"
JOB: Obj = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "x",
        "namespace": "default",
        "labels": {QUEUE: "q"},
        "finalizers": ["a/b"],
    },
    "spec": {
        "suspend": True,
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        },
    },
}


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("object.metadata.name == 'settings'", True),
        ("request.operation == 'DELETE'", False),
        ("request.userInfo.username == 'kubernetes-admin'", True),
        ("oldObject == null", True),
    ],
)
async def test_webhook_is_asked_if_all_conditions_hold(
    cluster: Api, reviewer: Reviewer, expression: str, asked: bool
) -> None:
    conditions = [{"name": "all", "expression": "true"}, {"name": "c", "expression": expression}]
    await configure(cluster, hook(reviewer, matchConditions=conditions))
    await create(cluster, {"metadata": {"name": "settings", "namespace": "default"}})
    assert bool(reviewer.asked) is asked


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_condition_that_fails_follows_the_failure_policy(
    cluster: Api, reviewer: Reviewer, policy: str
) -> None:
    conditions = [{"name": "c", "expression": "object.nothing.there"}]
    await configure(cluster, hook(reviewer, matchConditions=conditions, failurePolicy=policy))
    if policy == "Fail":
        with pytest.raises(ApiError, match="matchConditions c"):
            await create(cluster)
    else:
        await create(cluster)
    assert reviewer.asked == []


@pytest.fixture
async def job_without_webhook(cluster: Api, reviewer: Reviewer) -> Obj:
    """A waiting Job, and our webhook configurations for a classifier that does not answer."""
    del reviewer
    jobs = kind(cluster, "jobs", "batch")
    stored = await cluster.create(jobs, "v1", "default", JOB)
    for build in (webhook_manifest, validating_manifest):
        manifest = build(url=DEAD, authority=b"")
        for webhook in manifest.object["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
        configurations = kind(cluster, manifest.kind.plural, GROUP)
        await cluster.create(configurations, "v1", "", manifest.object)
    return stored.obj


async def patch(cluster: Api, body: Any, *, subresource: str = "") -> Obj:
    jobs = kind(cluster, "jobs", "batch")
    stored = await cluster.patch(jobs, "v1", "default", "x", body, "merge", subresource=subresource)
    return stored.obj


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"finalizers": None}},
        {"metadata": {"finalizers": ["a/b", "batch.kubernetes.io/job-tracking"]}},
        {"metadata": {"labels": {"tekton.dev/pipeline": "p"}}},
        {"metadata": {"annotations": {"chains.tekton.dev/signed": "true"}}},
    ],
    ids=["a finalizer goes", "a finalizer comes", "a label", "an annotation"],
)
async def test_writes_of_controllers_pass_while_the_webhook_is_down(
    cluster: Api, job_without_webhook: Obj, body: Any
) -> None:
    after = await patch(cluster, body)
    version = job_without_webhook["metadata"]["resourceVersion"]
    assert after["metadata"]["resourceVersion"] != version


async def test_status_and_deletion_pass_while_the_webhook_is_down(
    cluster: Api, job_without_webhook: Obj
) -> None:
    del job_without_webhook
    await patch(cluster, {"status": {"active": 1}}, subresource="status")
    jobs = kind(cluster, "jobs", "batch")
    await cluster.delete(jobs, "default", "x", DeleteOptions())
    await patch(cluster, {"metadata": {"finalizers": None}})
    assert cluster.store.get(jobs, "default", "x") is None


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"suspend": False}},
        {"metadata": {"labels": {QUEUE: "other"}}},
        {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}},
    ],
    ids=["its start", "its queue", "its priority"],
)
async def test_what_decides_about_admission_is_refused_while_the_webhook_is_down(
    cluster: Api, job_without_webhook: Obj, body: Any
) -> None:
    del job_without_webhook
    with pytest.raises(ApiError, match="failed calling webhook"):
        await patch(cluster, body)
