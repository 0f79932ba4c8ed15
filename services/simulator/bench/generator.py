"""The workloads of Kueue's scalability generator and their creation times."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from services.quota.bench import Kind, Load
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    NAMESPACE,
    RESOURCE_FLAVOR,
    WORKLOAD,
)
from shared.contracts.kube.kinds import Kind as Resource
from shared.contracts.simulation import BENCH_CLASS, BENCH_RUNS

NAMESPACE_NAME: Final = "bench"
FLAVOR: Final = "rf"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadArrival:
    """A workload to create."""

    at: float
    """Seconds after the start."""

    kind: Kind
    object: Body


def cluster_objects(load: Load) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield flavor, namespace and queues in the order of their creation."""
    yield RESOURCE_FLAVOR, {"metadata": {"name": FLAVOR}, "spec": {}}
    yield NAMESPACE, {"metadata": {"name": NAMESPACE_NAME}}
    for cohort, queue in _queues(load):
        quota = {"name": "cpu", "nominalQuota": str(load.nominal)}
        quota["borrowingLimit"] = str(load.borrowing_limit)
        yield (
            CLUSTER_QUEUE,
            {
                "metadata": {"name": queue},
                "spec": {
                    "cohortName": cohort,
                    "namespaceSelector": {},
                    "queueingStrategy": "BestEffortFIFO",
                    "preemption": {
                        "reclaimWithinCohort": load.preemption.reclaim,
                        "withinClusterQueue": load.preemption.within,
                    },
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu"],
                            "flavors": [{"name": FLAVOR, "resources": [quota]}],
                        }
                    ],
                },
            },
        )
        yield (
            LOCAL_QUEUE,
            {
                "metadata": {"name": queue, "namespace": NAMESPACE_NAME},
                "spec": {"clusterQueue": queue},
            },
        )


def arrivals(load: Load, *, scale: float) -> list[WorkloadArrival]:
    """All workloads in the order of their creation; `scale` 0.1 makes a tenth of each kind."""
    found = [
        WorkloadArrival(
            at=kind.every * number / 1000,
            kind=kind,
            object=_workload(queue, kind, number),
        )
        for _, queue in _queues(load)
        for kind in load.kinds
        for number in range(1, max(1, round(kind.count * scale)) + 1)
    ]
    return sorted(found, key=lambda arrival: arrival.at)


def _queues(load: Load) -> Iterator[tuple[str, str]]:
    for cohort in range(load.cohorts):
        for queue in range(load.per_cohort):
            yield f"cohort-{cohort}", f"cohort-{cohort}-cq-{queue}"


def _workload(queue: str, kind: Kind, number: int) -> Body:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"requests": {"cpu": str(kind.cpu)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": f"{queue}-{kind.name}-{number}",
            "namespace": NAMESPACE_NAME,
            "labels": {BENCH_CLASS: kind.name, BENCH_RUNS: str(kind.runs)},
        },
        "spec": {
            "queueName": queue,
            "priority": kind.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
