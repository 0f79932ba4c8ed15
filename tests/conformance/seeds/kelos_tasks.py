"""Kelos Tasks on a simulated cluster, for the tests of document 001."""

from typing import Any

from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, example, job

NAMESPACE = "kelos-system"


SMALL = {"cpu": 1, "memory": "1Gi"}


TASKS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "tasks.kelos.dev"},
    "spec": {
        "group": "kelos.dev",
        "scope": "Namespaced",
        "names": {"kind": "Task", "plural": "tasks", "singular": "task"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


async def task(stage: Stage, name: str, queue: str | None, **more: Any) -> Object:
    """A Task, and its Job as Kelos makes it; the Job."""
    made = await stage.create(
        {
            "apiVersion": "kelos.dev/v1alpha2",
            "kind": "Task",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"worker": {"type": "claude-code"}},
        }
    )
    labels = {"kelos.dev/name": "kelos", "kelos.dev/component": "task", "kelos.dev/task": name}
    wanted = job(
        name, queue, more.pop("requests", SMALL), namespace=NAMESPACE, labels=labels, **more
    )
    wanted["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "kelos.dev/v1alpha2",
            "kind": "Task",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
    ]
    return await stage.create(wanted)


async def prepare(stage: Stage, *more: Object) -> None:
    await stage.create(TASKS, *example("020-agent-quota.yaml"), *more)
