"""Which rules a kind has, and how they are asked: what was wrong before may stay, nothing may come."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from services.classifier.validation import extensions, flavors, jobs, queues, workloads
from services.classifier.validation.problems import Problem
from services.classifier.validation.reading import at
from services.classifier.validation.shape import shape
from shared.contracts.kube.kinds import Object

__all__ = ["RULES", "Rules", "validate"]

Alone = Callable[[Object], Iterable[Problem]]
Changed = Callable[[Object, Object], Iterable[Problem]]


def _nothing(_obj: Object) -> Iterable[Problem]:
    return ()


def _unchecked(_obj: Object, _old: Object) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one kind."""

    alone: Alone = _nothing
    """Of an object by itself. It has the shape of its kind."""

    changed: Changed = _unchecked
    """Of an object and what it was; nothing is certain of either."""


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("kueue.x-k8s.io", "ClusterQueue"): Rules(
        alone=lambda obj: chain(queues.cluster_queue(obj), extensions.on_preemption(obj)),
        changed=queues.cluster_queue_update,
    ),
    ("kueue.x-k8s.io", "Cohort"): Rules(alone=queues.cohort),
    ("kueue.x-k8s.io", "LocalQueue"): Rules(
        alone=extensions.local_queue, changed=queues.local_queue_update
    ),
    ("kueue.x-k8s.io", "ResourceFlavor"): Rules(
        alone=flavors.resource_flavor, changed=flavors.resource_flavor_update
    ),
    ("kueue.x-k8s.io", "Topology"): Rules(alone=flavors.topology, changed=flavors.topology_update),
    ("kueue.x-k8s.io", "AdmissionCheck"): Rules(
        alone=extensions.admission_check, changed=flavors.admission_check_update
    ),
    ("kueue.x-k8s.io", "MultiKueueConfig"): Rules(alone=flavors.multikueue_config),
    ("kueue.x-k8s.io", "MultiKueueCluster"): Rules(alone=flavors.multikueue_cluster),
    ("kueue.x-k8s.io", "ProvisioningRequestConfig"): Rules(),
    ("kueue.x-k8s.io", "WorkloadPriorityClass"): Rules(),
    ("kueue.x-k8s.io", "Workload"): Rules(
        alone=workloads.workload, changed=workloads.workload_update
    ),
    ("batch", "Job"): Rules(alone=jobs.job, changed=jobs.job_update),
}
"""By group and kind. Our own kinds are in `v1beta2`."""


def validate(obj: Object, old: Object | None) -> list[Problem]:
    """What is wrong with `obj`; empty if it may be stored. `old` is what it was, None for a new one.

    Rules that came later than an object do not lock it: what was wrong with `old` already may stay.
    An object that is being deleted may be anything, or nobody could take its finalizers away.
    """
    rules = RULES.get(_of(obj))
    if rules is None or (old is not None and at(obj, "metadata", "deletionTimestamp")):
        return []
    kind = str(obj.get("kind"))
    # Rules trust the shape: they are not asked about an object that has another.
    problems = shape(obj, kind) or list(rules.alone(obj))
    if old is None:
        return problems
    if problems:
        problems = _new(problems, shape(old, kind) or rules.alone(old))
    return [*problems, *rules.changed(obj, old)]


def _new(problems: list[Problem], before: Iterable[Problem]) -> list[Problem]:
    known = set(before)
    return [problem for problem in problems if problem not in known]


def _of(obj: Object) -> tuple[str, str]:
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind"))
