"""Holds the objects that a job's state depends on: queues, classes and ranges of one cluster. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from services.classifier.projection.pods.digest_cache import DigestCache
from shared.contracts.controllers import OWN_CONTROLLERS
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import (
    Body,
    annotations_of,
    as_body,
    labels_of,
    list_at,
    maps_at,
    spec_of,
)
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed

_Key = tuple[str | None, str]
"""Namespace (None: cluster-scoped) and name."""

_WATCHED: tuple[Kind, ...] = (
    kinds.NAMESPACE,
    kinds.ADMISSION_CHECK,
    kinds.CLUSTER_QUEUE,
    kinds.LOCAL_QUEUE,
    kinds.LIMIT_RANGE,
    kinds.RUNTIME_CLASS,
    kinds.PRIORITY_CLASS,
    kinds.WORKLOAD_PRIORITY_CLASS,
)


_KINDS: Final = {(kind.group, kind.plural): kind for kind in _WATCHED}

_QUEUES: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE)
_ANNOTATIONS: Final = (names.DEFAULT_PRIORITY, names.ON_PREEMPTION)
"""Annotations of queues that say something of the jobs in them."""

_LIMITS: Final = ("type", "max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_LIMITS_MAX: Final = 64
"""An API server takes one for each type."""

_FIELDS: Final[dict[Kind, tuple[str, ...]]] = {
    kinds.RUNTIME_CLASS: ("overhead",),
    kinds.PRIORITY_CLASS: ("value", "globalDefault"),
    kinds.WORKLOAD_PRIORITY_CLASS: ("value",),
}
_SPEC_FIELDS: Final[dict[Kind, tuple[str, ...]]] = {
    kinds.ADMISSION_CHECK: ("controllerName",),
    kinds.LOCAL_QUEUE: ("clusterQueue",),
}


@dataclass(slots=True)
class ClusterObjects:
    """What jobs depend on of each object of the watched kinds, for one cluster."""

    _objects: dict[tuple[str, str], dict[_Key, Body]] = field(
        default_factory=lambda: {(kind.group, kind.plural): {} for kind in _WATCHED}
    )
    pod_sets_cache: DigestCache = field(default_factory=DigestCache)
    """Resolved pod sets by namespace and raw pod sets. Every relevant change clears it."""

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """The kinds to observe."""
        return _WATCHED

    def observe(self, observed: Observed) -> bool:
        """Apply an observation. Returns whether a field changed that the state of a job depends on."""
        objects = self._objects.get((observed.group, observed.plural))
        if objects is None:
            return False
        key = (observed.namespace, observed.name)
        before = objects.get(key)
        body = observed.body
        if observed.deleted or body is None:
            objects.pop(key, None)
            changed = before is not None
        else:
            objects[key] = kept = _kept(_KINDS[observed.group, observed.plural], body)
            changed = before != kept
        if changed:
            self.pod_sets_cache.clear()
        return changed

    def covers(self, observed: Observed) -> bool:
        """Return whether the object is of a watched kind."""
        return (observed.group, observed.plural) in self._objects

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace; none if it is unknown."""
        return labels_of(self._of(kinds.NAMESPACE).get((None, name)))

    def local_queue(self, namespace: str, name: str) -> Body | None:
        """Return the LocalQueue `name`."""
        return self._of(kinds.LOCAL_QUEUE).get((namespace, name))

    def queue_annotation(self, namespace: str, name: str, key: str) -> str | None:
        """Return an annotation of the LocalQueue `name`, else of its ClusterQueue."""
        for queue in (self.local_queue(namespace, name), self._cluster_queue(namespace, name)):
            if (value := annotations_of(queue).get(key)) is not None:
                return value
        return None

    def admission_checks_of(self, namespace: str, name: str) -> set[str]:
        """Return the names of the AdmissionChecks of the ClusterQueue of LocalQueue `name`."""
        spec = spec_of(self._cluster_queue(namespace, name))
        return set(spec.get("admissionChecks") or ())

    def is_foreign_check(self, name: str) -> bool:
        """Return whether another controller answers the AdmissionCheck `name`; False if it is unknown."""
        check = self._of(kinds.ADMISSION_CHECK).get((None, name))
        return check is not None and spec_of(check).get("controllerName") not in OWN_CONTROLLERS

    def _cluster_queue(self, namespace: str, local_queue: str) -> Body | None:
        spec = spec_of(self.local_queue(namespace, local_queue))
        return self._of(kinds.CLUSTER_QUEUE).get((None, str(spec.get("clusterQueue") or "")))

    def limit_ranges(self, namespace: str) -> list[Body]:
        """Return the LimitRanges of a namespace by name; the first with a default wins."""
        ranges = self._of(kinds.LIMIT_RANGE)
        return [ranges[key] for key in sorted(ranges, key=lambda k: k[1]) if key[0] == namespace]

    def runtime_class(self, name: str) -> Body | None:
        """Return the RuntimeClass `name`."""
        return self._of(kinds.RUNTIME_CLASS).get((None, name))

    def workload_priority_class(self, name: str) -> Body | None:
        """Return the WorkloadPriorityClass `name`."""
        return self._of(kinds.WORKLOAD_PRIORITY_CLASS).get((None, name))

    def priority_class(self, name: str) -> Body | None:
        """Return the PriorityClass `name`."""
        return self._of(kinds.PRIORITY_CLASS).get((None, name))

    def global_default_priority_class(self) -> Body | None:
        """Return the PriorityClass with `globalDefault`; of several, the one of lowest value."""
        classes = self._of(kinds.PRIORITY_CLASS).values()
        defaults = [each for each in classes if each.get("globalDefault")]
        return min(defaults, key=lambda c: (c.get("value", 0), c["metadata"]["name"]), default=None)

    def _of(self, kind: Kind) -> dict[_Key, Body]:
        return self._objects[kind.group, kind.plural]


def _kept(kind: Kind, obj: Body) -> Body:
    """The fields that the state of a job depends on. Whatever else an object has costs no memory."""
    kept: dict[str, Any] = {"metadata": {"name": obj["metadata"]["name"]}}
    if kind == kinds.NAMESPACE:
        kept["metadata"]["labels"] = labels_of(obj)
    elif kind in _QUEUES:
        found = annotations_of(obj)
        kept["metadata"]["annotations"] = {key: found[key] for key in _ANNOTATIONS if key in found}
    fields: Mapping[str, Any] = obj
    kept |= {field: fields[field] for field in _FIELDS.get(kind, ()) if field in fields}
    spec = spec_of(obj)
    if kind == kinds.CLUSTER_QUEUE:
        kept["spec"] = {"admissionChecks": _check_names(spec)}
    elif kind == kinds.LIMIT_RANGE:
        kept["spec"] = {"limits": _limits(spec)}
    else:
        kept["spec"] = {field: spec[field] for field in _SPEC_FIELDS.get(kind, ()) if field in spec}
    return as_body(kept)


def _check_names(spec: Mapping[str, Any]) -> list[str]:
    """The AdmissionChecks of a ClusterQueue, of both versions."""
    listed = maps_at(spec, "admissionChecksStrategy", "admissionChecks")
    named = [str(each.get("name")) for each in listed]
    return [*named, *map(str, list_at(spec, "admissionChecks"))]


def _limits(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    limits = (item for item in list_at(spec, "limits")[:_LIMITS_MAX] if isinstance(item, dict))
    return [{field: item[field] for field in _LIMITS if field in item} for item in limits]
