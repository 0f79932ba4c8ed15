"""Ages and durations as kubectl prints them: two places at most, the coarser the older."""

from datetime import datetime
from typing import Final

UNKNOWN: Final = "<unknown>"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

_STEPS: Final = (
    # Below so many seconds: this unit, and the finer one beside it where one is shown.
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def duration(seconds: float) -> str:
    """Whole seconds, in the form of `HumanDuration` of apimachinery (`pkg/util/duration`)."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    for below, (unit, letter), finer in _STEPS:
        if whole >= below:
            continue
        text = f"{whole // unit}{letter}"
        if finer is not None and (rest := whole % unit // finer[0]):
            text += f"{rest}{finer[1]}"
        return text
    return f"{whole // _YEAR}y"


def instant(text: object) -> datetime | None:
    """A time as Kubernetes or a message of ours writes it; None for what is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def age(since: object, now: datetime) -> str:
    """How long ago that was."""
    at = instant(since)
    return UNKNOWN if at is None else duration((now - at).total_seconds())
