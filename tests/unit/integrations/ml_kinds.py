"""Objects of the kinds that ship for clusters which serve them, and what has to be read from each.

What is expected are the pod sets of Kueue's integration for the kind, in its order:
kubernetes-sigs/kueue@ff69552 pkg/controller/jobs/{appwrapper,kubeflow,mpijob,raycluster,rayjob,rayservice,
sparkapplication}.
"""

from dataclasses import dataclass
from typing import Any, Final

from shared.contracts.kube.kinds import Object

QUEUE: Final = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class MlKind:
    """One kind: an object that was just created, and how it goes on."""

    new: Object
    pod_sets: tuple[tuple[str, int, str], ...]
    """Name, pods, and the cpu for which one asks."""

    suspended_at: tuple[str, ...] = ("spec", "suspend")
    running: Object
    """A status."""

    ready: Object | None
    """A status; None: the kind cannot tell."""

    succeeded: Object | None
    """A status; None: the kind never ends by itself."""

    failed: Object | None
    managed_by: tuple[str, ...] = ("spec", "managedBy")
    own_controller: str | None
    selectors: tuple[tuple[str, ...], ...]
    """Where the node selector of each pod set is after its release."""

    stoppable: bool = True


def template(cpu: str, **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], **spec}}


def created(api_version: str, kind: str, **spec: Any) -> Object:
    metadata = {"name": "x", "namespace": "team", "uid": "u-1", "labels": {QUEUE: "main"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def said(type_: str, status: str = "True") -> Object:
    return {"conditions": [{"type": type_, "status": status, "message": f"it is {type_}"}]}


def _kubeflow(
    kind: str, field: str, roles: dict[str, tuple[int | None, str]], *, order: tuple[str, ...]
) -> MlKind:
    specs = {
        role: {"template": template(cpu), **({} if pods is None else {"replicas": pods})}
        for role, (pods, cpu) in roles.items()
    }
    mpi = kind == "MPIJob"
    return MlKind(
        new=created(f"kubeflow.org/{'v2beta1' if mpi else 'v1'}", kind, **{field: specs}),
        pod_sets=tuple((role.lower(), roles[role][0] or 1, roles[role][1]) for role in order),
        suspended_at=("spec", "runPolicy", "suspend"),
        running={"replicaStatuses": {order[0]: {}, order[-1]: {"active": 1}}},
        ready=said("Running"),
        succeeded=said("Succeeded"),
        failed=said("Failed"),
        managed_by=("spec", "runPolicy", "managedBy"),
        own_controller=f"kubeflow.org/{'mpi' if mpi else 'training'}-operator",
        selectors=tuple(
            ("spec", field, role, "template", "spec", "nodeSelector") for role in order
        ),
    )


_PAIR: Final = {"Worker": (4, "2"), "Master": (None, "1")}
_RAY: Final = {
    "headGroupSpec": {"template": template("1")},
    "workerGroupSpecs": [
        {"groupName": "Small", "replicas": 3, "template": template("2")},
        {"groupName": "hosts", "replicas": 2, "numOfHosts": 4, "template": template("3")},
        {"groupName": "one", "template": template("4")},
    ],
}
_RAY_PODS: Final = (("head", 1, "1"), ("small", 3, "2"), ("hosts", 8, "3"), ("one", 1, "4"))


def _ray_selectors(*path: str) -> tuple[tuple[str, ...], ...]:
    in_template = ("template", "spec", "nodeSelector")
    head = (*path, "headGroupSpec", *in_template)
    return (head, *((*path, "workerGroupSpecs", str(at), *in_template) for at in range(3)))


KINDS: Final = {
    "PyTorchJob": _kubeflow("PyTorchJob", "pytorchReplicaSpecs", _PAIR, order=("Master", "Worker")),
    "TFJob": _kubeflow(
        "TFJob",
        "tfReplicaSpecs",
        {
            "Evaluator": (1, "5"),
            "PS": (2, "3"),
            "Chief": (1, "1"),
            "Worker": (3, "4"),
            "Master": (1, "2"),
        },
        order=("Chief", "Master", "PS", "Worker", "Evaluator"),
    ),
    "XGBoostJob": _kubeflow("XGBoostJob", "xgbReplicaSpecs", _PAIR, order=("Master", "Worker")),
    "PaddleJob": _kubeflow("PaddleJob", "paddleReplicaSpecs", _PAIR, order=("Master", "Worker")),
    "JAXJob": _kubeflow("JAXJob", "jaxReplicaSpecs", {"Worker": (2, "2")}, order=("Worker",)),
    "MPIJob": _kubeflow(
        "MPIJob",
        "mpiReplicaSpecs",
        {"Worker": (2, "2"), "Launcher": (None, "1")},
        order=("Launcher", "Worker"),
    ),
    "RayCluster": MlKind(
        new=created("ray.io/v1", "RayCluster", **_RAY),
        pod_sets=_RAY_PODS,
        running={"state": "ready"},
        ready={"state": "ready"},
        succeeded=None,
        failed=None,
        own_controller="ray.io/kuberay-operator",
        selectors=_ray_selectors("spec"),
    ),
    "RayService": MlKind(
        new=created("ray.io/v1", "RayService", rayClusterConfig=_RAY),
        pod_sets=_RAY_PODS,
        suspended_at=("spec", "rayClusterConfig", "suspend"),
        running={"activeServiceStatus": {"rayClusterStatus": {"state": "ready"}}},
        ready=said("Ready"),
        succeeded=None,
        failed=None,
        own_controller="ray.io/kuberay-operator",
        selectors=_ray_selectors("spec", "rayClusterConfig"),
    ),
    "RayJob": MlKind(
        new=created("ray.io/v1", "RayJob", rayClusterSpec=_RAY, shutdownAfterJobFinishes=True),
        pod_sets=(*_RAY_PODS, ("submitter", 1, "500m")),
        running={"jobDeploymentStatus": "Initializing"},
        ready={"rayClusterStatus": {"state": "ready"}},
        succeeded={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
        failed={"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "message": "late"},
        own_controller="ray.io/kuberay-operator",
        selectors=(
            *_ray_selectors("spec", "rayClusterSpec"),
            ("spec", "submitterPodTemplate", "spec", "nodeSelector"),
        ),
    ),
    "AppWrapper": MlKind(
        new=created(
            "workload.codeflare.dev/v1beta2",
            "AppWrapper",
            components=[
                {
                    "template": {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "spec": {"parallelism": 3, "template": template("1")},
                    }
                },
                {
                    "podSets": [{"path": "template.spec.crew", "replicas": 2}],
                    "template": {
                        "apiVersion": "example.com/v1",
                        "kind": "Crew",
                        "spec": {"crew": template("2")},
                    },
                },
            ],
        ),
        pod_sets=(("x-0", 3, "1"), ("x-1", 2, "2")),
        running=said("QuotaReserved"),
        ready=said("PodsReady"),
        succeeded={"phase": "Succeeded"},
        failed={"phase": "Failed", **said("ResourcesDeployed", "False")},
        own_controller="workload.codeflare.dev/appwrapper-controller",
        selectors=tuple(
            ("spec", "components", str(at), "podSetInfos", "0", "nodeSelector") for at in range(2)
        ),
    ),
    "SparkApplication": MlKind(
        new=created(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            mode="cluster",
            driver={"coreRequest": "1", "memory": "512m", "labels": {"a": "b"}},
            executor={"coreRequest": "2", "memory": "4Gb", "instances": 3},
        ),
        pod_sets=(("driver", 1, "1"), ("executor", 3, "2")),
        running={"applicationState": {"state": "RUNNING"}},
        ready={
            "applicationState": {"state": "RUNNING"},
            "executorState": {"a": "RUNNING", "b": "COMPLETED", "c": "RUNNING"},
        },
        succeeded={"applicationState": {"state": "COMPLETED"}},
        failed={"applicationState": {"state": "FAILED", "errorMessage": "no driver"}},
        own_controller=None,
        selectors=(("spec", "driver", "nodeSelector"), ("spec", "executor", "nodeSelector")),
    ),
    "Workflow": MlKind(
        new=created("argoproj.io/v1alpha1", "Workflow", entrypoint="main"),
        pod_sets=(("main", 1, ""),),
        running={"phase": "Running", "nodes": {"a": {}}},
        ready=None,
        succeeded={"phase": "Succeeded", **said("Completed")},
        failed={"phase": "Error", "message": "no template", **said("Completed")},
        own_controller=None,
        selectors=(),
        stoppable=False,
    ),
}


def with_status(obj: Object, status: Object) -> Object:
    """The object, as its controller leaves it: Argo's labels what it has completed."""
    if obj["kind"] != "Workflow" or "conditions" not in status:
        return {**obj, "status": status}
    labels = {**obj["metadata"]["labels"], "workflows.argoproj.io/completed": "true"}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "status": status}


REFUSED: Final = {
    "an autoscaler of a RayCluster": (
        created("ray.io/v1", "RayCluster", **_RAY, enableInTreeAutoscaling=True),
        "spec.enableInTreeAutoscaling: true: an autoscaler takes pods that nobody admitted",
    ),
    "a group of workers that is called as the head": (
        created("ray.io/v1", "RayCluster", **{**_RAY, "workerGroupSpecs": [{"groupName": "head"}]}),
        'spec.workerGroupSpecs: set: "head" is the name of the head group',
    ),
    "an autoscaler of a RayService": (
        created(
            "ray.io/v1", "RayService", rayClusterConfig={**_RAY, "enableInTreeAutoscaling": True}
        ),
        "spec.rayClusterConfig.enableInTreeAutoscaling: true: an autoscaler takes pods",
    ),
    "a RayJob that keeps its cluster": (
        created("ray.io/v1", "RayJob", rayClusterSpec=_RAY),
        "spec.shutdownAfterJobFinishes: absent: the cluster would keep its pods",
    ),
    "an autoscaler of a RayJob": (
        created(
            "ray.io/v1",
            "RayJob",
            rayClusterSpec={**_RAY, "enableInTreeAutoscaling": True},
            shutdownAfterJobFinishes=True,
        ),
        "spec.rayClusterSpec.enableInTreeAutoscaling: true: an autoscaler",
    ),
    "a RayJob without a cluster": (
        created("ray.io/v1", "RayJob", shutdownAfterJobFinishes=True),
        "spec.rayClusterSpec: absent: it is needed",
    ),
    "a RayJob with two clusters": (
        created("ray.io/v1", "RayJob", rayClusterSpec=_RAY, clusterSelector={"a": "b"}),
        "spec.clusterSelector: set: it names a cluster besides its own",
    ),
    "a SparkApplication whose driver is elsewhere": (
        created("sparkoperator.k8s.io/v1beta2", "SparkApplication", mode="client"),
        "spec.mode: 'client': only in cluster mode",
    ),
    "executors that Spark takes by itself": (
        created(
            "sparkoperator.k8s.io/v1beta2", "SparkApplication", dynamicAllocation={"enabled": True}
        ),
        "spec.dynamicAllocation.enabled: true: Spark would take executors",
    ),
    "executors that Spark takes by itself, as its own configuration says": (
        created(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            sparkConf={"spark.dynamicAllocation.enabled": "True"},
        ),
        "spec.sparkConf: set: by spark.dynamicAllocation.enabled Spark would take executors",
    ),
    "more executors in Spark's configuration than are counted": (
        created(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            executor={"instances": 1},
            sparkConf={"spark.executor.instances": "9"},
        ),
        "spec.sparkConf: set: by spark.executor.instances Spark would take other executors",
    ),
    "executors in Spark's configuration only": (
        created(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            executor={},
            sparkConf={"spark.executor.instances": "1"},
        ),
        "spec.sparkConf: set: by spark.executor.instances Spark would take other executors",
    ),
    "a TrainJob, whose pods are in its runtime": (
        created("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef={"name": "torch"}),
        "spec.runtimeRef.name: 'torch': the pods of a TrainJob come from its runtime",
    ),
}
