"""Kueue's rules for Workloads: by themselves, and for changes while quota is reserved."""

from collections.abc import Iterator
from typing import Any, Final

from services.classifier.validation import names
from services.classifier.validation.problems import (
    IMMUTABLE,
    NEGATIVE,
    Problem,
    forbidden,
    invalid,
    missing,
    not_found,
    unsupported,
)
from services.classifier.validation.reading import (
    at,
    indexed,
    is_same,
    keyed,
    listed,
    mapping,
    number,
    quantity,
)
from shared.contracts.kube.conditions import ADMITTED, QUOTA_RESERVED, is_true
from shared.contracts.kube.kinds import KUEUE_GROUP, Object
from shared.contracts.kube.names import ELASTIC_JOB, PRIORITY_BOOST
from shared.contracts.kube.numbers import SHORT_INTEGER
from shared.contracts.kube.quantities import NANO

MAIN: Final = "main"
"""The name of a pod set without one."""

_SPEC: Final = "spec.podSets"


def is_elastic(obj: Object) -> bool:
    """Return whether the job may change its size while it runs."""
    metadata = mapping(obj, "metadata")
    found = (at(metadata, part, ELASTIC_JOB) for part in ("annotations", "labels"))
    return "true" in found


def workload(obj: Object) -> Iterator[Problem]:
    """Check a Workload by itself."""
    pod_sets = listed(obj, "spec", "podSets")
    variable = [pods for pods in pod_sets if at(pods, "minCount") is not None]
    for field, pods in indexed(_SPEC, pod_sets):
        yield from _pod_set(field, pods)
    if len(variable) > 1:
        yield invalid(_SPEC, len(variable), "at most one podSet can use minCount")
    if variable and is_elastic(obj):
        yield invalid(
            _SPEC, len(variable), "partial admission and elastic job cannot be used together"
        )
    yield from _priority(obj)
    if is_true(obj, QUOTA_RESERVED):
        yield from _admission(obj)
    yield from _reclaimable(obj)
    yield from _check_states(obj)
    yield from _clusters(obj)


def _priority(obj: Object) -> Iterator[Problem]:
    spec = mapping(obj, "spec")
    reference = mapping(spec, "priorityClassRef")
    if reference and spec.get("priority") is None:
        yield missing("spec.priority", "priority should not be nil when priorityClassRef is set")
    allowed = {"scheduling.k8s.io": "PriorityClass", KUEUE_GROUP: "WorkloadPriorityClass"}
    group, kind = reference.get("group"), reference.get("kind")
    if reference and allowed.get(str(group)) != kind:
        wanted = allowed.get(str(group))
        yield invalid(
            "spec.priorityClassRef.kind",
            kind,
            f"only the {wanted} kind is allowed for the {group} group",
        )
    boost = at(obj, "metadata", "annotations", PRIORITY_BOOST)
    if boost is not None and not SHORT_INTEGER.fullmatch(str(boost)):
        yield invalid(
            f"metadata.annotations[{PRIORITY_BOOST}]", boost, "must be a valid signed integer"
        )


def _pod_set(field: str, pods: Object) -> Iterator[Problem]:
    count, least = number(pods, "count", 1), pods.get("minCount")
    if least is not None and not 0 < least <= count:
        yield invalid(
            f"{field}.minCount", least, "minCount should be positive and less or equal to count"
        )
    spec = mapping(pods, "template", "spec")
    base = f"{field}.template.spec"
    for kind in ("initContainers", "containers"):
        for path, container in indexed(f"{base}.{kind}", listed(spec, kind)):
            yield from _resources(f"{path}.resources", mapping(container, "resources"))
    yield from _resources(f"{base}.resources", mapping(spec, "resources"))
    yield from _topology_request(f"{field}.topologyRequest", mapping(pods, "topologyRequest"))


def _resources(field: str, resources: Object) -> Iterator[Problem]:
    for kind in ("requests", "limits"):
        for name, value in mapping(resources, kind).items():
            path = f"{field}.{kind}[{name}]"
            if name == "pods":
                yield invalid(path, name, "the key is reserved for internal kueue use")
            amount = quantity(value)
            if amount is None:
                yield invalid(path, value, "must be a quantity such as 500m or 2Gi")
            elif amount < 0:
                yield invalid(path, str(value), NEGATIVE)


def _topology_request(field: str, request: Object) -> Iterator[Problem]:
    size = request.get("podSetSliceSize")
    topology = request.get("podSetSliceRequiredTopology")
    if topology is not None and size is None:
        yield missing(
            f"{field}.podSetSliceSize",
            "must be set when podSetSliceRequiredTopology is specified",
        )
    if topology is None and size is not None:
        yield forbidden(
            f"{field}.podSetSliceSize",
            "may not be set when podSetSliceRequiredTopology is not specified",
        )


def _pod_sets_by_name(obj: Object) -> dict[str, Object]:
    return keyed(listed(obj, "spec", "podSets"), default=MAIN)


def _admission(obj: Object) -> Iterator[Problem]:
    field = "status.admission"
    admission = at(obj, "status", "admission")
    if admission is None:
        yield missing(field, "must be set while the QuotaReserved condition is true")
        return
    known = _pod_sets_by_name(obj)
    assignments = listed(admission, "podSetAssignments")
    if len(assignments) != len(known):
        yield invalid(
            f"{field}.podSetAssignments",
            len(assignments),
            "podSetAssignments must have the same number of podSets as the spec",
        )
    for path, assigned in indexed(f"{field}.podSetAssignments", assignments):
        name = assigned.get("name", MAIN)
        if name not in known:
            yield not_found(f"{path}.name", name)
        count = number(assigned, "count", 0)
        for resource, used in mapping(assigned, "resourceUsage").items():
            amount = _counted(str(resource), used)
            if count > 0 and amount is not None and amount % count:
                yield invalid(
                    f"{path}.resourceUsage[{resource}]",
                    str(used),
                    f"is not a multiple of {count}",
                )


def _counted(resource: str, value: Any) -> int | None:
    """Return an amount as quota counts it: in thousandths of cpu, else in units, rounded up."""
    amount = quantity(value)
    unit = NANO // 1000 if resource == "cpu" else NANO
    return None if amount is None else -(-amount // unit)


def _reclaimable(obj: Object) -> Iterator[Problem]:
    known = _pod_sets_by_name(obj)
    for name, pods in keyed(listed(obj, "status", "reclaimablePods")).items():
        field, count = f"status.reclaimablePods[{name}]", number(pods, "count", 0)
        if name not in known:
            yield unsupported(f"{field}.name", name, known)
        elif count > (most := number(known[name], "count", 1)):
            yield invalid(f"{field}.count", count, f"should be less or equal to {most}")


def _check_states(obj: Object) -> Iterator[Problem]:
    known = _pod_sets_by_name(obj)
    for field, state in indexed("status.admissionChecks", listed(obj, "status", "admissionChecks")):
        for path, update in indexed(f"{field}.podSetUpdates", listed(state, "podSetUpdates")):
            name = update.get("name", "")
            if name not in known:
                yield unsupported(f"{path}.name", name, known)
            yield from names.labels(f"{path}.labels", mapping(update, "labels"))
            yield from names.annotations(f"{path}.annotations", mapping(update, "annotations"))
            yield from names.labels(f"{path}.nodeSelector", mapping(update, "nodeSelector"))
            yield from names.tolerations(f"{path}.tolerations", listed(update, "tolerations"))


def _clusters(obj: Object) -> Iterator[Problem]:
    status = mapping(obj, "status")
    if status.get("clusterName") and listed(status, "nominatedClusterNames"):
        yield invalid(
            "status.clusterName",
            status["clusterName"],
            "clusterName and nominatedClusterNames are mutually exclusive",
        )


# Updates -------------------------------------------------------------------------------------------


def workload_update(obj: Object, old: Object) -> Iterator[Problem]:
    """Check a change. Most fields are immutable while quota is reserved."""
    held, still = is_true(old, QUOTA_RESERVED), is_true(obj, QUOTA_RESERVED)
    if held:
        yield from _pod_sets_update(obj, old)
        yield from _reference_update(mapping(obj, "spec"), mapping(old, "spec"))
    if held and still:
        yield from _unchanged(obj, old, "queueName")
        yield from _reclaimable_update(obj, old)
    if is_true(old, ADMITTED) and is_true(obj, ADMITTED):
        yield from _unchanged(obj, old, "maximumExecutionTimeSeconds")
    yield from _admission_update(obj, old)
    yield from _check_states_update(obj, old)
    yield from _cluster_update(mapping(obj, "status"), mapping(old, "status"))


def _unchanged(obj: Object, old: Object, field: str) -> Iterator[Problem]:
    now = at(obj, "spec", field)
    if now != at(old, "spec", field):
        yield invalid(f"spec.{field}", now, f"{field} is immutable while workload quota reserved")


def _reference_update(spec: Object, old: Object) -> Iterator[Problem]:
    field = "spec.priorityClassRef"
    before, now = old.get("priorityClassRef"), spec.get("priorityClassRef")
    while_reserved = "is immutable while workload quota reserved"
    if (before is None) != (now is None):
        yield invalid(field, now, f"priorityClassRef {while_reserved}")
        return
    for part in ("group", "kind"):
        if at(before, part) != at(now, part):
            yield invalid(
                f"{field}.{part}", at(now, part), f"priorityClassRef.{part} {while_reserved}"
            )
    if at(now, "kind") == "PriorityClass" and at(before, "name") != at(now, "name"):
        yield invalid(
            f"{field}.name",
            at(now, "name"),
            f"priorityClassRef.name of a PriorityClass {while_reserved}",
        )


def _pod_sets_update(obj: Object, old: Object) -> Iterator[Problem]:
    before, now = listed(old, "spec", "podSets"), listed(obj, "spec", "podSets")
    if len(before) != len(now):
        yield invalid(_SPEC, len(now), IMMUTABLE)
        return
    for index, (was, is_) in enumerate(zip(before, now, strict=True)):
        if is_elastic(obj) and _is_scaled_down(was, is_):
            continue
        if not is_same(was, is_):
            yield invalid(f"{_SPEC}[{index}]", is_, IMMUTABLE)


def _is_scaled_down(was: Any, is_: Any) -> bool:
    if number(is_, "count", 1) > number(was, "count", 1):
        return False
    return is_same({**mapping(is_), "count": 0}, {**mapping(was), "count": 0})


def _admission_update(obj: Object, old: Object) -> Iterator[Problem]:
    """An admission is set and removed as a whole. Only the topology may be added later."""
    before, now = at(old, "status", "admission"), at(obj, "status", "admission")
    if before is None or now is None:
        return
    if is_same(_without_topology(before), _without_topology(now)):
        return
    yield invalid("status.admission", now, IMMUTABLE)


def _without_topology(admission: Object) -> Object:
    later = ("topologyAssignment", "delayedTopologyRequest")
    assignments = [
        {key: value for key, value in assigned.items() if key not in later}
        for _, assigned in indexed("", listed(admission, "podSetAssignments"))
    ]
    return {**mapping(admission), "podSetAssignments": assignments}


def _reclaimable_update(obj: Object, old: Object) -> Iterator[Problem]:
    shrunk = _shrunk(obj)
    now = keyed(listed(obj, "status", "reclaimablePods"))
    for name, pods in keyed(listed(old, "status", "reclaimablePods")).items():
        field, least = f"status.reclaimablePods[{name}]", number(pods, "count", 0)
        if name in shrunk:
            continue
        if name not in now:
            yield missing(field, "cannot be removed")
        elif (count := number(now[name], "count", 0)) < least:
            yield invalid(f"{field}.count", count, f"cannot be less than {least}")


def _shrunk(obj: Object) -> set[str]:
    """Return the pod sets of an elastic job that are smaller now than at admission."""
    if not is_elastic(obj):
        return set()
    sizes = {name: number(pods, "count", 1) for name, pods in _pod_sets_by_name(obj).items()}
    assigned = keyed(listed(obj, "status", "admission", "podSetAssignments"), default=MAIN)
    return {
        name for name, given in assigned.items() if number(given, "count", 0) > sizes.get(name, 0)
    }


def _check_states_update(obj: Object, old: Object) -> Iterator[Problem]:
    now = keyed(listed(obj, "status", "admissionChecks"))
    for field, was in indexed("status.admissionChecks", listed(old, "status", "admissionChecks")):
        state = now.get(str(was.get("name")), {})
        if was.get("state") == state.get("state") == "Ready":
            updates = listed(state, "podSetUpdates")
            if not is_same(updates, listed(was, "podSetUpdates")):
                yield invalid(f"{field}.podSetUpdates", updates, IMMUTABLE)


def _cluster_update(status: Object, old: Object) -> Iterator[Problem]:
    before, now = old.get("clusterName"), status.get("clusterName")
    if now is None or now == before:
        return
    if before is not None:
        yield invalid("status.clusterName", now, "clusterName is immutable once set")
    elif now not in listed(old, "nominatedClusterNames"):
        yield invalid(
            "status.clusterName",
            now,
            "when setting clusterName it must be one of the nominatedClusterNames",
        )
