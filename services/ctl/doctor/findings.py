"""The result of an examination."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, and what to do about it."""

    where: str
    """The object, for instance ``ClusterQueue team``."""

    problem: str
    advice: str
    """What to do about it."""

    wrong: bool = True
    """False if it may be intended, or concerns only the author of one job: the system is healthy."""
