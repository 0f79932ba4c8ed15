"""Objects of the kinds that play along. Each fits into the smallest quota that a team may have."""

from random import Random
from typing import Any, Final

from services.simulator.scenarios.load import NAMESPACES, PRIORITIES, object_of
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.simulation import DURATION, OUTCOME
from shared.integrations import INTEGRATIONS, opted_documents

FRAMEWORKS: Final = ("pod", "deployment", "statefulset")
FLOWS: Final = "flows"
"""The pool of the Workflows."""

FLOWS_QUEUE: Final = f"{FLOWS}-queue"
PLACES: Final = "argoproj.io/workflows"
"""The resource of which each Workflow takes one."""

FAILS: Final = 1 / 6
_KINDS: Final = {integration.kind.kind: integration.kind for integration in INTEGRATIONS}
JOB_SET: Final = _KINDS["JobSet"]
TRAINING: Final = _KINDS["PyTorchJob"]
WORKFLOW: Final = _KINDS["Workflow"]
WRAPPER: Final = _KINDS["AppWrapper"]
[GROUP] = (
    document["spec"]["group"]
    for document in opted_documents(FRAMEWORKS)
    if "group" in document["spec"]
)
"""By which label and annotations pods say to which group they belong."""


def queues(random: Random) -> list[tuple[Kind, Object]]:
    """Return the queue of the Workflows."""
    quota = [{"name": PLACES, "nominalQuota": str(random.randint(1, 3))}]
    group = {"coveredResources": [PLACES], "flavors": [{"name": "slots", "resources": quota}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    objects = [(kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, FLOWS, spec=spec))]
    for namespace in NAMESPACES:
        local = object_of(
            kinds.LOCAL_QUEUE, FLOWS_QUEUE, namespace=namespace, spec={"clusterQueue": FLOWS}
        )
        objects.append((kinds.LOCAL_QUEUE, local))
    return objects


def pod(name: str, namespace: str, random: Random) -> Object:
    """Return a Pod that waits by itself."""
    made = _queued(kinds.POD, name, namespace, random, _pod_spec(random))
    made["metadata"]["annotations"] = _ending(random)
    return made


def member(name: str, namespace: str, group: Object, random: Random) -> Object:
    """Return a Pod of a group; `group` holds its name, its size, its priority and its annotations."""
    made = pod(name, namespace, random)
    made["metadata"]["labels"] |= {GROUP["label"]: group["name"], **group["labels"]}
    made["metadata"]["annotations"] |= {GROUP["total"]: str(group["total"]), **group["annotations"]}
    made["spec"] = _pod_spec(random, cpu=group["cpu"])
    return made


def group_of(name: str, random: Random) -> Object:
    """Return what all pods of a group have in common."""
    annotations = {GROUP["early"]: "true"} if random.random() < 1 / 3 else {}
    return {
        "name": name,
        "total": random.randint(1, 3),
        "cpu": random.choice(("250m", "500m")),
        "labels": {names.PRIORITY_CLASS_LABEL: random.choice(tuple(PRIORITIES))},
        "annotations": annotations,
    }


def deployment(name: str, namespace: str, random: Random) -> Object:
    """Return a Deployment, whose pods run until somebody ends them."""
    return _set_of_pods(kinds.DEPLOYMENT, name, namespace, random)


def stateful_set(name: str, namespace: str, random: Random) -> Object:
    """Return a StatefulSet, whose pods are a group."""
    return _set_of_pods(kinds.STATEFUL_SET, name, namespace, random)


def job_set(name: str, namespace: str, random: Random) -> Object:
    """Return a JobSet of one or two Jobs."""
    template = _template(random)
    job = {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}}
    replicated = [{"name": "work", "replicas": random.randint(1, 2), "template": job}]
    return _queued(JOB_SET, name, namespace, random, {"replicatedJobs": replicated})


def training(name: str, namespace: str, random: Random) -> Object:
    """Return a PyTorchJob. In half of them the pods have the label of the queue, too."""
    roles = {
        "Master": {"template": _template(random)},
        "Worker": {"replicas": random.randint(1, 2), "template": _template(random)},
    }
    made = _queued(TRAINING, name, namespace, random, {"pytorchReplicaSpecs": roles})
    if random.random() < 1 / 2:
        for role in roles.values():
            role["template"]["metadata"]["labels"] = dict(made["metadata"]["labels"])
    return made


def app_wrapper(name: str, namespace: str, random: Random) -> Object:
    """Return an AppWrapper with a Job, perhaps a JobSet, and what has no pods.

    In half of them what is inside has the label of the queue, too.
    """
    job = {"parallelism": random.randint(1, 2), "backoffLimit": 0, "template": _template(random)}
    job["completions"] = job["parallelism"]
    inside = [
        object_of(kinds.CONFIG_MAP, f"{name}-map", namespace=namespace),
        object_of(kinds.JOB, f"{name}-job", namespace=namespace, spec=job),
    ]
    if random.random() < 1 / 2:
        one = {"spec": {"backoffLimit": 0, "template": _template(random)}}
        spec = {"replicatedJobs": [{"name": "work", "replicas": 1, "template": one}]}
        inside.append(object_of(JOB_SET, f"{name}-set", namespace=namespace, spec=spec))
    made = _queued(WRAPPER, name, namespace, random, {})
    if random.random() < 1 / 2:
        for obj in inside:
            obj["metadata"]["labels"] = dict(made["metadata"]["labels"])
    made["spec"] = {"components": [{"template": obj} for obj in inside]}
    return made


def workflow(name: str, namespace: str, random: Random) -> Object:
    """Return a Workflow of Argo with one or two steps."""
    templates = [
        {
            "name": f"step-{n}",
            "metadata": {"annotations": _ending(random)},
            "container": _container(),
        }
        for n in range(random.randint(1, 2))
    ]
    made = _queued(WORKFLOW, name, namespace, random, {"entrypoint": "step-0"})
    made["metadata"]["labels"][names.QUEUE] = FLOWS_QUEUE
    made["spec"]["templates"] = templates
    return made


def _set_of_pods(kind: Kind, name: str, namespace: str, random: Random) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": _pod_spec(random)}
    template["spec"]["restartPolicy"] = "Always"
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": random.randint(1, 2), "selector": selector, "template": template}
    return _queued(kind, name, namespace, random, spec)


def _queued(kind: Kind, name: str, namespace: str, random: Random, spec: Any) -> Object:
    made = object_of(kind, name, namespace=namespace, spec=spec)
    made["metadata"]["labels"] = {
        names.QUEUE: "jobs-queue",
        names.PRIORITY_CLASS_LABEL: random.choice(tuple(PRIORITIES)),
    }
    return made


def _template(random: Random) -> Any:
    return {"metadata": {"annotations": _ending(random)}, "spec": _pod_spec(random)}


def _ending(random: Random) -> dict[str, str]:
    fails = {OUTCOME: "fail"} if random.random() < FAILS else {}
    return {DURATION: f"{random.randint(3, 40)}s", **fails}


def _pod_spec(random: Random, cpu: str = "") -> Any:
    requests = {"cpu": cpu or random.choice(("250m", "500m")), "memory": "256Mi"}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "work", **_container(), "resources": {"requests": requests}}],
    }


def _container() -> Any:
    return {"image": "none"}
