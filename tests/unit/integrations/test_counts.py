"""Fields by which a kind's controller starts more or larger pods than the plainest one says: all count."""

import re

import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.mutation import mutate
from shared.contracts.kube.kinds import Object
from shared.integrations import ObjectError
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
    "two that end beside others": (
        {"replicas": 1, "numOfHosts": 2, "scaleStrategy": {"workersToDelete": ["a", "b"]}},
        4,
    ),
    "none that is to end": ({"replicas": 3, "scaleStrategy": {"workersToDelete": []}}, 3),
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


@pytest.mark.parametrize("kind", RAY_KINDS)
def test_workers_that_the_operator_of_ray_is_to_delete_and_make_anew_are_refused(kind: str) -> None:
    group = {"groupName": "w", "template": template("1"), "replicas": 1}
    told = ray(kind, workerGroupSpecs=[group | {"scaleStrategy": {"workersToDelete": ["w-1"]}}])
    assert "workerGroupSpecs: set: KubeRay would make other workers beside" in refused(told)


def test_submitter_of_a_ray_job_that_cannot_wait_is_refused() -> None:
    spec = {"clusterSelector": {"ray.io/cluster": "mine"}, "submitterPodTemplate": template("100")}
    assert "spec.submitterPodTemplate: set: KubeRay would start it at once" in refused(
        created("ray.io/v1", "RayJob", **spec)
    )


def spark(driver: Object | None = None, executor: Object | None = None, **spec: object) -> Object:
    roles = {"driver": driver or {}, "executor": executor or {}}
    return created("sparkoperator.k8s.io/v1beta2", "SparkApplication", **roles, **spec)


_LITTLE = (1, "1", "1408Mi")
SPARK: dict[str, tuple[Object, list[tuple[int, str, str]]]] = {
    "nothing: one core, 1g and the least overhead": (spark(), [_LITTLE, _LITTLE]),
    "cores": (spark({"cores": 32}, {"cores": 8}), [(1, "32", "1408Mi"), (1, "8", "1408Mi")]),
    "a request that is not its cores": (
        spark({"cores": 32, "coreRequest": "500m"}, {"instances": 10}),
        [(1, "500m", "1408Mi"), (10, "1", "1408Mi")],
    ),
    "an overhead": (
        spark({"memory": "2g", "memoryOverhead": "1G"}, {"memoryOverhead": "7"}),
        [(1, "1", "3072Mi"), (1, "1", "1031Mi")],
    ),
    "a tenth of much memory": (
        spark({"memory": "100g"}, type="Scala", mainApplicationFile="local:///a.jar"),
        [(1, "1", "112640Mi"), _LITTLE],
    ),
    "more of it for Python": (
        spark({"memory": "10g"}, {"memory": "10g"}, type="Python"),
        [(1, "1", "14336Mi"), (1, "1", "14336Mi")],
    ),
    "Python that says it is Scala": (
        spark({"memory": "10g"}, type="Scala", mainApplicationFile="local:///a.py"),
        [(1, "1", "14336Mi"), (1, "1", "1433Mi")],
    ),
    "a factor": (
        spark({"memory": "10g"}, memoryOverheadFactor="2.5", type="Python"),
        [(1, "1", "35840Mi"), (1, "1", "3584Mi")],
    ),
    "memory of executors beside the heap": (
        spark(
            sparkConf={
                "spark.executor.pyspark.memory": "2g",
                "spark.memory.offHeap.enabled": "True",
                "spark.memory.offHeap.size": "1073741824",
            }
        ),
        [_LITTLE, (1, "1", "4480Mi")],
    ),
    "fields that win over the configuration": (
        spark(
            {"cores": 2, "memory": "1g", "memoryOverhead": "1g"},
            {"coreRequest": "3", "memory": "1g", "memoryOverhead": "1g"},
            sparkConf={
                "spark.driver.cores": "9",
                "spark.executor.cores": "9",
                "spark.executor.memory": "9g",
                "spark.driver.memoryOverheadFactor": "9",
                "spark.kubernetes.memoryOverheadFactor": "9",
            },
        ),
        [(1, "2", "2048Mi"), (1, "3", "2048Mi")],
    ),
}
"""An application, and pods, cpu and memory of its driver and its executors, as Spark 3.5 works them out:
kubernetes-sigs/kueue@2f08942 pkg/controller/jobs/sparkapplication/sparkapplication_resources.go."""


@pytest.mark.parametrize(("obj", "pods"), SPARK.values(), ids=SPARK.keys())
def test_pods_of_spark_count_as_spark_asks_for_them(
    obj: Object, pods: list[tuple[int, str, str]]
) -> None:
    sets = integration_of(obj).pod_sets(obj)
    asked = [
        (one["count"], one["template"]["spec"]["containers"][0]["resources"]["requests"])
        for one in sets
    ]
    assert asked == [(count, {"cpu": cpu, "memory": memory}) for count, cpu, memory in pods]
    assert mutate(obj, RULES).patch


def test_negative_number_of_devices_asks_for_no_device() -> None:
    obj = spark(executor={"gpu": {"name": "nvidia.com/gpu", "quantity": -5}})
    [container] = integration_of(obj).pod_sets(obj)[1]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {}


@pytest.mark.parametrize("memory", ["4.5g", "4x", "-1g", "9999999999p", "", "${spark.a}", "9" * 40])
def test_memory_that_spark_could_not_read_is_not_counted(memory: str) -> None:
    obj = spark({"memory": memory})
    with pytest.raises(ObjectError, match=r"is no size such as|is too large"):
        integration_of(obj).pod_sets(obj)


KEYS = {
    "spark.driver.cores": "spec.driver.cores or spec.driver.coreRequest",
    "spark.executor.cores": "spec.executor.cores or spec.executor.coreRequest",
    "spark.kubernetes.driver.request.cores": "spec.driver.cores or spec.driver.coreRequest",
    "spark.kubernetes.executor.request.cores": "spec.executor.cores or spec.executor.coreRequest",
    "spark.driver.memory": "write spec.driver.memory",
    "spark.executor.memory": "write spec.executor.memory",
    "spark.driver.memoryOverhead": "write spec.driver.memoryOverhead",
    "spark.yarn.driver.memoryOverhead": "write spec.driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor": "write spec.driver.memoryOverhead",
    "spark.driver.minMemoryOverhead": "write spec.driver.memoryOverhead",
    "spark.executor.memoryOverhead": "write spec.executor.memoryOverhead",
    "spark.yarn.executor.memoryOverhead": "write spec.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor": "write spec.executor.memoryOverhead",
    "spark.executor.minMemoryOverhead": "write spec.executor.memoryOverhead",
    "spark.kubernetes.memoryOverheadFactor": "write spec.memoryOverheadFactor",
    "spark.executor.resource.gpu.amount": "write spec.driver.gpu or spec.executor.gpu",
    "spark.driver.resource.gpu.amount": "write spec.driver.gpu or spec.executor.gpu",
    "spark.kubernetes.driver.podTemplateFile": "write fields of spec.driver and spec.executor",
    "spark.kubernetes.executor.podTemplateFile": "write fields of spec.driver and spec.executor",
    "spark.streaming.dynamicAllocation.enabled": "give spec.executor.instances",
}


@pytest.mark.parametrize(("key", "instead"), KEYS.items(), ids=KEYS.keys())
def test_configuration_of_spark_that_changes_what_counts_is_refused_by_key_and_remedy(
    key: str, instead: str
) -> None:
    why = refused(spark(sparkConf={key: "32"}))
    named = re.sub(r"[.]gpu[.]amount$", "", key)
    assert "spec.sparkConf: set: by " in why
    assert named in why
    assert instead in why


def test_key_of_spark_that_hides_another_one_is_refused() -> None:
    assert 'a key with "=" is read as another one' in refused(
        spark(sparkConf={"spark.executor.memory=400g": ""})
    )


TEMPLATES: dict[str, Object] = {
    "resources": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}]},
    "one more container": {"containers": [{"name": "c"}, {"name": "d"}]},
    "a container before": {"initContainers": [{"name": "c"}]},
    "resources of the pod": {"resources": {"requests": {"cpu": "9"}}},
    "an overhead": {"overhead": {"cpu": "9"}},
}


@pytest.mark.parametrize("role", ["driver", "executor"])
@pytest.mark.parametrize("template_", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_template_of_spark_that_asks_for_more_is_refused(role: str, template_: Object) -> None:
    why = refused(spark(**{role: {"template": {"spec": template_}}}))
    assert f"spec.{role}.template: set: its containers and resources are not counted" in why


def test_template_of_spark_that_asks_for_nothing_passes() -> None:
    harmless = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    obj = spark({"template": harmless})
    assert integration_of(obj).refusals(obj) == []
