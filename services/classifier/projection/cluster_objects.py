"""What a job's meaning depends on besides itself: classes, ranges, queues of its cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.observed import Observed

__all__ = ["Surroundings"]

_Key = tuple[str | None, str]

_WATCHED: tuple[Kind, ...] = (
    kinds.NAMESPACE,
    kinds.CLUSTER_QUEUE,
    kinds.LOCAL_QUEUE,
    kinds.LIMIT_RANGE,
    kinds.RUNTIME_CLASS,
    kinds.PRIORITY_CLASS,
    kinds.WORKLOAD_PRIORITY_CLASS,
)


@dataclass(slots=True)
class Surroundings:
    """The latest state of each object of the few kinds that matter, for one cluster."""

    _objects: dict[tuple[str, str], dict[_Key, Object]] = field(
        default_factory=lambda: {(kind.group, kind.plural): {} for kind in _WATCHED}
    )
    worked_out: dict[tuple[str, bytes], object] = field(default_factory=dict)
    """What was made of all this, by namespace and what it was made for. A change empties it."""

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """The kinds whose change may change what a job asks for."""
        return _WATCHED

    def take(self, observed: Observed) -> bool:
        """Take in an object; True if it changed in what matters here."""
        objects = self._objects.get((observed.group, observed.plural))
        if objects is None:
            return False
        key = (observed.namespace, observed.name)
        before = objects.get(key)
        if observed.deleted or observed.object is None:
            objects.pop(key, None)
            changed = before is not None
        else:
            objects[key] = observed.object
            changed = before is None or _means(before) != _means(observed.object)
        if changed:
            self.worked_out.clear()
        return changed

    def knows(self, observed: Observed) -> bool:
        """Whether it is of a kind that matters here."""
        return (observed.group, observed.plural) in self._objects

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none where it is not known."""
        found = self._of(kinds.NAMESPACE).get((None, name)) or {}
        return (found.get("metadata") or {}).get("labels") or {}

    def local_queue(self, namespace: str, name: str) -> Object | None:
        """The LocalQueue `name`."""
        return self._of(kinds.LOCAL_QUEUE).get((namespace, name))

    def queue_annotation(self, namespace: str, name: str, key: str) -> str | None:
        """An annotation of the LocalQueue `name`, else of the ClusterQueue that it leads to."""
        for queue in (self.local_queue(namespace, name) or {}, self._whole(namespace, name)):
            annotations = (queue.get("metadata") or {}).get("annotations") or {}
            if key in annotations:
                return str(annotations[key])
        return None

    def checks_of(self, namespace: str, name: str) -> set[str]:
        """The AdmissionChecks of the ClusterQueue that the LocalQueue `name` leads to."""
        spec = self._whole(namespace, name).get("spec") or {}
        strategy = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or []
        listed = [str(check.get("name")) for check in strategy]
        return {*listed, *map(str, spec.get("admissionChecks") or ())}

    def _whole(self, namespace: str, name: str) -> Object:
        local = self.local_queue(namespace, name) or {}
        whole = str((local.get("spec") or {}).get("clusterQueue") or "")
        return self._of(kinds.CLUSTER_QUEUE).get((None, whole)) or {}

    def limit_ranges(self, namespace: str) -> list[Object]:
        """All LimitRanges of a namespace, in order of name: the first to give a default wins."""
        found = self._objects[kinds.LIMIT_RANGE.group, kinds.LIMIT_RANGE.plural]
        return [found[key] for key in sorted(found, key=lambda k: k[1]) if key[0] == namespace]

    def runtime_class(self, name: str) -> Object | None:
        """The RuntimeClass `name`."""
        return self._of(kinds.RUNTIME_CLASS).get((None, name))

    def workload_priority_class(self, name: str) -> Object | None:
        """The WorkloadPriorityClass `name`."""
        return self._of(kinds.WORKLOAD_PRIORITY_CLASS).get((None, name))

    def priority_class(self, name: str) -> Object | None:
        """The PriorityClass `name`."""
        return self._of(kinds.PRIORITY_CLASS).get((None, name))

    def default_priority_class(self) -> Object | None:
        """The PriorityClass with `globalDefault`; of several, the one of lowest value."""
        defaults = [c for c in self._each(kinds.PRIORITY_CLASS) if c.get("globalDefault")]
        return min(defaults, key=lambda c: (c.get("value", 0), c["metadata"]["name"]), default=None)

    def _of(self, kind: Kind) -> dict[_Key, Object]:
        return self._objects[kind.group, kind.plural]

    def _each(self, kind: Kind) -> Iterator[Object]:
        return iter(self._of(kind).values())


def _means(obj: Object) -> Object:
    """What of an object may change a job's meaning: a queue's status changes every second."""
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    if obj.get("kind") in {kinds.CLUSTER_QUEUE.kind, kinds.LOCAL_QUEUE.kind}:
        return {"annotations": metadata.get("annotations"), "queue": spec.get("clusterQueue")}
    if obj.get("kind") == kinds.NAMESPACE.kind:
        return {"labels": metadata.get("labels")}
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
