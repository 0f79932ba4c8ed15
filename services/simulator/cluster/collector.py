"""Garbage collection: deletes objects whose owners are gone."""

from collections.abc import Callable
from typing import Final

from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.store import Store
from services.simulator.cluster.storage.stored import Event, Stored
from shared.contracts.kube.names import FOREGROUND_DELETION

__all__ = ["FOREGROUND_DELETION", "ORPHAN", "Collector"]

ORPHAN: Final = "orphan"
"""The finalizers that the API server sets for these two ways of deleting."""


def _owners(obj: Obj) -> list[Obj]:
    owners: list[Obj] = obj["metadata"].get("ownerReferences") or []
    return owners


class Collector:
    """Deletes dependents of deleted owners, within the write that deletes the owner.

    The real collector is a controller and acts a moment later; acting at once is one legal order.
    """

    def __init__(self, store: Store, delete: Callable[[Stored, str], None]) -> None:
        """`delete` gets the object and the propagation policy for its own dependents."""
        self._store = store
        self._delete = delete
        self._dependents: dict[str, dict[str, None]] = {}
        """Uids of the dependents of each owner uid, in order of appearance."""

        store.subscribe(None, self._on_event)

    def dependents(self, uid: str) -> list[Stored]:
        """The stored objects that name `uid` as an owner."""
        found = (self._store.by_uid(child) for child in self._dependents.get(uid, ()))
        return [stored for stored in found if stored is not None]

    def _on_event(self, event: Event) -> None:
        stored = event.stored
        if event.before is not None:
            for owner in _owners(event.before.obj):
                children = self._dependents.get(owner["uid"], {})
                children.pop(stored.uid, None)
                if not children:
                    self._dependents.pop(owner["uid"], None)
        if event.type == "DELETED":
            self._owner_gone(stored)
            for owner in _owners(stored.obj):
                self._settle(owner["uid"])
            return
        for owner in _owners(stored.obj):
            self._dependents.setdefault(owner["uid"], {})[stored.uid] = None
        if event.before is None:
            self._collect(stored)
        if "deletionTimestamp" in stored.obj["metadata"]:
            self._deleting(stored)

    def _collect(self, stored: Stored) -> None:
        """Delete `stored` if it had owners and none of them lives."""
        current = self._store.by_uid(stored.uid)
        if current is None:
            return
        owners = _owners(current.obj)
        living = [owner for owner in owners if self._store.by_uid(owner["uid"]) is not None]
        if not owners or len(living) == len(owners):
            return
        if living:
            self._set_owners(current, living)
        elif "deletionTimestamp" not in current.obj["metadata"]:
            self._delete(current, "Background")

    def _owner_gone(self, owner: Stored) -> None:
        for child in self.dependents(owner.uid):
            self._collect(child)

    def _deleting(self, owner: Stored) -> None:
        finalizers = owner.obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for child in self.dependents(owner.uid):
                kept = [entry for entry in _owners(child.obj) if entry["uid"] != owner.uid]
                self._set_owners(child, kept)
            self._drop_finalizer(owner.uid, ORPHAN)
        elif FOREGROUND_DELETION in finalizers:
            for child in self.dependents(owner.uid):
                if "deletionTimestamp" not in child.obj["metadata"]:
                    # Foreground deletion is recursive: pods go first, then their tasks, then the run.
                    self._delete(child, "Foreground")
            self._settle(owner.uid)

    def _settle(self, uid: str) -> None:
        """Remove an owner whose deletion waited only for its dependents."""
        owner = self._store.by_uid(uid)
        if owner is None or "deletionTimestamp" not in owner.obj["metadata"]:
            return
        if any(self._blocks(child, uid) for child in self.dependents(uid)):
            return
        self._drop_finalizer(uid, FOREGROUND_DELETION)

    @staticmethod
    def _blocks(child: Stored, uid: str) -> bool:
        return any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in _owners(child.obj)
        )

    def _drop_finalizer(self, uid: str, finalizer: str) -> None:
        owner = self._store.by_uid(uid)
        if owner is None:
            return
        metadata = owner.obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        if finalizer not in finalizers:
            return
        left = [entry for entry in finalizers if entry != finalizer]
        obj = {**owner.obj, "metadata": {**metadata, "finalizers": left}}
        if left:
            self._store.put(owner.kind, obj)
        else:
            del obj["metadata"]["finalizers"]
            self._store.remove(owner, obj)

    def _set_owners(self, child: Stored, owners: list[Obj]) -> None:
        metadata = {**child.obj["metadata"], "ownerReferences": owners}
        if not owners:
            del metadata["ownerReferences"]
        self._store.put(child.kind, {**child.obj, "metadata": metadata})
