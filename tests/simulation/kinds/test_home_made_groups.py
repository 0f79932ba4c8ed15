"""A home-made kind whose pods are groups, by the document of the how-to, from its template to its end."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from shared.contracts.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    INTEGRATION,
    POD,
    Kind,
    Object,
)
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import DURATION
from shared.kube.port import RefusedError
from tests.conformance.seeds.stage import Stage, story
from tests.simulation.kinds.pods import GROUP, PODS, is_gated, opened, pod

PAGE: Final = Path(__file__).parents[3] / "docs/how-to/pods.md"
TEAM: Final = Kind(group="example.com", version="v1", plural="teams", kind="Team")


def document() -> Object:
    """The Integration of the page."""
    blocks = (part.partition("```")[0] for part in PAGE.read_text().split("```yaml")[1:])
    [found] = [block for block in blocks if "podGroups" in block]
    read: Object = yaml.safe_load(found)
    return read


def definition(**template_metadata: Any) -> Object:
    template = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", **template_metadata},
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    spec = {"type": "object", "properties": {"members": {"type": "integer"}, "template": template}}
    status = {"type": "object", "properties": {"members": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "teams.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {
                "kind": "Team",
                "plural": "teams",
                "singular": "team",
                "listKind": "TeamList",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


KEEPS: Final = {"x-kubernetes-preserve-unknown-fields": True}


def team(members: int = 2) -> Object:
    template = {"metadata": {"annotations": {DURATION: "20s"}}, "spec": pod("x")["spec"]}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Team",
        "metadata": {"name": "blue", "namespace": "team-a", "labels": {QUEUE: "q"}},
        "spec": {"members": members, "template": template},
    }


async def integrated(stage: Stage, crd: Object) -> None:
    await stage.kube.create(CUSTOM_RESOURCE_DEFINITION, crd)
    await stage.kube.create(INTEGRATION, document())

    async def is_told() -> bool:
        found = await stage.kube.get(INTEGRATION, None, "teams.example.com")
        return bool((found.get("status") or {}).get("conditions"))

    await stage.until(is_told)


async def gates(stage: Stage) -> list[bool]:
    return [is_gated(one) for one in (await stage.kube.list(POD, namespace="team-a")).items]


@story(configuration=PODS)
async def test_pods_of_a_home_made_kind_wait_for_each_other_and_start_together(
    stage: Stage,
) -> None:
    await opened(stage, cpu=2)
    await integrated(stage, definition(**KEEPS))
    made = await stage.kube.create(TEAM, team())
    template = made["spec"]["template"]
    assert template["metadata"]["labels"][GROUP].startswith("team-blue-")

    def member(name: str) -> Object:
        """A pod as the controller of Teams makes it."""
        metadata = {**template["metadata"], "name": name, "namespace": "team-a"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    await stage.create(member("blue-0"))
    await stage.settle(10)
    assert await gates(stage) == [True], "the group is not whole"
    await stage.create(member("blue-1"))

    async def both_run() -> bool:
        return await gates(stage) == [False, False]

    await stage.until(both_run)
    with pytest.raises(RefusedError, match=r"spec\.members: 3: must stay 2"):
        await stage.patch(made, {"spec": {"members": 3}})


@story(configuration=PODS)
async def test_kind_whose_templates_lose_their_labels_is_refused_with_the_cause(
    stage: Stage,
) -> None:
    await opened(stage, cpu=2)
    await integrated(stage, definition())
    [said] = (await stage.kube.get(INTEGRATION, None, "teams.example.com"))["status"]["conditions"]
    assert (said["status"], said["reason"]) == ("False", "SchemaMismatch")
    assert "the schema has no spec.template.metadata.labels" in said["message"]
