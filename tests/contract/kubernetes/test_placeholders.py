"""What is made for coscheduled runs is taken by an API server, found by its labels, and goes again."""

from collections.abc import Callable

import pytest

from services.ctl.setup.webhook import validating_manifest, webhook_manifest
from services.patcher.coscheduling.plan import claim_object, placeholder_stateful_set
from services.whatif.manifests import Manifest
from shared.contracts.coscheduling import (
    COSCHEDULED_RUN_LABEL,
    MODES,
    Mode,
    claims_of,
    placeholders_of,
)
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.kube.port import NotFoundError
from tests.contract.kubernetes.stage import Stage

UID = "6f1f4d5e-0000-4000-8000-000000000001"


def run(namespace: str) -> Object:
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "build", "namespace": namespace, "uid": UID},
        "spec": {
            "workspaces": [
                {"name": "source", "volumeClaimTemplate": template},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "build-cache-pvc"}},
            ],
            "taskRunTemplate": {
                "serviceAccountName": "builder",
                "podTemplate": {"tolerations": [{"key": "builds", "operator": "Exists"}]},
            },
        },
    }


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "disabled"])
async def test_api_server_accepts_generated_placeholders_and_claims(
    stage: Stage, mode: Mode
) -> None:
    made_for = run(stage.namespace)
    claim = next(one for one in claims_of(made_for) if one.template is not None)
    objects = [(kinds.PERSISTENT_VOLUME_CLAIM, claim_object(made_for, mode, claim))]
    objects += [
        (
            kinds.STATEFUL_SET,
            placeholder_stateful_set(
                made_for, mode, one, image="pause", node_selector={"pool": "builds"}
            ),
        )
        for one in placeholders_of(made_for, mode)
    ]
    for kind, obj in objects:
        # Nobody owns them here: a collector would take them away at once.
        free = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}
        stored = await stage.kube.create(kind, {**obj, "metadata": free})
        found = await stage.kube.list(
            kind, namespace=stage.namespace, labels=f"{COSCHEDULED_RUN_LABEL}={UID}"
        )
        assert stored["metadata"]["uid"] in {one["metadata"]["uid"] for one in found.items}
        if kind == kinds.STATEFUL_SET:
            asked = obj["spec"]["template"]["spec"]["affinity"]
            assert stored["spec"]["template"]["spec"]["affinity"] == asked
    for kind, obj in objects:
        await stage.kube.delete(kind, stage.namespace, obj["metadata"]["name"])
        try:
            left = await stage.kube.get(kind, stage.namespace, obj["metadata"]["name"])
        except NotFoundError:
            continue
        # A finalizer protects claims until a controller sees that nobody uses them.
        assert "deletionTimestamp" in left["metadata"]


@pytest.mark.parametrize("build", [webhook_manifest, validating_manifest])
async def test_match_conditions_compile(stage: Stage, build: Callable[..., Manifest]) -> None:
    """An API server refuses a webhook with a condition that it cannot evaluate."""
    manifest = build(url="https://127.0.0.1:1/mutate", authority=b"")
    only = [one for one in manifest.object["webhooks"] if "matchConditions" in one]
    for webhook in only:
        del webhook["clientConfig"]["caBundle"]
    name = f"placeholders-{stage.namespace}"
    body = {**manifest.object, "metadata": {"name": name}, "webhooks": only}
    stored = await stage.kube.create(manifest.kind, body)
    await stage.kube.delete(manifest.kind, None, name)
    conditions = [webhook["matchConditions"] for webhook in stored["webhooks"]]
    assert conditions == [webhook["matchConditions"] for webhook in only]
