"""What the doctor says."""

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    where: str
    """What it is about, for instance ``ClusterQueue team``."""

    problem: str
    advice: str
    """What to do about it."""

    wrong: bool = True
    """False: somebody may have meant it so."""
