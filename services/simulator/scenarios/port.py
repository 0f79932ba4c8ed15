"""What a scenario is."""

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Scenario", "Verdict"]


@dataclass(slots=True, kw_only=True)
class Verdict:
    """How one world ended."""

    seed: int
    problems: list[str] = field(default_factory=list)
    """What is wrong, in sentences; none: all is well."""

    log: list[str] = field(default_factory=list)
    """What happened, oldest first. The same seed gives the same lines."""

    seconds: float = 0.0
    """Virtual time that passed."""

    steps: int = 0
    """Callbacks that ran."""


Scenario = Callable[[int], Verdict]
"""Plays the world of one seed to its end, in this process, without I/O."""
