"""What has been said about a cluster: the watcher's own view, to find what is new and what is gone."""

from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.base import Part, UndecodableError
from shared.contracts.messages.observed import Observed

__all__ = ["Known", "Ledger", "Mark"]


class Mark(Part):
    """As much of an `Observed` as it takes to tell one state from another."""

    group: str
    version: str
    plural: str
    kind: str
    namespace: str | None = None
    name: str
    uid: str
    resource_version: str
    deleted: bool = False

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read it from an encoded `Observed`, passing over the object, which is most of it."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise UndecodableError(Observed.type, error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state of an object that was said last, or is about to be."""

    uid: str
    resource_version: str


Name = tuple[str | None, str]
"""Namespace and name."""


class Ledger:
    """The objects that exist as far as has been said; no more of each than `Known`."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._objects: dict[str, dict[Name, Known]] = {}

    def note(self, kind: Kind, said: Observed | Mark) -> None:
        """`said` is what has been said now."""
        objects = self._objects.setdefault(kind.detail, {})
        name = (said.namespace, said.name)
        if said.deleted:
            objects.pop(name, None)
        else:
            objects[name] = Known(uid=said.uid, resource_version=said.resource_version)

    def known(self, kind: Kind, namespace: str | None, name: str) -> Known | None:
        """The object's last state, None where it does not exist."""
        return self._objects.get(kind.detail, {}).get((namespace, name))

    def names(self, kind: Kind, namespace: str | None) -> list[Name]:
        """All objects of `kind`, in one namespace or everywhere, in the order in which they came."""
        objects = self._objects.get(kind.detail, {})
        return [name for name in objects if namespace is None or name[0] == namespace]

    def gone(self, kind: Kind, name: Name) -> Observed | None:
        """A tombstone for what is known under `name`; its last state is not known any more."""
        known = self._objects.get(kind.detail, {}).get(name)
        if known is None:
            return None
        return Observed(
            cluster=self._cluster,
            group=kind.group,
            version=kind.version,
            plural=kind.plural,
            kind=kind.kind,
            namespace=name[0],
            name=name[1],
            uid=known.uid,
            resource_version=known.resource_version,
            deleted=True,
        )

    def __len__(self) -> int:
        return sum(len(objects) for objects in self._objects.values())
