"""By which conditions an object has ended, if its document says nothing of it. Pure."""

from typing import Final

from shared.contracts.kube.conditions import Condition, conditions_of, message_of, reason_of
from shared.contracts.kube.kinds import Object

SUCCESS: Final = ("Complete", "Completed", "Succeeded")
FAILURE: Final = ("Failed",)
_DECISIVE: Final = (*SUCCESS, *FAILURE)


def message_and_time(obj: Object) -> tuple[str, str | None]:
    """What the condition that reports the end says of it, and since when; nothing without one.

    The time is as its controller wrote it, maybe without a zone.
    """
    condition = _decisive(obj)
    since = None if condition is None else condition.get("lastTransitionTime")
    return message_of(condition) or reason_of(condition), since


def _decisive(obj: Object) -> Condition | None:
    """The condition that reports the end: one that is True, else one that is False."""
    known = conditions_of(obj)
    found = [each for type_ in _DECISIVE for each in known if each.get("type") == type_]
    for status in ("True", "False"):
        for condition in found:
            if condition.get("status") == status:
                return condition
    return None
