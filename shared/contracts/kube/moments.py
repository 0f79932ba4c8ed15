"""Times in messages. A writer may say any; readers compare them, add to them, and count their nanoseconds."""

from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator

UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = UNIX_EPOCH
LATEST: Final = datetime(2262, 1, 1, tzinfo=UTC)
"""Nanoseconds since 1970 are counted in 63 bits."""


def _within(at: datetime) -> datetime:
    """The nearest time that clocks count; one without a zone is in UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    if EARLIEST.year < at.year < LATEST.year - 1:
        return at
    return min(max(at, EARLIEST), LATEST)


Moment = Annotated[datetime, AfterValidator(_within)]
"""A time in a message, between `EARLIEST` and `LATEST`, with a zone."""
