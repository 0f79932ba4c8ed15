"""Objects whose controller starts more than their plainest fields say: none is admitted for less."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.kube.quantities import parse_quantity
from tests.attacks.field import TENANT, Act, Field
from tests.attacks.ground import BreachError
from tests.conformance.seeds.stage import pool
from tests.simulation.kinds.test_ml_kinds import serve

_SHELF: Final = "shelf"
_QUOTA: Final = {"cpu": 3, "memory": "16Gi"}
PODS: Final = 50
"""Pods of one CPU, or CPUs of one pod, that each of these objects has run."""


def _template(cpu: int = 1) -> Object:
    requests = {"requests": {"cpu": str(cpu)}}
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": requests}]}}


def _created(api_version: str, kind: str, **spec: Any) -> Object:
    metadata = {"name": "large", "namespace": TENANT, "labels": {QUEUE: _SHELF}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _ray(**group: Any) -> Object:
    worker = {"groupName": "w", "replicas": 0, "template": _template(), **group}
    return {"headGroupSpec": {"template": _template()}, "workerGroupSpecs": [worker]}


def _wrapper(api_version: str, kind: str) -> Object:
    spec = {"replicas": PODS, "parallelism": PODS, "template": _template()}
    inside = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "in"}, "spec": spec}
    declared = [{"path": "template.spec.template", "replicas": 1}]
    component = {"template": inside, "podSets": declared}
    return _created("workload.codeflare.dev/v1beta2", "AppWrapper", components=[component])


def _step() -> Object:
    requests = {"requests": {"cpu": str(PODS)}}
    return {"name": "s", "image": "i", "computeResources": requests}


def _spark(**spec: Any) -> Object:
    roles = {"driver": {}, "executor": {"instances": 1}}
    return _created("sparkoperator.k8s.io/v1beta2", "SparkApplication", **{**roles, **spec})


def starting(made: Object) -> Act:
    """Create it, and have it admitted for less than it runs."""

    async def act(field: Field) -> None:
        await field.stage.create(*pool(_SHELF, _QUOTA, namespaces=(TENANT,)))
        group, _, version = made["apiVersion"].rpartition("/")
        await serve(field.stage, made["kind"], group=group, version=version)
        obj = await field.create(made)
        await field.stage.settle(20)
        workload = await field.workload(obj)
        admission = (workload.get("status") or {}).get("admission") or {}
        usages = [one.get("resourceUsage") or {} for one in admission.get("podSetAssignments", [])]
        counted = sum(parse_quantity(str(usage.get("cpu", 0))) for usage in usages)
        if admission and counted < parse_quantity(str(PODS)):
            raise BreachError(f"{made['kind']} admitted for {usages}, runs {PODS} CPU")

    return act


_LEAST: Final = _ray(minReplicas=PODS, maxReplicas=PODS)

_TO_DELETE: Final = _ray(
    replicas=1, scaleStrategy={"workersToDelete": [f"w-{number}" for number in range(PODS)]}
)

WAYS: Final[Mapping[str, Callable[[], Object]]] = {
    "creates a RayCluster with fewer workers than its least": lambda: _created(
        "ray.io/v1", "RayCluster", **_LEAST
    ),
    "creates a RayService with fewer workers than its least": lambda: _created(
        "ray.io/v1", "RayService", rayClusterConfig=_LEAST
    ),
    "creates a RayJob with fewer workers than its least": lambda: _created(
        "ray.io/v1", "RayJob", rayClusterSpec=_LEAST, shutdownAfterJobFinishes=True
    ),
    "creates a RayCluster with workers that are to end beside others": lambda: _created(
        "ray.io/v1", "RayCluster", **_TO_DELETE
    ),
    "creates a RayService with workers that are to end beside others": lambda: _created(
        "ray.io/v1", "RayService", rayClusterConfig=_TO_DELETE
    ),
    "creates a RayJob with workers that are to end beside others": lambda: _created(
        "ray.io/v1", "RayJob", rayClusterSpec=_TO_DELETE, shutdownAfterJobFinishes=True
    ),
    "wraps a ReplicaSet, and declares less than it makes": lambda: _wrapper(
        "apps/v1", "ReplicaSet"
    ),
    "wraps a CronJob, and declares less than it makes": lambda: _wrapper("batch/v1", "CronJob"),
    "wraps a TaskRun, and declares its podTemplate": lambda: _created(
        "workload.codeflare.dev/v1beta2",
        "AppWrapper",
        components=[
            {
                "template": {
                    "apiVersion": "tekton.dev/v1",
                    "kind": "TaskRun",
                    "metadata": {"name": "in"},
                    "spec": {"podTemplate": _template(), "taskSpec": {"steps": [_step()]}},
                },
                "podSets": [{"path": "template.spec.podTemplate", "replicas": 1}],
            }
        ],
    ),
    "wraps a Job of another version, and declares less": lambda: _wrapper("batch/v2", "Job"),
    "creates a SparkApplication with cores and no request": lambda: _spark(
        driver={"cores": PODS}, executor={"cores": PODS}
    ),
    "creates a SparkApplication that asks in its configuration": lambda: _spark(
        sparkConf={"spark.kubernetes.executor.request.cores": str(PODS)}
    ),
}
