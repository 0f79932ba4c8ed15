"""Fields by which a kind's controller starts more or larger pods than the plainest one says: all count."""

import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.mutation import mutate
from shared.contracts.kube.kinds import Object
from tests.unit.classifier.webhook.reviews import RULES
from tests.unit.integrations.ml_kinds import created, template
from tests.unit.integrations.test_ml_kinds import integration_of

WORKERS: dict[str, tuple[Object, int]] = {
    "fewer replicas than its least": ({"replicas": 0, "minReplicas": 50}, 50),
    "a least alone": ({"minReplicas": 3}, 3),
    "a least of none alone": ({"minReplicas": 0}, 0),
    "nothing, which Kueue counts as one": ({}, 1),
    "more replicas than its most": ({"replicas": 9, "maxReplicas": 4}, 4),
    "a most alone": ({"maxReplicas": 0}, 0),
    "replicas between both": ({"replicas": 3, "minReplicas": 1, "maxReplicas": 4}, 3),
    "a least above its most": ({"replicas": 1, "minReplicas": 5, "maxReplicas": 2}, 5),
    "hosts of each": ({"replicas": 1, "minReplicas": 2, "numOfHosts": 4}, 8),
    "a group that is suspended": ({"replicas": 2, "minReplicas": 3, "suspend": True}, 3),
}
"""Fields of a group of workers, and how many of them run: ray-project/kuberay@feeaf72
ray-operator/controllers/ray/utils/util.go, `GetWorkerGroupDesiredReplicas`."""

RAY_KINDS = {"RayCluster": None, "RayService": "rayClusterConfig", "RayJob": "rayClusterSpec"}


def ray(kind: str, **cluster: object) -> Object:
    head = {"headGroupSpec": {"template": template("1")}, **cluster}
    where = RAY_KINDS[kind]
    spec = head if where is None else {where: head, "shutdownAfterJobFinishes": True}
    return created("ray.io/v1", kind, **spec)


@pytest.mark.parametrize("kind", RAY_KINDS)
@pytest.mark.parametrize(("fields", "pods"), WORKERS.values(), ids=WORKERS.keys())
def test_workers_of_ray_count_as_many_as_its_operator_starts(
    kind: str, fields: Object, pods: int
) -> None:
    group = {"groupName": "w", "template": template("1"), **fields}
    obj = ray(kind, workerGroupSpecs=[group])
    assert integration_of(obj).pod_sets(obj)[1]["count"] == pods


def refused(obj: Object) -> str:
    with pytest.raises(RefusedError) as caught:
        mutate(obj, RULES)
    return str(caught.value)


@pytest.mark.parametrize("kind", RAY_KINDS)
def test_collector_that_the_operator_of_ray_adds_to_each_pod_is_refused(kind: str) -> None:
    large = {"collectorOptions": {"resources": {"requests": {"cpu": "100"}}}}
    assert (
        "historyServerOptions.collectorOptions: set: KubeRay would add a container to each pod"
        in refused(ray(kind, historyServerOptions=large))
    )


def test_submitter_of_a_ray_job_that_cannot_wait_is_refused() -> None:
    spec = {"clusterSelector": {"ray.io/cluster": "mine"}, "submitterPodTemplate": template("100")}
    assert "spec.submitterPodTemplate: set: KubeRay would start it at once" in refused(
        created("ray.io/v1", "RayJob", **spec)
    )
