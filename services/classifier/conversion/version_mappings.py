"""The fields that `v1beta1` and `v1beta2` spell differently, kind by kind.

Each function changes an object in place. It drops a field that the other version does not have; `convert`
keeps its value. A malformed part stays as it is, and validation refuses it later.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, Final

from shared.contracts.kube.bodies import map_at, maps_at
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import PRIORITY_CLASS_SOURCES

_SOURCES: Final = {class_: source for source, class_ in PRIORITY_CLASS_SOURCES.items()}
_DOMAINS_MAX: Final = 100_000
_LEVEL_MAX: Final = 63

ANY: Final = "*"
"""In a path of `INEXPRESSIBLE`: any item of a list."""


def _rename(part: Object, old: str, new: str) -> None:
    if old in part and new not in part:
        part[new] = part.pop(old)


# ClusterQueue, Cohort, LocalQueue ----------------------------------------------------------------


def _cluster_queue_to_v1beta2(obj: Object) -> None:
    spec = map_at(obj, "spec")
    _rename(spec, "cohort", "cohortName")
    checks = spec.get("admissionChecks")
    if isinstance(checks, list):
        del spec["admissionChecks"]
        if checks:
            rules = [{"name": name} for name in checks]
            spec["admissionChecksStrategy"] = {"admissionChecks": rules}
    fungibility = map_at(spec, "flavorFungibility")
    for field, older in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        if fungibility.get(field) == older:
            fungibility[field] = "MayStopSearch"
    map_at(obj, "status").pop("pendingWorkloadsStatus", None)
    map_at(obj, "status", "fairSharing").pop("admissionFairSharingStatus", None)


def _cluster_queue_to_v1beta1(obj: Object) -> None:
    spec = map_at(obj, "spec")
    _rename(spec, "cohortName", "cohort")
    spec.pop("concurrentAdmissionPolicy", None)


def _cohort_to_v1beta2(obj: Object) -> None:
    _rename(map_at(obj, "spec"), "parent", "parentName")  # spelling of manifests older than v1beta1
    map_at(obj, "status", "fairSharing").pop("admissionFairSharingStatus", None)


def _local_queue_to_v1beta2(obj: Object) -> None:
    status = map_at(obj, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)


def _local_queue_to_v1beta1(obj: Object) -> None:
    _rename(map_at(obj, "status"), "flavorsUsage", "flavorUsage")


# Checks and clusters -----------------------------------------------------------------------------


def _admission_check_to_v1beta2(obj: Object) -> None:
    map_at(obj, "spec").pop("retryDelayMinutes", None)


def _config_to_v1beta1(obj: Object) -> None:
    map_at(obj, "spec").pop("quotaManagement", None)


def _cluster_to_v1beta2(obj: Object) -> None:
    spec = map_at(obj, "spec")
    source = {
        field: spec.pop(field) for field in ("kubeConfig", "clusterProfileRef") if field in spec
    }
    if source and "clusterSource" not in spec:
        spec["clusterSource"] = source


def _cluster_to_v1beta1(obj: Object) -> None:
    spec = map_at(obj, "spec")
    source = spec.get("clusterSource")
    if isinstance(source, dict):
        spec.update(spec.pop("clusterSource"))


# Workload ----------------------------------------------------------------------------------------


def _workload_to_v1beta2(obj: Object) -> None:
    spec = map_at(obj, "spec")
    name, source = spec.pop("priorityClassName", None), spec.pop("priorityClassSource", None)
    if name and source in PRIORITY_CLASS_SOURCES:
        group, kind = PRIORITY_CLASS_SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    _rename(
        map_at(obj, "status"),
        "accumulatedPastExexcutionTimeSeconds",
        "accumulatedPastExecutionTimeSeconds",
    )
    for assignment in maps_at(obj, "status", "admission", "podSetAssignments"):
        placed = map_at(assignment, "topologyAssignment")
        if isinstance(placed.get("domains"), list):
            placed["slices"] = _slices(placed.get("levels"), placed.pop("domains"))


def _workload_to_v1beta1(obj: Object) -> None:
    spec, status = map_at(obj, "spec"), map_at(obj, "status")
    spec.pop("preemptionGates", None)
    status.pop("preemptionGates", None)
    reference = spec.get("priorityClassRef")
    if isinstance(reference, dict):
        source = _SOURCES.get((str(reference.get("group")), str(reference.get("kind"))))
        if source is not None:
            del spec["priorityClassRef"]
            spec["priorityClassName"] = reference.get("name")
            spec["priorityClassSource"] = source
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    for pods in maps_at(obj, "spec", "podSets"):
        map_at(pods, "topologyRequest").pop("podsetSliceRequiredTopologyConstraints", None)
    for assignment in maps_at(obj, "status", "admission", "podSetAssignments"):
        placed = map_at(assignment, "topologyAssignment")
        if isinstance(placed.get("slices"), list):
            placed["domains"] = domains(placed.pop("slices"))


def _slices(levels: Any, domains_: list[Any]) -> list[Object]:
    """Return topology domains as `v1beta2` has them: level by level, common parts once."""
    depth = len(levels) if isinstance(levels, list) else 0
    slices_ = []
    for start in range(0, len(domains_), _DOMAINS_MAX):
        chunk = [map_at(domain) for domain in domains_[start : start + _DOMAINS_MAX]]
        counts = [domain.get("count") for domain in chunk]
        same = all(count == counts[0] for count in counts)
        slices_.append(
            {
                "domainCount": len(chunk),
                "podCounts": {"universal": counts[0]} if same else {"individual": counts},
                "valuesPerLevel": [
                    _compressed([str(_value_at(domain.get("values"), level)) for domain in chunk])
                    for level in range(depth)
                ],
            }
        )
    return slices_


def _value_at(values: Any, level: int) -> Any:
    return values[level] if isinstance(values, list) and level < len(values) else ""


def _compressed(values: list[str]) -> Object:
    if all(value == values[0] for value in values):
        return {"universal": values[0]}
    prefix = _common_prefix(values)
    rest = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([value[::-1] for value in rest])[::-1]
    individual: Object = {"roots": [value[: len(value) - len(suffix)] for value in rest]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_prefix(values: list[str]) -> str:
    # A common prefix of the smallest and the largest string is common to all.
    pairs = zip(min(values), max(values), strict=False)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))[:_LEVEL_MAX]


def domains(found: list[Any]) -> list[Object]:
    """Return the topology domains of all slices one by one, as `v1beta1` has them."""
    domains_ = []
    for slice_ in map(map_at, found):
        levels = [map_at(level) for level in slice_.get("valuesPerLevel") or ()]
        counts = map_at(slice_.get("podCounts"))
        number = slice_.get("domainCount")
        for index in range(number if isinstance(number, int) else 0):
            count = counts.get("universal", _value_at(counts.get("individual"), index))
            values = [_level_value(level, index) for level in levels]
            domains_.append({"values": values, "count": count})
            if len(domains_) > _DOMAINS_MAX:
                return domains_
    return domains_


def _level_value(level: Object, index: int) -> str:
    if "universal" in level:
        return str(level["universal"])
    names = map_at(level.get("individual"))
    root = _value_at(names.get("roots"), index)
    return f"{names.get('prefix', '')}{root}{names.get('suffix', '')}"


Rewrite = Callable[[Object], None]

TO_V1BETA2: Final[Mapping[str, Rewrite]] = {
    "ClusterQueue": _cluster_queue_to_v1beta2,
    "Cohort": _cohort_to_v1beta2,
    "LocalQueue": _local_queue_to_v1beta2,
    "AdmissionCheck": _admission_check_to_v1beta2,
    "MultiKueueCluster": _cluster_to_v1beta2,
    "Workload": _workload_to_v1beta2,
}
"""From `v1beta1` to `v1beta2`, by kind."""

TO_V1BETA1: Final[Mapping[str, Rewrite]] = {
    "ClusterQueue": _cluster_queue_to_v1beta1,
    "LocalQueue": _local_queue_to_v1beta1,
    "MultiKueueConfig": _config_to_v1beta1,
    "MultiKueueCluster": _cluster_to_v1beta1,
    "Workload": _workload_to_v1beta1,
}
"""From `v1beta2` to `v1beta1`, by kind."""

_ASSIGNMENTS: Final = ("status", "admission", "podSetAssignments", ANY, "topologyAssignment")

INEXPRESSIBLE: Final[Mapping[tuple[str, str], tuple[tuple[tuple[str, ...], ...], ...]]] = {
    ("ClusterQueue", "v1beta1"): (
        # One group: the original list must not overrule a strategy that somebody edited since.
        (("spec", "admissionChecks"), ("spec", "admissionChecksStrategy")),
        (("spec", "flavorFungibility", "whenCanBorrow"),),
        (("spec", "flavorFungibility", "whenCanPreempt"),),
        (("status", "pendingWorkloadsStatus"),),
        (("status", "fairSharing", "admissionFairSharingStatus"),),
    ),
    ("ClusterQueue", "v1beta2"): ((("spec", "concurrentAdmissionPolicy"),),),
    ("Cohort", "v1beta1"): (
        (("spec", "parent"), ("spec", "parentName")),
        (("status", "fairSharing", "admissionFairSharingStatus"),),
    ),
    ("LocalQueue", "v1beta1"): ((("status", "flavors"),),),
    ("AdmissionCheck", "v1beta1"): ((("spec", "retryDelayMinutes"),),),
    ("MultiKueueConfig", "v1beta2"): ((("spec", "quotaManagement"),),),
    ("Workload", "v1beta1"): ((("spec", "priorityClassName"), ("spec", "priorityClassSource")),),
    ("Workload", "v1beta2"): (
        (("spec", "preemptionGates"),),
        (("status", "preemptionGates"),),
        (
            (
                *("spec", "podSets", ANY, "topologyRequest"),
                "podsetSliceRequiredTopologyConstraints",
            ),
        ),
        ((*_ASSIGNMENTS, "slices"),),
    ),
}
"""Kind and version to the fields that only this version can express.

The fields of one inner tuple are restored together or not at all. No other field is ever restored, so that a
user who may annotate an object cannot change its status this way.
"""
