"""By which conditions an object has ended, if its document says nothing of it. Pure."""

from collections.abc import Sequence
from typing import Final

from shared.contracts.kube.kinds import Object

SUCCESS: Final = ("Complete", "Completed", "Succeeded")
FAILURE: Final = ("Failed",)
_DECISIVE: Final = (*SUCCESS, *FAILURE)


def has_ended(obj: Object, types: Sequence[str]) -> bool:
    """Whether a condition of these types is True."""
    return any(condition.get("status") == "True" for condition in _conditions(obj, types))


def decisive(obj: Object) -> Object | None:
    """The condition that reports the end: one that is True, else one that is False."""
    found = _conditions(obj, _DECISIVE)
    for status in ("True", "False"):
        for condition in found:
            if condition.get("status") == status:
                return condition
    return None


def _conditions(obj: Object, types: Sequence[str]) -> list[Object]:
    """The conditions of these types, in the order of `types`."""
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if not conditions or not isinstance(conditions, list):
        return []
    known = [c for c in conditions if isinstance(c, dict)]
    return [c for type_ in types for c in known if c.get("type") == type_]
