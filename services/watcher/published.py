"""The objects that are on the log: a list is compared with them to find changes and deletions."""

from dataclasses import dataclass
from typing import NamedTuple

from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed, ObservedHeader


class ObjectName(NamedTuple):
    """An object of one kind."""

    namespace: str | None
    """None for cluster-scoped kinds."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedState:
    """The state of an object that was published last, or is about to be."""

    uid: str
    resource_version: str


class PublishedObjects:
    """The existing objects of one cluster, as far as they were published. Memory grows with their number."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._objects: dict[str, dict[ObjectName, PublishedState]] = {}
        """By kind."""

    def record(self, kind: Kind, state: ObservedHeader) -> None:
        """Record a state that was published, or is about to be."""
        objects = self._objects.setdefault(kind.detail, {})
        name = ObjectName(state.namespace, state.name)
        if state.deleted:
            objects.pop(name, None)
        elif state.version != kind.version:
            # Published in another version of the kind: it has to be published again.
            objects[name] = PublishedState(uid=state.uid, resource_version="")
        else:
            objects[name] = PublishedState(uid=state.uid, resource_version=state.resource_version)

    def doubt(self, kind: Kind, name: ObjectName) -> None:
        """Let an object be published again as it is then: its last message is unreadable."""
        known = self.state(kind, name)
        if known is not None:
            self._objects[kind.detail][name] = PublishedState(uid=known.uid, resource_version="")

    def state(self, kind: Kind, name: ObjectName) -> PublishedState | None:
        """The last state of an object; None if it does not exist."""
        return self._objects.get(kind.detail, {}).get(name)

    def names(self, kind: Kind, namespace: str | None) -> list[ObjectName]:
        """All objects of `kind`, in one namespace or in all (None), in the order of their recording."""
        objects = self._objects.get(kind.detail, {})
        return [name for name in objects if namespace is None or name.namespace == namespace]

    def tombstone(self, kind: Kind, name: ObjectName) -> Observed | None:
        """A tombstone without the object's last state, which is unknown; None if it does not exist."""
        known = self.state(kind, name)
        if known is None:
            return None
        return Observed(
            cluster=self._cluster,
            group=kind.group,
            version=kind.version,
            plural=kind.plural,
            kind=kind.kind,
            namespace=name.namespace,
            name=name.name,
            uid=known.uid,
            resource_version=known.resource_version,
            deleted=True,
        )

    def __len__(self) -> int:
        return sum(len(objects) for objects in self._objects.values())
