"""One object of a group, as far as the group has to know it. Pure."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of
from shared.contracts.kube.conditions import TERMINATION_TARGET, is_true
from shared.contracts.kube.numbers import whole_number
from shared.integrations.integration import Integration
from shared.integrations.registry import queue_of
from shared.integrations.shape import asked_by, role_hash

TOTAL_MAX: Final = 100_000
"""The most objects that a group may have: each of them is an object of the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What is known of one object. `version` is its resource version."""

    name: str
    uid: str
    role: str
    """Name of its pod set."""

    asks: str
    """Digest of what it asks for."""

    queue: str
    total: int
    """How many objects its group has by its own word; 0 if that cannot be read."""

    version: int
    created: str
    gated: bool
    """It waits at its gate: it was never let go."""

    counts: bool
    """It has succeeded, or runs, or can run."""

    succeeded: bool
    ended: bool
    """Nothing of it runs any more, though it may have been let go."""

    ready: bool
    kept: bool
    """It has the finalizer by which it stays until its group has seen its end."""

    deleted: bool
    stopped: bool
    """It is deleted because its group lost its quota."""

    early: bool
    serving: bool
    final: bool

    @property
    def runs(self) -> bool:
        """True if it uses quota, or ends."""
        return not self.gated and not self.ended

    @property
    def waits(self) -> bool:
        """True if it is to be let go with its group."""
        return self.counts and self.gated

    def as_released(self, before: Self) -> Self:
        """Return the object as it counts in its group: as it was let go, whatever is written into it later.

        Only that it is not retriable may come: its user ends the group by that.
        """
        if before.gated or before.uid != self.uid:
            return self
        return replace(
            self,
            role=before.role,
            total=before.total,
            early=before.early,
            serving=before.serving,
            final=before.final or self.final,
        )


def group_of(obj: Body, integration: Integration) -> str:
    """Return the name of the object's group; empty if it is by itself."""
    spec = integration.group
    return "" if spec is None else labels_of(obj).get(spec.label, "")


def member_of(obj: Body, integration: Integration) -> Member:
    """Read an object of a kind that has groups."""
    spec = integration.group
    assert spec is not None
    metadata, annotations = obj["metadata"], annotations_of(obj)
    outcome = integration.succeeded(obj)
    deleted, gated = "deletionTimestamp" in metadata, integration.held(obj)
    # The API server gives no grace to what has no node, and the kubelet takes the rest of it away in the end.
    let_go = deleted and not metadata.get("deletionGracePeriodSeconds")
    return Member(
        name=metadata["name"],
        uid=metadata["uid"],
        role=annotations.get(spec.role) or role_hash(spec_of(obj)),
        asks=asked_by(spec_of(obj)),
        queue=queue_of(obj),
        total=_total(annotations.get(spec.total, "")),
        version=whole_number(str(metadata.get("resourceVersion", ""))) or 0,
        created=metadata.get("creationTimestamp", ""),
        gated=gated,
        counts=outcome is True or (outcome is None and not let_go),
        succeeded=outcome is True,
        ended=outcome is not None or (let_go and not gated),
        ready=integration.ready(obj) is True,
        kept=_has_finalizer(obj, integration),
        deleted=deleted,
        stopped=is_true(obj, TERMINATION_TARGET),
        early=annotations.get(spec.early or "") == "true",
        serving=annotations.get(spec.serving or "") == "true",
        final=annotations.get(spec.retriable or "") == "false",
    )


def _total(text: str) -> int:
    total = whole_number(text) or 0
    return total if total <= TOTAL_MAX else 0


def _has_finalizer(obj: Any, integration: Integration) -> bool:
    assert integration.gate is not None
    return integration.gate.finalizer in (obj["metadata"].get("finalizers") or ())
