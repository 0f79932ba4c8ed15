"""The deployed webhook configuration on a real API server, while nobody answers: what passes, what does not.

The API server compiles the match conditions. Where they do not select a write, it asks nobody.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio
import yaml

from shared.contracts.kube.kinds import (
    JOB,
    MUTATING_WEBHOOK,
    NAMESPACE,
    PIPELINE_RUN,
    Kind,
    Object,
)
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE, REQUESTS_PREFIX
from shared.kube.client import HttpKube
from shared.kube.port import KubeError
from shared.settings.ports import reserve_port
from shared.testing.waiting import eventually
from tests.contract.kubernetes.clusters import Cluster
from tests.contract.kubernetes.conftest import install

pytestmark = pytest.mark.cluster

MANIFEST: Final = Path(__file__).parents[3] / "deploy/kubernetes/base/webhook/classifier.yaml"
UPDATES: Final = "updates.classifier.sluicegate.dev"
POD: Final = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}


def job() -> Object:
    return {"spec": {"suspend": True, "template": {"spec": POD}}}


def run() -> Object:
    return {"spec": {"status": "PipelineRunPending", "pipelineSpec": {"tasks": []}}}


OWNER: Final = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}
PASSES: Final[dict[str, tuple[Kind, Any, str | None]]] = {
    "status of a Job": (JOB, {"status": {"ready": 0, "terminating": 0}}, "status"),
    "a label of a Job": (JOB, {"metadata": {"labels": {"team": "x"}}}, None),
    "an annotation of a Job": (JOB, {"metadata": {"annotations": {"note": "x"}}}, None),
    "a finalizer of a Job": (JOB, {"metadata": {"finalizers": ["example.com/keep"]}}, None),
    "status of a run": (PIPELINE_RUN, {"status": {"startTime": "t"}}, "status"),
    "a label of a run": (PIPELINE_RUN, {"metadata": {"labels": {"chains": "x"}}}, None),
    "an annotation of a run": (PIPELINE_RUN, {"metadata": {"annotations": {"n": "x"}}}, None),
    "a finalizer of a run": (PIPELINE_RUN, {"metadata": {"finalizers": ["a.b/keep"]}}, None),
}
REFUSED: Final[dict[str, tuple[Kind, Any, str | None]]] = {
    "start of a Job": (JOB, {"spec": {"suspend": False}}, None),
    "queue of a Job": (JOB, {"metadata": {"labels": {QUEUE: "x"}}}, None),
    "owner of a Job": (JOB, {"metadata": {"ownerReferences": [OWNER]}}, None),
    "start of a run": (PIPELINE_RUN, {"spec": {"status": None}}, None),
    "priority of a run": (
        PIPELINE_RUN,
        {"metadata": {"labels": {PRIORITY_CLASS_LABEL: "high"}}},
        None,
    ),
    "requests of a run": (
        PIPELINE_RUN,
        {"metadata": {"annotations": {f"{REQUESTS_PREFIX}cpu": "0"}}},
        None,
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kube(real_server: Cluster) -> AsyncIterator[HttpKube]:
    """An API server that would ask the webhook, at a port where nobody listens."""
    client = HttpKube.from_kubeconfig(str(real_server.kubeconfig))
    await install(client)
    documents = yaml.safe_load_all(MANIFEST.read_text())
    [configuration] = [one for one in documents if one and one["kind"] == MUTATING_WEBHOOK.kind]
    [updates] = [one for one in configuration["webhooks"] if one["name"] == UPDATES]
    port = reserve_port()
    updates["clientConfig"] = {"url": f"https://127.0.0.1:{port}/mutate"}
    # Other tests of this server write Jobs, too.
    updates["namespaceSelector"] = {"matchLabels": {"webhook": "away"}}
    rules = [one for one in updates["rules"] if "jobset.x-k8s.io" not in one["apiGroups"]]
    body = {"metadata": {"name": "away"}, "webhooks": [{**updates, "rules": rules}]}
    await client.create(MUTATING_WEBHOOK, body)
    yield client
    await client.delete(MUTATING_WEBHOOK, None, "away")
    await client.close()


async def made(kube: HttpKube, kind: Kind, namespace: str) -> None:
    obj = job() if kind == JOB else run()
    await kube.create(kind, {"metadata": {"name": "x", "namespace": namespace}, **obj})


async def answer(kube: HttpKube, kind: Kind, patch: Any, subresource: str | None) -> str:
    """What the API server says to a patch of a new object once it asks the webhook; empty: it passes."""
    namespace = f"away-{uuid4().hex[:8]}"
    await kube.create(NAMESPACE, {"metadata": {"name": namespace, "labels": {"webhook": "away"}}})
    await made(kube, kind, namespace)

    async def asks() -> bool:
        return bool(await refused(kube, kind, namespace, {"metadata": {"labels": {QUEUE: "y"}}}))

    await eventually(asks)
    return await refused(kube, kind, namespace, patch, subresource)


async def refused(
    kube: HttpKube, kind: Kind, namespace: str, patch: Any, subresource: str | None = None
) -> str:
    try:
        await kube.patch(kind, namespace, "x", patch, subresource=subresource)
    except KubeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("kind", "patch", "subresource"), PASSES.values(), ids=PASSES.keys())
@pytest.mark.asyncio(loop_scope="module")
async def test_write_of_a_controller_passes(
    kube: HttpKube, kind: Kind, patch: Any, subresource: str | None
) -> None:
    assert await answer(kube, kind, patch, subresource) == ""


@pytest.mark.parametrize(("kind", "patch", "subresource"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.asyncio(loop_scope="module")
async def test_write_that_decides_about_admission_does_not_pass(
    kube: HttpKube, kind: Kind, patch: Any, subresource: str | None
) -> None:
    assert UPDATES in await answer(kube, kind, patch, subresource)
