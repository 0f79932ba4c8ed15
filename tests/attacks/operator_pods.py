"""Pods that an operator loses sight of: it leaves them where their object names others."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import map_at
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import DURATION
from tests.attacks.field import OTHERS, TENANT, Act, Field, restarted
from tests.attacks.ground import BreachError
from tests.conformance.seeds.stage import job, pool
from tests.simulation.kinds.test_ml_kinds import serve

_SHELF: Final = "shelf"
_GRACE_SECONDS: Final = 36_000
_ROUNDS: Final = 6
_PODS_MAX: Final = 4
"""Two that were admitted, and those that are made until somebody has looked."""

_TEMPLATE: Final[Object] = {
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }
}


async def _without_driver(field: Field) -> None:
    """Delete the driver of a SparkApplication at once; its executors take hours to end."""
    roles = {"driver": {"coreRequest": "1"}, "executor": {"instances": 1, "coreRequest": "1"}}
    app = await _admitted(field, _SPARK, {"mode": "cluster", **roles})
    driver = await _pod(field, "app-driver", app)
    executor = await _pod(field, "app-exec-1", driver)
    await _says(field, app, _spark_status("RUNNING"))
    heir = await _heir(field, cpu=2)
    await field.delete(executor, grace_seconds=_GRACE_SECONDS)  # As the garbage collector does.
    await field.delete(driver, grace_seconds=0)
    restarted(field)
    await _says(field, app, _spark_status("FAILED"))
    await field.stage.settle(120)
    if await _pods(field, "app-exec") and await field.stage.is_admitted(heir):
        raise BreachError("another has the quota of executors that run on")


async def _clears_redis(field: Field) -> None:
    """Delete a RayCluster whose operator then makes a Job with its head's pod, which takes hours to end."""
    cluster = await _admitted(field, _RAY, _cluster("w"))
    head = await _pod(field, "made-head", cluster)
    await field.patch(
        cluster, {"metadata": {"finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"]}}
    )
    await _says(field, cluster, _RUNS)
    heir = await _heir(field, cpu=2)
    await field.delete(cluster)
    await field.delete(head, grace_seconds=0)
    clears = job("clears", "", {}, seconds=_GRACE_SECONDS)
    clears["metadata"] = {
        "name": "clears",
        "namespace": TENANT,
        "ownerReferences": [_owner(cluster)],
    }
    clears["spec"]["suspend"] = False
    await field.create(clears)
    await field.stage.settle(10)
    for pod in await _pods(field, "clears"):
        await field.delete(pod, grace_seconds=_GRACE_SECONDS)
    await field.patch(
        cluster, {"metadata": {"finalizers": None}}
    )  # Its operator's patience is over.
    await field.stage.settle(60)
    if await field.stage.is_admitted(heir) or not await _pods(field, "clears"):
        raise BreachError("another has the quota of the Job that clears Redis")


async def _says_that_it_runs(field: Field) -> None:
    """Write into the status of a Workflow that waits, and asks for much, that it runs."""
    quota = {"cpu": 2, "argoproj.io/workflows": 5}
    await field.stage.create(*pool(_SHELF, quota, namespaces=(TENANT, OTHERS)))
    await serve(field.stage, "Workflow", group="argoproj.io", version="v1alpha1")
    metadata: Object = {"name": "waits", "namespace": TENANT, "labels": {QUEUE: _SHELF}}
    metadata["annotations"] = {"kueue.konflux-ci.dev/requests-cpu": "1000"}
    typed = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
    made = await field.create({**typed, "metadata": metadata, "spec": {"entrypoint": "a"}})
    status = {"phase": "Running", "nodes": {"x": {"phase": "Running"}}}
    await field.patch({**made, **typed}, {"status": status})
    await field.stage.settle(30)
    heir = await _heir(field, cpu=1)
    await field.stage.settle(10)
    if not await field.stage.is_admitted(heir):
        raise BreachError("another waits for what nobody uses")
    await field.stage.kube.delete(kinds.JOB, OTHERS, heir["metadata"]["name"])


def _takes_room(kind: str) -> Act:
    """Create a Job that names a running object as its controller, whose pods are made without a Job."""

    async def act(field: Field) -> None:
        group, version, pods, spec = _MADE_WITHOUT[kind]
        owner = await _admitted(field, (group, version, kind), spec)
        await _says(field, owner, _RUNS)
        taken = job("taken", "", {"cpu": 1}, seconds=_GRACE_SECONDS)
        labels = {QUEUE: _SHELF}
        taken["metadata"] = {"name": "taken", "namespace": TENANT, "labels": labels}
        taken["metadata"]["ownerReferences"] = [_owner(owner)]
        taken["spec"] |= {"suspend": False, "parallelism": pods, "completions": pods}
        await field.create(taken)
        await field.stage.settle(20)
        restarted(field)
        await field.stage.settle(10)
        if left := await _pods(field, "taken"):
            raise BreachError(f"{len(left)} pods run on the quota of the {kind}'s own")

    return act


async def _renames_workers(field: Field) -> None:
    cluster = await _admitted(field, _RAY, _cluster("w"))
    specs = [_cluster(f"w{number}") for number in range(_ROUNDS)]
    await _changed(field, cluster, cluster, specs)


async def _changes_roles(field: Field) -> None:
    roles = ("Worker", "PS", "Evaluator", "Chief")
    made = await _admitted(field, _TF, {"tfReplicaSpecs": {"Worker": _role(2)}})
    specs: list[Object] = [
        {"tfReplicaSpecs": {before: None, role: _role(2)}} for before, role in pairwise(roles)
    ]
    await _changed(field, made, made, specs)


def _below(kind: str, specs: Sequence[Object]) -> Act:
    """Change the RayCluster that KubeRay has made of an admitted object."""

    async def act(field: Field) -> None:
        await serve(field.stage, "RayCluster", group="ray.io", version="v1")
        inside = _cluster("w")
        whole: dict[str, Object] = {
            "RayJob": {
                "rayClusterSpec": inside,
                "submissionMode": "HTTPMode",
                "shutdownAfterJobFinishes": True,
            },
            "RayService": {"rayClusterConfig": inside},
        }
        owner = await _admitted(field, ("ray.io", "v1", kind), whole[kind])
        metadata = {"name": "below", "namespace": TENANT, "ownerReferences": [_owner(owner)]}
        made = {
            "metadata": metadata,
            "spec": inside,
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
        }
        cluster = {**await field.create(made), "apiVersion": "ray.io/v1", "kind": "RayCluster"}
        runs = {
            "RayJob": {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
            "RayService": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        await _says(field, owner, runs[kind])
        await _changed(field, owner, cluster, specs)

    return act


async def _changed(field: Field, owner: Object, job: Object, specs: Sequence[Object]) -> None:
    """Change a running job again and again, whose operator adds pods and leaves those that there are."""
    await _pod(field, "made-head", job)
    await _pod(field, "made-first", job)
    await _says(field, job, _RUNS)
    await field.stage.settle(10)
    for number, spec in enumerate(specs):
        await field.patch(job, {"spec": spec})
        await _pod(field, f"made-{number}", job)
        await _says(field, job, _RUNS)
        await field.stage.settle(5)
        if await _is_held(field, owner) or await _is_held(field, job):
            break
    restarted(field)
    await field.stage.settle(30)
    left = await _pods(field, "made-")
    for pod in left:  # As the operator does of what is suspended.
        await field.delete(pod, grace_seconds=0)
    if len(left) > _PODS_MAX:
        raise BreachError(f"{len(left)} pods run on the quota of two")


async def _is_held(field: Field, job: Object) -> bool:
    spec = (await field.stage.fresh(job))["spec"]
    inside = [map_at(spec, part) for part in ("runPolicy", "rayClusterConfig")]
    return any(part.get("suspend") for part in (spec, *inside))


async def _admitted(field: Field, kind: tuple[str, str, str], spec: Object) -> Object:
    """An object of two CPUs, with the quota for it."""
    group, version, name = kind
    await field.stage.create(
        *pool(_SHELF, {"cpu": 2, "memory": "64Gi"}, namespaces=(TENANT, OTHERS))
    )
    await serve(field.stage, name, group=group, version=version)
    typed = {"apiVersion": f"{group}/{version}", "kind": name}
    metadata = {"name": "runs", "namespace": TENANT, "labels": {QUEUE: _SHELF}}
    made = {**await field.create({**typed, "metadata": metadata, "spec": spec}), **typed}
    await field.stage.settle(10)
    if not await field.stage.is_admitted(made):
        raise BreachError(f"{name} waits although it fits: nothing was tried")
    return made


async def _heir(field: Field, *, cpu: int) -> Object:
    made = job("heir", _SHELF, {"cpu": cpu}, seconds=3600)
    made["metadata"]["namespace"] = OTHERS
    heir = await field.stage.create(made)
    await field.stage.settle(10)
    return heir


async def _pod(field: Field, name: str, by: Object) -> Object:
    """A pod that runs for hours, as an operator or a pod makes it: counted by its name, not by its CPU."""
    metadata: Object = {"name": name, "namespace": TENANT, "ownerReferences": [_owner(by)]}
    metadata["annotations"] = {DURATION: f"{_GRACE_SECONDS}s"}
    spec: Object = {"containers": [{"name": "c", "image": "i"}]}
    spec |= {"terminationGracePeriodSeconds": _GRACE_SECONDS, "restartPolicy": "Never"}
    typed = {"apiVersion": "v1", "kind": "Pod"}
    pod = {**typed, "metadata": metadata, "spec": spec}
    return {**await field.create(pod), **typed}


async def _pods(field: Field, prefix: str) -> list[Object]:
    pods = await field.all(kinds.POD)
    mine = [one for one in pods if one["metadata"]["name"].startswith(prefix)]
    return [{"apiVersion": "v1", "kind": "Pod", **one} for one in mine]


async def _says(field: Field, job: Object, status: Object) -> None:
    """Write a status as the operator does."""
    await field.stage.patch(job, {"status": status}, subresource="status")


def _owner(by: Object) -> Object:
    owner = {key: by[key] for key in ("apiVersion", "kind")} | {"controller": True}
    return owner | {key: by["metadata"][key] for key in ("name", "uid")}


def _spark_status(state: str) -> Object:
    return {"applicationState": {"state": state}, "executorState": {"app-exec-1": state}}


def _cluster(*names: str, runs: str = "") -> Object:
    """A RayCluster with a head, and a worker in each group; `runs`: in this group only."""
    groups: list[Any] = [
        {"groupName": name, "replicas": int(runs in {"", name}), "template": _TEMPLATE}
        for name in names
    ]
    return {"headGroupSpec": {"template": _TEMPLATE}, "workerGroupSpecs": groups}


def _role(replicas: int) -> Object:
    return {"replicas": replicas, "restartPolicy": "Never", "template": _TEMPLATE}


_MADE_WITHOUT: Final[dict[str, tuple[str, str, int, Object]]] = {
    "MPIJob": (
        "kubeflow.org",
        "v2beta1",
        2,
        {"mpiReplicaSpecs": {"Launcher": _role(1), "Worker": _role(1)}},
    ),
    "RayCluster": ("ray.io", "v1", 1, _cluster("w")),
}
"""Objects of two pods of one CPU, and more pods than their Jobs run: of an MPIJob the launcher, else none."""

_SPARK: Final = ("sparkoperator.k8s.io", "v1beta2", "SparkApplication")
_RAY: Final = ("ray.io", "v1", "RayCluster")
_TF: Final = ("kubeflow.org", "v1", "TFJob")
_RUNS: Final[Object] = {"state": "ready", "replicaStatuses": {"Worker": {"active": 2}}}
_GROUPS: Final = tuple(f"v{number}" for number in range(_ROUNDS))
_RENAMED: Final = [_cluster(name) for name in _GROUPS]
_MOVED: Final = [_cluster("w", *_GROUPS, runs=name) for name in _GROUPS]

ROWS: Final[dict[str, Act]] = {
    **{
        f"names a running {kind} as controller of a Job, on the quota of its other pods": _takes_room(
            kind
        )
        for kind in _MADE_WITHOUT
    },
    "deletes the driver of a SparkApplication whose executors take hours to end": _without_driver,
    "deletes a RayCluster whose Job that clears Redis takes hours to end": _clears_redis,
    "writes that a Workflow runs which waits for more than there is": _says_that_it_runs,
    "renames the workers of a running RayCluster, whose former ones run on": _renames_workers,
    "changes the roles of a running TFJob, whose former pods run on": _changes_roles,
    "renames the workers of the RayCluster of a RayJob": _below("RayJob", _RENAMED),
    "renames the workers of the RayCluster of a RayService": _below("RayService", _RENAMED),
    "moves the worker of the RayCluster of a RayJob to other groups": _below("RayJob", _MOVED),
}
