"""Conditions of a status: the only module that reads and writes them.

A condition says one thing about an object: type, status (`True`, `False`, `Unknown`), reason, message,
and since when the status is what it is. Readers take any object, also one without a status, and leave
out what has not the form of a condition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NotRequired, TypedDict, cast

from shared.contracts.kube.ages import instant

ACTIVE: Final = "Active"
"""Of queues, checks, clusters and integrations: whether they can be used."""

ADMITTED: Final = "Admitted"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
EVICTED: Final = "Evicted"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"
PREEMPTED: Final = "Preempted"
QUOTA_RESERVED: Final = "QuotaReserved"
REQUEUED: Final = "Requeued"
REPLACEMENT: Final = "WaitingForReplacementPods"
"""Of Workloads, as Kueue names them."""

TERMINATION_TARGET: Final = "TerminationTarget"
"""Of a pod: why it is deleted, as Kueue has it (kubernetes-sigs/kueue pkg/controller/jobs/pod)."""

EXCEEDS_ADMISSION: Final = "ExceedsAdmission"
"""Of a pod of a group: it asks for more than its group was admitted with, and stays at its gate."""

SUCCEEDED: Final = "Succeeded"
"""Of Tekton's runs: `Unknown` until they have ended."""

_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
"""As `metav1.Condition` has it: an API server refuses a condition with any other reason."""

MESSAGE_MAX: Final = 32_768
"""Characters that Kubernetes takes in the message of a condition."""


class Condition(TypedDict):
    """An entry of `status.conditions`."""

    type: str
    status: str
    """`True`, `False` or `Unknown`."""

    reason: NotRequired[str]
    message: NotRequired[str]
    lastTransitionTime: NotRequired[str]
    observedGeneration: NotRequired[int]


def conditions_of(obj: Mapping[str, Any] | None) -> list[Condition]:
    """The conditions of an object, in their order; none where it has no status."""
    return cast("list[Condition]", [each for each in _listed(obj) if isinstance(each, dict)])


def conditions_by_type(obj: Mapping[str, Any] | None) -> dict[str, Condition]:
    """The conditions of an object by their type, of several of one type the last."""
    found = {
        each["type"]: each
        for each in _listed(obj)
        if isinstance(each, dict) and isinstance(each.get("type"), str)
    }
    return cast("dict[str, Condition]", found)


def _listed(obj: Mapping[str, Any] | None) -> list[Any]:
    status = obj.get("status") if obj else None
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return conditions if isinstance(conditions, list) else []


def find_condition(obj: Mapping[str, Any] | None, type_: str) -> Condition | None:
    """The first condition of that type; None where there is none."""
    for each in _listed(obj):
        if isinstance(each, dict) and each.get("type") == type_:
            return cast("Condition", each)
    return None


def is_true(obj: Mapping[str, Any] | None, *types: str) -> bool:
    """Whether a condition of one of these types is `True`."""
    for each in _listed(obj):
        if isinstance(each, dict) and each.get("status") == "True" and each.get("type") in types:
            return True
    return False


def has_status(obj: Mapping[str, Any] | None, type_: str, *statuses: str) -> bool:
    """Whether the condition of that type is there, with one of these statuses."""
    condition = find_condition(obj, type_)
    return condition is not None and condition.get("status") in statuses


def reason_of(condition: Condition | None) -> str:
    """Its reason; empty where there is none."""
    return str(condition.get("reason") or "") if condition is not None else ""


def message_of(condition: Condition | None) -> str:
    """Its message; empty where there is none."""
    return str(condition.get("message") or "") if condition is not None else ""


def transition_time(condition: Condition | None) -> datetime | None:
    """Since when its status is what it is; None where it does not say."""
    return instant(condition.get("lastTransitionTime")) if condition is not None else None


def timestamp(at: datetime) -> str:
    """A time as Kubernetes writes it (`metav1.Time`): whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class Conditions:
    """The conditions of one object, copied to be edited. `items` is what goes into the status."""

    at: datetime
    """When what is set happens."""

    generation: int
    """`metadata.generation` that the conditions speak of."""

    items: list[Condition] = field(default_factory=list)

    @classmethod
    def of(cls, obj: Mapping[str, Any], *, at: datetime) -> "Conditions":
        """Copy the conditions of `obj`."""
        generation = int(obj["metadata"].get("generation", 1))
        return cls(at=at, generation=generation, items=[c.copy() for c in conditions_of(obj)])

    def get(self, type_: str) -> Condition | None:
        """The condition of that type; None where there is none."""
        return next((c for c in self.items if c.get("type") == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether the condition of that type is `True`."""
        condition = self.get(type_)
        return condition is not None and condition.get("status") == "True"

    def set(
        self, type_: str, status: bool, reason: str, message: str, *, at: datetime | None = None
    ) -> None:
        """Set a condition. Its time of transition moves only with its status: to `at`, else `self.at`."""
        value = "True" if status else "False"
        new: Condition = {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message[:MESSAGE_MAX],
            "observedGeneration": self.generation,
            "lastTransitionTime": timestamp(at or self.at),
        }
        old = self.get(type_)
        if old is None:
            self.items.append(new)
            return
        if old.get("status") == value:
            new["lastTransitionTime"] = old.get("lastTransitionTime") or new["lastTransitionTime"]
        old.update(new)

    def remove(self, type_: str) -> None:
        """Remove the condition of that type."""
        self.items = [c for c in self.items if c.get("type") != type_]

    def clear(self, type_: str, reason: str) -> None:
        """Turn a condition that is `True` to `False`, keeping its message. No other is touched."""
        old = self.get(type_)
        if old is not None and old.get("status") == "True":
            self.set(type_, False, reason, f"Previously: {old.get('message', '')}")


def is_reason(text: str) -> bool:
    """Whether a condition may have this reason."""
    return _REASON.fullmatch(text) is not None


_FIELDS: Final = ("type", "status", "reason", "message", "lastTransitionTime")


def are_conditions(value: Any) -> bool:
    """Whether `value` may stand in `status.conditions`: whoever reads on relies on its types."""
    return value is None or (isinstance(value, list) and all(map(_is_condition, value)))


def _is_condition(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name) or "", str) for name in _FIELDS
    )
