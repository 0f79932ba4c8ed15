"""The clock of this machine, for what takes `now` as an argument."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
