"""Queues and jobs for a scenario, drawn from its seed."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.kinds import Kind
from shared.contracts.simulation import DURATION
from shared.integrations import TEKTON_SLOT

NAMESPACES: Final = ("team-a", "team-b")
PRIORITIES: Final = {"urgent": 1000, "normal": 100, "idle": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One job, and when it is submitted."""

    at: float
    """Seconds after the start of the load."""

    kind: Kind
    job: Body


def queues(random: Random) -> list[tuple[Kind, Body]]:
    """Yield three ClusterQueues, two of which share a cohort, and the LocalQueues of two teams."""
    objects: list[tuple[Kind, Body]] = [
        (kinds.NAMESPACE, object_of(kinds.NAMESPACE, name)) for name in NAMESPACES
    ]
    objects += [
        (
            kinds.WORKLOAD_PRIORITY_CLASS,
            object_of(kinds.WORKLOAD_PRIORITY_CLASS, name) | {"value": value},
        )
        for name, value in PRIORITIES.items()
    ]
    objects += [
        (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, name, spec={}))
        for name in ("machines", "slots")
    ]
    for name, cohort in (("team-a", "teams"), ("team-b", "teams"), ("pipelines", "")):
        objects.append((kinds.CLUSTER_QUEUE, _cluster_queue(name, cohort, random)))
    for namespace in NAMESPACES:
        for name, queue in (("jobs-queue", namespace), ("pipelines-queue", "pipelines")):
            objects.append(
                (
                    kinds.LOCAL_QUEUE,
                    object_of(
                        kinds.LOCAL_QUEUE, name, namespace=namespace, spec={"clusterQueue": queue}
                    ),
                )
            )
    return objects


def arrivals(random: Random, *, runs: int, jobs: int, seconds: float) -> list[Arrival]:
    """Return the jobs and PipelineRuns of both teams within `seconds`, in the order of creation."""
    coming = [
        Arrival(at=random.uniform(0, seconds), kind=kinds.PIPELINE_RUN, job=_run(index, random))
        for index in range(runs)
    ]
    coming += [
        Arrival(at=random.uniform(0, seconds), kind=kinds.JOB, job=_job(index, random))
        for index in range(jobs)
    ]
    return sorted(coming, key=lambda one: one.at)


def object_of(kind: Kind, name: str, *, namespace: str | None = None, **more: Any) -> Body:
    """Return an object to create."""
    metadata: dict[str, Any] = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
    return as_body(obj)


def _cluster_queue(name: str, cohort: str, random: Random) -> Body:
    if name == "pipelines":
        covered, flavor = [TEKTON_SLOT], "slots"
        resources = [{"name": TEKTON_SLOT, "nominalQuota": str(random.randint(2, 6))}]
    else:
        covered, flavor = ["cpu", "memory"], "machines"
        resources = [
            {"name": "cpu", "nominalQuota": str(random.randint(2, 5))},
            {"name": "memory", "nominalQuota": f"{random.randint(4, 10)}Gi"},
        ]
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "queueingStrategy": random.choice(("BestEffortFIFO", "StrictFIFO")),
        "resourceGroups": [
            {"coveredResources": covered, "flavors": [{"name": flavor, "resources": resources}]}
        ],
    }
    if cohort:
        spec["cohortName"] = cohort
    return object_of(kinds.CLUSTER_QUEUE, name, spec=spec)


def _labels(queue: str | None, random: Random) -> dict[str, str]:
    labels = {names.PRIORITY_CLASS_LABEL: random.choice(tuple(PRIORITIES))}
    return labels if queue is None else labels | {names.QUEUE: queue}


def _run(index: int, random: Random) -> Body:
    # The webhook sets the queue.
    run = object_of(
        kinds.PIPELINE_RUN,
        f"run-{index}",
        namespace=random.choice(NAMESPACES),
        spec={
            "pipelineSpec": {
                "tasks": [
                    {
                        "name": f"task-{number}",
                        "taskSpec": {"steps": [{"name": "work", "image": "none"}]},
                    }
                    for number in range(random.randint(1, 2))
                ]
            }
        },
    )
    run["metadata"]["labels"] = _labels(None, random)
    run["metadata"]["annotations"] = {DURATION: f"{random.randint(3, 40)}s"}
    return run


def _job(index: int, random: Random) -> Body:
    parallelism = random.randint(1, 2)
    requests = {"cpu": f"{random.choice((250, 500, 1000))}m", "memory": "512Mi"}
    template = {
        "metadata": {"annotations": {DURATION: f"{random.randint(3, 40)}s"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "work", "image": "none", "resources": {"requests": requests}}],
        },
    }
    job = object_of(
        kinds.JOB,
        f"job-{index}",
        namespace=random.choice(NAMESPACES),
        spec={"parallelism": parallelism, "completions": parallelism, "template": template},
    )
    job["metadata"]["labels"] = _labels("jobs-queue", random)
    return job
