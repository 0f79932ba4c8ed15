"""Conditions in a status, as apimachinery keeps them."""

from typing import Any

from services.simulator.cluster.kinds.registry import Obj


def condition(obj: Obj, type_: str) -> dict[str, Any] | None:
    """Return the condition of that type, or ``None``."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    found: dict[str, Any] | None = next((c for c in conditions if c.get("type") == type_), None)
    return found


def with_condition(
    obj: Obj, type_: str, status: str, reason: str, message: str, *, now: str
) -> list[dict[str, Any]]:
    """Return the object's conditions with this one set; its time moves only with its status."""
    old = condition(obj, type_)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
    new = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    others = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] != type_]
    return [*others, new]
