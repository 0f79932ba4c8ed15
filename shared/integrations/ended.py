"""By which conditions an object has ended, if its document says nothing of it. Pure."""

from typing import Final

from shared.contracts.kube.conditions import Condition, conditions_of
from shared.contracts.kube.kinds import Object

SUCCESS: Final = ("Complete", "Completed", "Succeeded")
FAILURE: Final = ("Failed",)
_DECISIVE: Final = (*SUCCESS, *FAILURE)


def decisive(obj: Object) -> Condition | None:
    """The condition that reports the end: one that is True, else one that is False."""
    known = conditions_of(obj)
    found = [each for type_ in _DECISIVE for each in known if each.get("type") == type_]
    for status in ("True", "False"):
        for condition in found:
            if condition.get("status") == status:
                return condition
    return None
