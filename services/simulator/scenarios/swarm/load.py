"""Queues and jobs of a world of the swarm."""

from random import Random
from typing import Any, Final

from services.simulator.scenarios import load
from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.swarm.features import Features
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.simulation import DURATION

TEAMS: Final = load.NAMESPACES
CHECK: Final = "weather"
CHECK_CONTROLLER: Final = "example.com/weather"
REFUSED: Final = "refuse-me"
"""Label of the jobs that the cluster refuses to start."""

BACKLOG_QUEUE: Final = "backlog"


def queues(features: Features, random: Random) -> list[tuple[Kind, Object]]:
    """Return the objects of `scenarios.load`, with what the features add."""
    objects = load.queues(random)
    for kind, obj in objects:
        if kind == kinds.CLUSTER_QUEUE:
            _extend(obj, features, random)
    if features.nested_cohorts:
        for team in TEAMS:
            spec: Object = {"parentName": "teams"}
            objects.append((kinds.COHORT, object_of(kinds.COHORT, f"{team}-cohort", spec=spec)))
    if features.checks:
        spec = {"controllerName": CHECK_CONTROLLER}
        objects.append((kinds.ADMISSION_CHECK, object_of(kinds.ADMISSION_CHECK, CHECK, spec=spec)))
    if features.backlog:
        objects += _backlog_queue()
    return objects


def _extend(queue: Object, features: Features, random: Random) -> None:
    name, spec = queue["metadata"]["name"], queue["spec"]
    if features.preemption:
        spec["preemption"] = {
            "withinClusterQueue": random.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": random.choice(("Never", "Any", "LowerPriority")),
        }
    if features.nested_cohorts and name in TEAMS:
        spec["cohortName"] = f"{name}-cohort"
        resource = spec["resourceGroups"][0]["flavors"][0]["resources"][0]
        if random.random() < 1 / 2:
            resource["lendingLimit"] = str(random.randint(0, 2))
    if features.checks and name == TEAMS[0]:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}


def _backlog_queue() -> list[tuple[Kind, Object]]:
    resources = [{"name": "cpu", "nominalQuota": "1"}]
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": "machines", "resources": resources}]}
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    local = {"clusterQueue": BACKLOG_QUEUE}
    return [
        (kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, BACKLOG_QUEUE, spec=spec)),
        (
            kinds.LOCAL_QUEUE,
            object_of(kinds.LOCAL_QUEUE, BACKLOG_QUEUE, namespace=TEAMS[0], spec=local),
        ),
    ]


def backlog_job(number: int) -> Object:
    """Return a job of the queue that hardly moves."""
    return _job(f"backlog-{number}", TEAMS[0], BACKLOG_QUEUE, seconds=20, cpu="1")


def burst_job(number: int, random: Random) -> Object:
    """Return one more job of a team, some of them more urgent than what waits already."""
    seconds, cpu = random.randint(3, 20), random.choice(("500m", "1", "2"))
    job = _job(f"burst-{number}", random.choice(TEAMS), "jobs-queue", seconds=seconds, cpu=cpu)
    urgency = random.choice(tuple(load.PRIORITIES))
    job["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = urgency
    return job


def small_job(number: int, namespace: str, urgency: str) -> Object:
    """Return a short job of a team with one processor."""
    job = _job(f"small-{number}", namespace, "jobs-queue", seconds=5, cpu="1")
    job["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = urgency
    return job


def again(job: Object, random: Random) -> Object:
    """Return a job of the same name, to create after the one before was deleted."""
    labels = job["metadata"].get("labels") or {}
    metadata = job["metadata"]
    made = _job(
        metadata["name"],
        metadata["namespace"],
        labels[names.QUEUE],
        seconds=random.randint(3, 40),
        cpu=random.choice(("250m", "500m", "1")),
    )
    made["metadata"]["labels"] |= labels
    return made


def _job(name: str, namespace: str, queue: str, *, seconds: int, cpu: str) -> Object:
    container: dict[str, Any] = {
        "name": "work",
        "image": "none",
        "resources": {"requests": {"cpu": cpu}},
    }
    template = {
        "metadata": {"annotations": {DURATION: f"{seconds}s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    job = object_of(kinds.JOB, name, namespace=namespace, spec={"template": template})
    job["metadata"]["labels"] = {names.QUEUE: queue}
    return job
