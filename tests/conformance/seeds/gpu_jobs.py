"""Jobs that ask for GPUs and the queues that offer them, for the tests of document 003."""

from collections.abc import Mapping
from typing import Any

from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, example, job, pool

GPU = "nvidia.com/gpu"


def gpus(
    name: str, count: int, *, team: str = "team-a", class_: str = "", seconds: float = 3600
) -> Object:
    """A job of one pod that asks for GPUs, at the door of its team."""
    asked = {"cpu": 1, "memory": "1Gi", GPU: count}
    return job(name, "gpu-queue", asked, namespace=team, priority_class=class_, seconds=seconds)


def other_team(name: str = "team-b", **spec: Any) -> list[Object]:
    """A second ClusterQueue of the cohort, from the document's, and its door."""
    _, queue, door = example("030-gpu-quota.yaml")
    queue["metadata"]["name"] = name
    queue["spec"] |= spec
    door["metadata"]["namespace"] = name
    door["spec"]["clusterQueue"] = name
    return [queue, door]


def tier(name: str, **labels: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }


def queue_of(
    name: str, groups: list[Object], namespace: str = "team-a", **spec: Any
) -> list[Object]:
    """A ClusterQueue with these groups, and a LocalQueue of its name."""
    made = pool(name, {}, namespaces=(namespace,), **spec)[1:]
    made[0]["spec"]["resourceGroups"] = groups
    return made


def group(quotas: Mapping[str, Mapping[str, object]]) -> Object:
    """Flavors in their order, with the quota of each resource."""
    covered = list(next(iter(quotas.values())))
    flavors = [
        {
            "name": flavor,
            "resources": [
                {"name": resource, "nominalQuota": str(quota[resource])} for resource in covered
            ],
        }
        for flavor, quota in quotas.items()
    ]
    return {"coveredResources": covered, "flavors": flavors}


async def flavor(stage: Stage, one: Object, resource: str = "cpu") -> str:
    [assigned] = (await stage.workload(one))["status"]["admission"]["podSetAssignments"]
    return str(assigned["flavors"][resource])
