"""Remembers which jobs name which controller. Pure.

A job that a waiting object's controller makes belongs to that object's workload. Its ownerReference is
not enough to say so, because its tenant may write one: the projector asks what the owner is, and asks
again when that changes.
"""

from typing import NamedTuple

from shared.contracts.messages.observed import Observed
from shared.contracts.refs import ObjectRef
from shared.integrations import Integration


class _Controlled(NamedTuple):
    observed: Observed
    integration: Integration


class Nesting:
    """The jobs of one cluster that name a controller, by the controller's uid."""

    def __init__(self) -> None:
        self._children: dict[str, dict[ObjectRef, _Controlled]] = {}
        self._controller_of: dict[ObjectRef, str] = {}
        self._covering: set[str] = set()
        """Uids of owners that cover what they control: managed, and with quota."""

        self._moved: set[str] = set()
        """Uids of jobs that were managed by themselves and then became nested: once, so that jobs that
        name each other in a circle come to rest."""

    def observe(
        self, job_ref: ObjectRef, controller: str, observed: Observed, integration: Integration
    ) -> None:
        """Record a job and the uid of the controller that it names; empty: it names none."""
        self.forget(job_ref)
        if controller and controller != observed.uid:
            self._controller_of[job_ref] = controller
            self._children.setdefault(controller, {})[job_ref] = _Controlled(observed, integration)

    def forget(self, job_ref: ObjectRef, uid: str | None = None) -> None:
        """Forget a job that is gone. `uid`: not if a later job of that name is there."""
        controller = self._controller_of.get(job_ref)
        if controller is None:
            return
        children = self._children[controller]
        if uid is not None and children[job_ref].observed.uid != uid:
            return
        del self._controller_of[job_ref]
        del children[job_ref]
        if uid is not None:
            self._moved.discard(uid)
        if not children:
            del self._children[controller]

    def may_move(self, uid: str) -> bool:
        """Whether a job that is managed by itself may become nested; true once."""
        if uid in self._moved:
            return False
        self._moved.add(uid)
        return True

    def changed_owner(self, uid: str, *, covers: bool | None) -> list[_Controlled]:
        """Record whether an owner covers its children; None: it is not managed, or gone.

        Returns the children to read again, none if nothing changed for them.
        """
        if uid not in self._children and covers is None:
            self._covering.discard(uid)
            return []
        before = uid in self._covering
        if covers:
            self._covering.add(uid)
        else:
            self._covering.discard(uid)
        return list(self._children.get(uid, {}).values()) if before != bool(covers) else []
