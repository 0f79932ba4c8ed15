"""Holds the objects that a job's state depends on: queues, classes and ranges of one cluster. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.classifier.projection.pods.digest_cache import DigestCache
from shared.contracts.controllers import OWN_CONTROLLERS
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of
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


@dataclass(slots=True)
class ClusterObjects:
    """The latest state of each object of the watched kinds, for one cluster."""

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
            objects[key] = body
            changed = before is None or _relevant(before) != _relevant(body)
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
        strategy = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or []
        listed = [str(check.get("name")) for check in strategy]
        return {*listed, *map(str, spec.get("admissionChecks") or ())}

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


def _relevant(obj: Body) -> dict[str, object]:
    """Return the fields that a job's state depends on: not a queue's status, which changes often."""
    if obj.get("kind") in {kinds.CLUSTER_QUEUE.kind, kinds.LOCAL_QUEUE.kind}:
        annotations = obj["metadata"].get("annotations")
        return {"annotations": annotations, "queue": spec_of(obj).get("clusterQueue")}
    if obj.get("kind") == kinds.ADMISSION_CHECK.kind:
        return {"controller": spec_of(obj).get("controllerName")}
    if obj.get("kind") == kinds.NAMESPACE.kind:
        return {"labels": obj["metadata"].get("labels")}
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
