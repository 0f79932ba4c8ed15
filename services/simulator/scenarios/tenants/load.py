"""The queues of all tenants, the work of the honest ones, and the jobs that every tenant makes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from services.simulator.judge.running_work import TASKS
from services.simulator.judge.tenants import Pool
from services.simulator.scenarios.load import Arrival
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.quantities import parse_quantity
from shared.contracts.simulation import DURATION
from shared.integrations import TEKTON_SLOT

HONEST: Final = ("honest-1", "honest-2")
ADVERSARY: Final = "mallory"
PRIORITIES: Final = {"high": 1000, "low": 1}
LOCAL_QUEUES: Final = ("jobs-queue", "more-queue", "pipelines-queue")
"""Names of the adversary's LocalQueues; honest tenants have the first and the last."""

RULES: Final = f"""
queueName: pipelines-queue
cel:
  expressions:
    - "plrNamespace == '{ADVERSARY}' ? priority('low') : priority('high')"
    - |
      has(pipelineRun.spec.pipelineSpec) && has(pipelineRun.spec.pipelineSpec.tasks) ?
        [resource('{TASKS}', pipelineRun.spec.pipelineSpec.tasks.size())] : []
"""
"""What every PipelineRun gets: the judge knows the same by itself."""

LOAD_SECONDS: Final = 60.0
IN_FORCE_SECONDS: Final = 10.0
"""By then pods are a kind that waits, where they are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """The objects that an administrator made, and the quota in them."""

    objects: list[tuple[Kind, Object]]
    pools: list[Pool]
    alone: bool
    """True if honest tenants share no queue with the adversary."""


def draw_queues(random: Random) -> Queues:
    """Draw the quota. Honest tenants have their own for Jobs; runs may all share one queue."""
    alone = random.random() < 1 / 2
    tenants = {"honest": HONEST, ADVERSARY: (ADVERSARY,)}
    nominal: dict[str, dict[str, str]] = {
        "honest": _cpu(random, 2, 4),
        ADVERSARY: _cpu(random, 2, 4),
        "more": _cpu(random, 1, 2),
    }
    members = {"honest": HONEST, ADVERSARY: (ADVERSARY,), "more": (ADVERSARY,)}
    runs: dict[str, tuple[str, ...]] = {"runs": (*HONEST, ADVERSARY)}
    if alone:
        runs = {f"runs-{name}": spaces for name, spaces in tenants.items()}
    for name, spaces in runs.items():
        slots = random.randint(1, 4)
        nominal[name] = {TEKTON_SLOT: str(slots), TASKS: str(slots + random.randint(0, 3))}
        members[name] = spaces
    objects = list(_objects(random, nominal, runs))
    strict = {
        obj["metadata"]["name"]: obj["spec"]["queueingStrategy"] == "StrictFIFO"
        for kind, obj in objects
        if kind == kinds.CLUSTER_QUEUE
    }
    pools = [
        _pool("jobs of honest tenants", HONEST, nominal["honest"], strict=strict["honest"]),
        _pool("jobs of the adversary", (ADVERSARY,), nominal[ADVERSARY], nominal["more"]),
        *(_pool(name, members[name], nominal[name], strict=strict[name]) for name in runs),
    ]
    return Queues(objects=objects, pools=pools, alone=alone)


def _cpu(random: Random, low: int, high: int) -> dict[str, str]:
    return {"cpu": str(random.randint(low, high)), "memory": f"{random.randint(4, 8)}Gi"}


def _pool(
    name: str, namespaces: tuple[str, ...], *nominal: Mapping[str, str], strict: bool = False
) -> Pool:
    total: dict[str, int] = {}
    for one in nominal:
        for resource, text in one.items():
            total[resource] = total.get(resource, 0) + parse_quantity(text)
    return Pool(name=name, namespaces=frozenset(namespaces), nominal=total, strict=strict)


def _objects(
    random: Random,
    nominal: Mapping[str, Mapping[str, str]],
    runs: Mapping[str, tuple[str, ...]],
) -> Iterator[tuple[Kind, Object]]:
    for name in (*HONEST, ADVERSARY):
        yield kinds.NAMESPACE, _object(kinds.NAMESPACE, name)
    for name, value in PRIORITIES.items():
        class_ = _object(kinds.WORKLOAD_PRIORITY_CLASS, name, value=value)
        yield kinds.WORKLOAD_PRIORITY_CLASS, class_
    yield kinds.RESOURCE_FLAVOR, _object(kinds.RESOURCE_FLAVOR, "any", spec={})
    for name, quota in nominal.items():
        resources = [{"name": key, "nominalQuota": text} for key, text in quota.items()]
        group = {
            "coveredResources": list(quota),
            "flavors": [{"name": "any", "resources": resources}],
        }
        spec: Object = {
            "namespaceSelector": {},
            "queueingStrategy": random.choice(("BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": [group],
        }
        yield kinds.CLUSTER_QUEUE, _object(kinds.CLUSTER_QUEUE, name, spec=spec)
    leads: dict[tuple[str, str], str] = {(space, LOCAL_QUEUES[0]): "honest" for space in HONEST}
    leads[ADVERSARY, LOCAL_QUEUES[0]] = ADVERSARY
    leads[ADVERSARY, LOCAL_QUEUES[1]] = "more"
    leads |= {(space, LOCAL_QUEUES[2]): name for name, spaces in runs.items() for space in spaces}
    for (space, name), queue in leads.items():
        local = _object(kinds.LOCAL_QUEUE, name, namespace=space, spec={"clusterQueue": queue})
        yield kinds.LOCAL_QUEUE, local


def arrivals(random: Random, *, pods_wait: bool) -> list[Arrival]:
    """Return the work of the honest tenants, in the order of its creation. `pods_wait`: pods, too."""
    coming = []
    for number in range(random.randint(3, 7)):
        obj = job(
            f"job-{number}",
            random.choice(HONEST),
            cpu=random.choice(("500m", "1")),
            pods=random.randint(1, 2),
            seconds=random.randint(5, 30),
        )
        obj["metadata"]["labels"] = {names.QUEUE: LOCAL_QUEUES[0]}
        coming.append(Arrival(at=random.uniform(0, LOAD_SECONDS), kind=kinds.JOB, job=obj))
    for number in range(random.randint(2, 5)):
        run = pipeline_run(
            f"run-{number}", random.choice(HONEST), tasks=1, seconds=random.randint(5, 30)
        )
        coming.append(Arrival(at=random.uniform(0, LOAD_SECONDS), kind=kinds.PIPELINE_RUN, job=run))
    for number in range(random.randint(1, 3) if pods_wait else 0):
        obj = pod(f"pod-{number}", random.choice(HONEST), cpu="1", seconds=random.randint(5, 30))
        obj["metadata"]["labels"] = {names.QUEUE: LOCAL_QUEUES[0]}
        at = random.uniform(IN_FORCE_SECONDS, LOAD_SECONDS)
        coming.append(Arrival(at=at, kind=kinds.POD, job=obj))
    return sorted(coming, key=lambda one: one.at)


def job(name: str, namespace: str, *, cpu: str, pods: int = 1, seconds: float) -> Object:
    """Return a Job without labels; `cpu` "" asks for nothing."""
    template = {
        "metadata": {"annotations": {DURATION: f"{seconds:g}s"}},
        "spec": pod_spec(cpu=cpu),
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return _object(kinds.JOB, name, namespace=namespace, spec=spec)


def pod(name: str, namespace: str, *, cpu: str, seconds: float) -> Object:
    """Return a Pod without labels; `cpu` "" asks for nothing."""
    made = _object(kinds.POD, name, namespace=namespace, spec=pod_spec(cpu=cpu))
    made["metadata"]["annotations"] = {DURATION: f"{seconds:g}s"}
    return made


def pod_spec(*, cpu: str) -> Object:
    """Return the spec of a pod that ends; `cpu` "" asks for nothing."""
    container: Object = {"name": "work", "image": "none"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu, "memory": "256Mi"}}
    return {"restartPolicy": "Never", "containers": [container]}


def pipeline_run(name: str, namespace: str, *, tasks: int, seconds: float) -> Object:
    """Return a PipelineRun without labels."""
    steps = {"steps": [{"name": "work", "image": "none"}]}
    spec = {
        "pipelineSpec": {"tasks": [{"name": f"t-{n}", "taskSpec": steps} for n in range(tasks)]}
    }
    run = _object(kinds.PIPELINE_RUN, name, namespace=namespace, spec=spec)
    run["metadata"]["annotations"] = {DURATION: f"{seconds:g}s"}
    return run


def _object(kind: Kind, name: str, *, namespace: str | None = None, **more: Any) -> Object:
    metadata: Object = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
