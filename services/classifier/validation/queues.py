"""Kueue's rules for ClusterQueue, Cohort and LocalQueue."""

from collections.abc import Iterator
from typing import Any, Final

from services.classifier.validation.names import label_key, selector
from services.classifier.validation.problems import (
    IMMUTABLE,
    NEGATIVE,
    Problem,
    duplicate,
    forbidden,
    invalid,
    unsupported,
)
from services.classifier.validation.reading import at, indexed, keyed, listed, mapping, quantity
from shared.contracts.kube.kinds import Object

_GROUPS: Final = "spec.resourceGroups"
TOTAL_MAX: Final = 256
"""Limit for the flavors, and for the resources, of all groups of a queue."""

COMBINATIONS_MAX: Final = 512
"""Limit for flavors times resources of one group."""

CONCURRENT_FLAVORS_MAX: Final = 16
_WEIGHT_TOO_SMALL: Final = 1
"""In billionths. Shares are divided by the weight, so it must not be this small, unless it is 0."""


def cluster_queue(obj: Object) -> Iterator[Problem]:
    """Check a ClusterQueue by itself."""
    spec = mapping(obj, "spec")
    yield from _groups(spec, parent="cohort" if not spec.get("cohortName") else "", lending=True)
    if spec.get("namespaceSelector") is not None:
        yield from selector("spec.namespaceSelector", spec["namespaceSelector"])
    yield from _preemption(mapping(spec, "preemption"))
    yield from _fungibility(mapping(spec, "flavorFungibility"))
    yield from _weight(spec)
    yield from _totals(listed(spec, "resourceGroups"))
    yield from _on_flavors(spec)
    if spec.get("concurrentAdmissionPolicy") is not None:
        yield from _concurrent(spec)


def cluster_queue_update(obj: Object, old: Object) -> Iterator[Problem]:
    """Check a change of a ClusterQueue."""
    policy = at(obj, "spec", "concurrentAdmissionPolicy")
    if policy != at(old, "spec", "concurrentAdmissionPolicy"):
        yield invalid("spec.concurrentAdmissionPolicy", policy, IMMUTABLE)


def cohort(obj: Object) -> Iterator[Problem]:
    """Check a Cohort by itself. A cycle of cohorts is reported in the status of its members instead."""
    spec = mapping(obj, "spec")
    yield from _weight(spec)
    yield from _groups(spec, parent="parent" if not spec.get("parentName") else "", lending=False)


def local_queue_update(obj: Object, old: Object) -> Iterator[Problem]:
    """The ClusterQueue is immutable, because the workloads wait in it."""
    before, now = at(old, "spec", "clusterQueue"), at(obj, "spec", "clusterQueue")
    if before and before != now:
        yield invalid("spec.clusterQueue", now, IMMUTABLE)


def _groups(spec: Object, *, parent: str, lending: bool) -> Iterator[Problem]:
    """Check resource groups. `parent` names the parent field that is not set; empty if it is set.

    Without a parent nothing can be borrowed or lent. `lending`: a queue cannot lend more than its quota; a
    cohort can, because it also lends its members' quota.
    """
    resources: set[str] = set()
    flavors: set[str] = set()
    for path, group in indexed(_GROUPS, listed(spec, "resourceGroups")):
        covered = [str(name) for name in listed(group, "coveredResources")]
        for index, name in enumerate(covered):
            field = f"{path}.coveredResources[{index}]"
            yield from label_key(field, name)
            if name in resources:
                yield duplicate(field, name)
            resources.add(name)
        for field, flavor in indexed(f"{path}.flavors", listed(group, "flavors")):
            yield from _quotas(field, flavor, covered, parent=parent, lending=lending)
            name = str(flavor.get("name", ""))
            if name in flavors:
                yield duplicate(f"{field}.name", name)
            flavors.add(name)


def _quotas(
    field: str, flavor: Object, covered: list[str], *, parent: str, lending: bool
) -> Iterator[Problem]:
    found = listed(flavor, "resources")
    if len(found) != len(covered):
        yield invalid(
            f"{field}.resources",
            len(found),
            "flavors must have the same number of resources as the coveredResources",
        )
    for (path, quota), name in zip(indexed(f"{field}.resources", found), covered, strict=False):
        if quota.get("name") != name:
            yield invalid(
                f"{path}.name", quota.get("name"), "must match the name in coveredResources"
            )
        nominal = quantity(quota.get("nominalQuota"))
        for limit in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            value = quantity(quota.get(limit))
            if value is not None and value < 0:
                yield invalid(f"{path}.{limit}", str(quota[limit]), NEGATIVE)
            if limit != "nominalQuota" and value is not None and parent:
                yield invalid(
                    f"{path}.{limit}", str(quota[limit]), f"must be nil when {parent} is empty"
                )
        lent = quantity(quota.get("lendingLimit"))
        if lending and lent is not None and nominal is not None and lent > nominal:
            yield invalid(
                f"{path}.lendingLimit",
                str(quota["lendingLimit"]),
                "must be less than or equal to the nominalQuota",
            )


def _preemption(preemption: Object) -> Iterator[Problem]:
    borrowing = at(preemption, "borrowWithinCohort", "policy") or "Never"
    if borrowing != "Never" and (preemption.get("reclaimWithinCohort") or "Never") == "Never":
        yield invalid(
            "spec.preemption",
            preemption,
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        )


def _fungibility(fungibility: Object) -> Iterator[Problem]:
    preference = fungibility.get("preference")
    both = (fungibility.get("whenCanBorrow", "MayStopSearch"), fungibility.get("whenCanPreempt"))
    if preference and any(each not in {None, "TryNextFlavor"} for each in both):
        yield invalid(
            "spec.flavorFungibility.preference",
            preference,
            "preference can only be set when both whenCanBorrow and whenCanPreempt are "
            "TryNextFlavor",
        )


def _weight(spec: Object) -> Iterator[Problem]:
    given = at(spec, "fairSharing", "weight")
    weight = quantity(given)
    if weight is None:
        return
    if weight < 0:
        yield invalid("spec.fairSharing.weight", str(given), NEGATIVE)
    if 0 < weight <= _WEIGHT_TOO_SMALL:
        yield invalid("spec.fairSharing.weight", str(given), "When not 0, weight must be > 10e-9")


def _totals(groups: list[Any]) -> Iterator[Problem]:
    for what, field in (("flavors", "flavors"), ("covered resources", "coveredResources")):
        total = sum(len(listed(group, field)) for group in groups)
        if total > TOTAL_MAX:
            yield invalid(
                _GROUPS,
                total,
                f"total number of {what} across all resourceGroups must be ≤ {TOTAL_MAX}, "
                f"got {total}",
            )
    for path, group in indexed(_GROUPS, groups):
        total = sum(len(listed(flavor, "resources")) for flavor in listed(group, "flavors"))
        if total > COMBINATIONS_MAX:
            yield invalid(
                path,
                total,
                "number of flavor-resource combinations in a resourceGroup must be "
                f"≤ {COMBINATIONS_MAX}, got {total}",
            )


def _all_flavors(spec: Object) -> dict[str, Object]:
    groups = listed(spec, "resourceGroups")
    return {
        name: flavor for group in groups for name, flavor in keyed(listed(group, "flavors")).items()
    }


def _on_flavors(spec: Object) -> Iterator[Problem]:
    flavors = _all_flavors(spec)
    base = "spec.admissionChecksStrategy.admissionChecks"
    for path, check in indexed(base, listed(spec, "admissionChecksStrategy", "admissionChecks")):
        for index, flavor in enumerate(listed(check, "onFlavors")):
            if flavor not in flavors:
                yield unsupported(f"{path}.onFlavors[{index}]", flavor, flavors)


def _concurrent(spec: Object) -> Iterator[Problem]:
    groups = listed(spec, "resourceGroups")
    flavors = _all_flavors(spec)
    if len(groups) != 1:
        yield invalid(
            _GROUPS,
            len(groups),
            "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
        )
    elif len(flavors) > CONCURRENT_FLAVORS_MAX:
        yield invalid(
            f"{_GROUPS}[0].flavors",
            len(flavors),
            f"cannot have more than {CONCURRENT_FLAVORS_MAX} resource flavors in the ResourceGroup "
            "when ConcurrentAdmissionPolicy is defined",
        )
    if spec.get("queueingStrategy") == "StrictFIFO":
        yield invalid(
            "spec.queueingStrategy",
            "StrictFIFO",
            "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined",
        )
    migration = mapping(spec, "concurrentAdmissionPolicy", "migration")
    field = "spec.concurrentAdmissionPolicy.migration.constraints"
    if migration.get("constraints") is None:
        return
    last = at(migration, "constraints", "lastAcceptableFlavorName")
    if migration.get("mode") != "TryPreferredFlavors":
        yield forbidden(
            field,
            'may only be set when migration.mode is "TryPreferredFlavors" '
            f'(got "{migration.get("mode")}")',
        )
    elif last is not None and last not in flavors:
        yield invalid(
            f"{field}.lastAcceptableFlavorName",
            last,
            f"must be one of the flavors defined in the ClusterQueue: {sorted(flavors)}",
        )
