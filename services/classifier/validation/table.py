"""The rules of each kind, and `validate`: an update may keep old problems, but adds none."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from services.classifier.validation import extensions, flavors, jobs, queues, workloads
from services.classifier.validation.problems import Problem
from services.classifier.validation.reading import at
from services.classifier.validation.shape import shape_problems
from shared.contracts.kube.kinds import KUEUE_GROUP, Object

Alone = Callable[[Object], Iterable[Problem]]
Changed = Callable[[Object, Object], Iterable[Problem]]


PROBLEMS_MAX: Final = 100
"""Limit for the problems of one answer."""


def _nothing(_obj: Object) -> Iterable[Problem]:
    return ()


def _unchecked(_obj: Object, _old: Object) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """The rules of one kind."""

    alone: Alone = _nothing
    """Rules for an object by itself. It fits the model of its kind."""

    created: Alone = _nothing
    """Rules for a new object, beside those of `alone`."""

    changed: Changed = _unchecked
    """Rules for an update, given the new and the old object. Nothing is certain of either."""


RULES: Final[Mapping[tuple[str, str], KindRules]] = {
    (KUEUE_GROUP, "ClusterQueue"): KindRules(
        alone=lambda obj: chain(queues.cluster_queue(obj), extensions.on_preemption(obj)),
        changed=queues.cluster_queue_update,
    ),
    (KUEUE_GROUP, "Cohort"): KindRules(alone=queues.cohort),
    (KUEUE_GROUP, "LocalQueue"): KindRules(
        alone=extensions.local_queue, changed=queues.local_queue_update
    ),
    (KUEUE_GROUP, "ResourceFlavor"): KindRules(
        alone=flavors.resource_flavor, changed=flavors.resource_flavor_update
    ),
    (KUEUE_GROUP, "Topology"): KindRules(alone=flavors.topology, changed=flavors.topology_update),
    (KUEUE_GROUP, "AdmissionCheck"): KindRules(
        alone=extensions.admission_check, changed=flavors.admission_check_update
    ),
    (KUEUE_GROUP, "MultiKueueConfig"): KindRules(alone=flavors.multikueue_config),
    (KUEUE_GROUP, "MultiKueueCluster"): KindRules(alone=flavors.multikueue_cluster),
    (KUEUE_GROUP, "ProvisioningRequestConfig"): KindRules(),
    (KUEUE_GROUP, "WorkloadPriorityClass"): KindRules(),
    (KUEUE_GROUP, "Workload"): KindRules(
        alone=workloads.workload, changed=workloads.workload_update
    ),
    ("batch", "Job"): KindRules(alone=jobs.job, created=jobs.job_created, changed=jobs.job_update),
}
"""Group and kind to rules. Kueue's kinds are in `v1beta2`."""


def validate(obj: Object, old: Object | None) -> list[Problem]:
    """Return the problems of `obj`; none if it may be stored. `old`: None for a new object.

    A problem that `old` has too is no reason to refuse: rules may be newer than the object. An object that is
    being deleted is never refused, so that its finalizers can be removed.
    """
    rules = RULES.get(_group_kind(obj))
    if rules is None or (old is not None and at(obj, "metadata", "deletionTimestamp")):
        return []
    kind = str(obj.get("kind"))
    # Rules assume that the object fits its model, so they do not run if it does not.
    shape = shape_problems(obj, kind)
    if old is None:
        return _first(shape or chain(rules.alone(obj), rules.created(obj)))
    problems = shape or list(rules.alone(obj))
    if problems:
        known = set(shape_problems(old, kind) or rules.alone(old))
        problems = [problem for problem in problems if problem not in known]
    return _first(chain(problems, rules.changed(obj, old)))


def _first(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first problems: a Status with more is no use to anybody, and may be huge."""
    return list(islice(problems, PROBLEMS_MAX))


def _group_kind(obj: Object) -> tuple[str, str]:
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind"))
