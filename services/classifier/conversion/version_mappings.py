"""What `v1beta1` and `v1beta2` say in different words, kind by kind.

Each function changes an object in place. What the other version has no words for is dropped here;
`conversion` keeps it. A malformed part is passed on as it is: whoever reads it next refuses it.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Final

from shared.contracts.kube.kinds import Object

__all__ = ["NEWER", "OLDER", "UNSAID", "domains", "slices"]

_CLASSES: Final = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCES: Final = {reference: source for source, reference in _CLASSES.items()}
_DOMAINS_MAX: Final = 100_000
_LEVEL_MAX: Final = 63

ANY: Final = "*"
"""In a path of `UNSAID`: any item of a list."""


def _part(obj: Object, *path: str) -> Object:
    """The mapping at `path`; a detached empty one where there is none."""
    node: Any = obj
    for step in path:
        node = node.get(step)
        if not isinstance(node, dict):
            return {}
    return dict_of(node)


def dict_of(value: Any) -> Object:
    """`value` if it is a mapping, else a detached empty one."""
    return value if isinstance(value, dict) else {}


def _items(obj: Object, *path: str) -> Iterator[Object]:
    """The mappings in the list at `path`."""
    found = _part(obj, *path[:-1]).get(path[-1])
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict):
            yield item


def _rename(part: Object, old: str, new: str) -> None:
    if old in part and new not in part:
        part[new] = part.pop(old)


# ClusterQueue, Cohort, LocalQueue ----------------------------------------------------------------


def _newer_cluster_queue(obj: Object) -> None:
    spec = _part(obj, "spec")
    _rename(spec, "cohort", "cohortName")
    checks = spec.get("admissionChecks")
    if isinstance(checks, list):
        del spec["admissionChecks"]
        if checks:
            rules = [{"name": name} for name in checks]
            spec["admissionChecksStrategy"] = {"admissionChecks": rules}
    words = _part(spec, "flavorFungibility")
    for field, older in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        if words.get(field) == older:
            words[field] = "MayStopSearch"
    _part(obj, "status").pop("pendingWorkloadsStatus", None)
    _part(obj, "status", "fairSharing").pop("admissionFairSharingStatus", None)


def _older_cluster_queue(obj: Object) -> None:
    spec = _part(obj, "spec")
    _rename(spec, "cohortName", "cohort")
    spec.pop("concurrentAdmissionPolicy", None)


def _newer_cohort(obj: Object) -> None:
    _rename(_part(obj, "spec"), "parent", "parentName")  # manifests older than v1beta1 say so
    _part(obj, "status", "fairSharing").pop("admissionFairSharingStatus", None)


def _newer_local_queue(obj: Object) -> None:
    status = _part(obj, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)


def _older_local_queue(obj: Object) -> None:
    _rename(_part(obj, "status"), "flavorsUsage", "flavorUsage")


# Checks and clusters -----------------------------------------------------------------------------


def _newer_admission_check(obj: Object) -> None:
    _part(obj, "spec").pop("retryDelayMinutes", None)


def _older_config(obj: Object) -> None:
    _part(obj, "spec").pop("quotaManagement", None)


def _newer_cluster(obj: Object) -> None:
    spec = _part(obj, "spec")
    source = {
        field: spec.pop(field) for field in ("kubeConfig", "clusterProfileRef") if field in spec
    }
    if source and "clusterSource" not in spec:
        spec["clusterSource"] = source


def _older_cluster(obj: Object) -> None:
    spec = _part(obj, "spec")
    source = spec.get("clusterSource")
    if isinstance(source, dict):
        spec.update(spec.pop("clusterSource"))


# Workload ----------------------------------------------------------------------------------------


def _newer_workload(obj: Object) -> None:
    spec = _part(obj, "spec")
    name, source = spec.pop("priorityClassName", None), spec.pop("priorityClassSource", None)
    if name and source in _CLASSES:
        group, kind = _CLASSES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    _rename(
        _part(obj, "status"),
        "accumulatedPastExexcutionTimeSeconds",
        "accumulatedPastExecutionTimeSeconds",
    )
    for assignment in _items(obj, "status", "admission", "podSetAssignments"):
        placed = _part(assignment, "topologyAssignment")
        if isinstance(placed.get("domains"), list):
            placed["slices"] = slices(placed.get("levels"), placed.pop("domains"))


def _older_workload(obj: Object) -> None:
    spec, status = _part(obj, "spec"), _part(obj, "status")
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
    for pods in _items(obj, "spec", "podSets"):
        _part(pods, "topologyRequest").pop("podsetSliceRequiredTopologyConstraints", None)
    for assignment in _items(obj, "status", "admission", "podSetAssignments"):
        placed = _part(assignment, "topologyAssignment")
        if isinstance(placed.get("slices"), list):
            placed["domains"] = domains(placed.pop("slices"))


def slices(levels: Any, places: list[Any]) -> list[Object]:
    """Places as `v1beta2` writes them: what they have in common once, level by level."""
    depth = len(levels) if isinstance(levels, list) else 0
    made = []
    for start in range(0, len(places), _DOMAINS_MAX):
        some = [dict_of(place) for place in places[start : start + _DOMAINS_MAX]]
        counts = [place.get("count") for place in some]
        same = all(count == counts[0] for count in counts)
        made.append(
            {
                "domainCount": len(some),
                "podCounts": {"universal": counts[0]} if same else {"individual": counts},
                "valuesPerLevel": [
                    _common([str(_at(place.get("values"), level)) for place in some])
                    for level in range(depth)
                ],
            }
        )
    return made


def _at(values: Any, level: int) -> Any:
    return values[level] if isinstance(values, list) and level < len(values) else ""


def _common(values: list[str]) -> Object:
    if all(value == values[0] for value in values):
        return {"universal": values[0]}
    prefix = _shared_start(values)
    rest = [value[len(prefix) :] for value in values]
    suffix = _shared_start([value[::-1] for value in rest])[::-1]
    individual: Object = {"roots": [value[: len(value) - len(suffix)] for value in rest]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _shared_start(values: list[str]) -> str:
    # What the first and the last in order share, all between them share too.
    pairs = zip(min(values), max(values), strict=False)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))[:_LEVEL_MAX]


def domains(found: list[Any]) -> list[Object]:
    """The places of all slices, each by itself, as `v1beta1` writes them."""
    places = []
    for one in map(dict_of, found):
        levels = [dict_of(level) for level in one.get("valuesPerLevel") or ()]
        counts = dict_of(one.get("podCounts"))
        number = one.get("domainCount")
        for index in range(number if isinstance(number, int) else 0):
            count = counts.get("universal", _at(counts.get("individual"), index))
            values = [_value(level, index) for level in levels]
            places.append({"values": values, "count": count})
            if len(places) > _DOMAINS_MAX:
                return places
    return places


def _value(level: Object, index: int) -> str:
    if "universal" in level:
        return str(level["universal"])
    names = dict_of(level.get("individual"))
    root = _at(names.get("roots"), index)
    return f"{names.get('prefix', '')}{root}{names.get('suffix', '')}"


Rewrite = Callable[[Object], None]

NEWER: Final[Mapping[str, Rewrite]] = {
    "ClusterQueue": _newer_cluster_queue,
    "Cohort": _newer_cohort,
    "LocalQueue": _newer_local_queue,
    "AdmissionCheck": _newer_admission_check,
    "MultiKueueCluster": _newer_cluster,
    "Workload": _newer_workload,
}
"""From `v1beta1` to `v1beta2`, by kind."""

OLDER: Final[Mapping[str, Rewrite]] = {
    "ClusterQueue": _older_cluster_queue,
    "LocalQueue": _older_local_queue,
    "MultiKueueConfig": _older_config,
    "MultiKueueCluster": _older_cluster,
    "Workload": _older_workload,
}
"""From `v1beta2` to `v1beta1`, by kind."""

_ASSIGNMENTS: Final = ("status", "admission", "podSetAssignments", ANY, "topologyAssignment")

UNSAID: Final[Mapping[tuple[str, str], tuple[tuple[tuple[str, ...], ...], ...]]] = {
    ("ClusterQueue", "v1beta1"): (
        # Together: a strategy that was edited is not overruled by the list that it came from.
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
"""Fields of a kind that the other version cannot say as they are, by kind and the version that can.

Those of one inner tuple come back together or not at all. Nothing else ever comes back: a person
who may annotate an object must not change its status so.
"""
