"""Stored objects and events; each is serialised once for each API version."""

from typing import Final, Literal

import orjson

from services.simulator.cluster.conversion import convert
from services.simulator.cluster.kinds.registry import Kind, Obj

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_PREFIX: Final = {
    type_: b'{"type":"' + type_.encode() + b'","object":'
    for type_ in ("ADDED", "MODIFIED", "DELETED")
}

PARTIAL: Final = "partial"
"""Key of the serialised metadata, beside the API versions."""

PARTIAL_HEAD: Final = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}


class Stored:
    """An object at one resource version. Never changed: an update makes a new one."""

    __slots__ = ("_raw", "kind", "name", "namespace", "obj", "version")

    def __init__(self, kind: Kind, obj: Obj, version: int) -> None:
        self.kind = kind
        self.obj = obj
        """In the storage version. All readers share it: never change it in place."""

        self.version = version
        metadata = obj["metadata"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self._raw: dict[str, bytes] = {}

    @property
    def uid(self) -> str:
        """The object's uid."""
        return str(self.obj["metadata"]["uid"])

    def raw(self, version: str | None = None) -> bytes:
        """Return the object as JSON in `version` of its kind; serialised only once."""
        version = version or self.kind.storage_version
        raw = self._raw.get(version)
        if raw is None:
            raw = self._raw[version] = orjson.dumps(convert(self.kind, self.obj, version))
        return raw

    def partial(self) -> bytes:
        """Return the object's metadata as a ``PartialObjectMetadata``."""
        raw = self._raw.get(PARTIAL)
        if raw is None:
            partial = {**PARTIAL_HEAD, "metadata": self.obj["metadata"]}
            raw = self._raw[PARTIAL] = orjson.dumps(partial)
        return raw

    def copy(self, version: str | None = None) -> Obj:
        """Return a copy that the caller may change."""
        copied: Obj = orjson.loads(self.raw(version))
        return copied


class Event:
    """One change, as watchers see it."""

    __slots__ = ("_as_deletion", "before", "stored", "type")

    def __init__(self, type_: EventType, stored: Stored, before: Stored | None) -> None:
        self.type: EventType = type_
        self.stored = stored
        """The object after the change; for a deletion its last state, under the deletion's version."""

        self.before = before
        """Before the change; ``None`` for a new object."""

        self._as_deletion: Event | None = None

    @property
    def version(self) -> int:
        """The resource version of the change."""
        return self.stored.version

    def as_deletion(self) -> "Event":
        """Return the DELETED event for a watch whose selector no longer matches the object.

        The object is shown as it was when it last matched, under this change's version.
        """
        if self._as_deletion is None:
            assert self.before is not None, "what leaves a selection was in it before"
            metadata = self.before.obj["metadata"] | {"resourceVersion": str(self.version)}
            last = Stored(self.stored.kind, {**self.before.obj, "metadata": metadata}, self.version)
            self._as_deletion = Event("DELETED", last, self.before)
        return self._as_deletion

    def line(self, type_: EventType, version: str | None = None) -> bytes:
        """Return the line of a watch response for this object and event type."""
        return _PREFIX[type_] + self.stored.raw(version) + b"}\n"

    def partial_line(self, type_: EventType) -> bytes:
        """Return the watch line with the object's metadata only."""
        return _PREFIX[type_] + self.stored.partial() + b"}\n"
