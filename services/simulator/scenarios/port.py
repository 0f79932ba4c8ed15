"""The interface of a scenario."""

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Scenario", "Verdict"]


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The outcome of one world."""

    seed: int
    problems: list[str] = field(default_factory=list)
    """Sentences that say what is wrong; empty if all is well."""

    log: list[str] = field(default_factory=list)
    """What happened, oldest first. The same seed gives the same lines."""

    seconds: float = 0.0
    """Virtual seconds that passed."""

    steps: int = 0
    """Number of callbacks that ran."""


Scenario = Callable[[int], Verdict]
"""Runs the world of one seed to its end, in this process, without I/O."""
