"""Objects and questions for the tests of hostile input."""

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage

CPU = {"cpu": 1}


SLOT = {"tekton.dev/pipelineruns": 1}


def workload(name: str, queue: str, *, count: int = 1, namespace: str = "team-a") -> Object:
    """Somebody else's Workload, of pods of one cpu."""
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {
        "apiVersion": kinds.WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "active": True,
            "queueName": queue,
            "podSets": [{"name": "main", "count": count, "template": template}],
        },
    }


async def used(stage: Stage, queue: str, resource: str = "cpu") -> str:
    """What a ClusterQueue says that is in use."""
    obj = await stage.kube.get(kinds.CLUSTER_QUEUE, None, queue)
    for flavor in (obj.get("status") or {}).get("flavorsReservation") or []:
        for one in flavor["resources"]:
            if one["name"] == resource:
                return str(one["total"])
    return "0"
