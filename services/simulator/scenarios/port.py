"""The interface of a scenario."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from shared.telemetry.probes import ALL
from shared.testing.world.loop import DeadlockError, StepBudgetError
from shared.testing.world.world import World


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The outcome of one world."""

    seed: int
    problems: list[str] = field(default_factory=list)
    """Sentences that say what is wrong; empty if all is well."""

    unsafe: list[str] = field(default_factory=list)
    """Those of `problems` by which something was lost, done twice, or exceeded. What only takes too
    long, and an exception, is not among them."""

    log: list[str] = field(default_factory=list)
    """What happened, oldest first. The same seed gives the same lines."""

    seconds: float = 0.0
    """Virtual seconds that passed."""

    steps: int = 0
    """Number of callbacks that ran."""

    cpu_seconds: float = 0.0
    """Processor time that the world took."""

    probes: dict[str, int] = field(default_factory=dict)
    """How often each safety mechanism acted, by the name of its probe."""

    def violated(self, found: Iterable[str]) -> None:
        """Add what a check of safety found."""
        for problem in found:
            self.unsafe.append(problem)
            self.problems.append(problem)


Scenario = Callable[[int], Verdict]
"""Runs the world of one seed to its end, in this process, without I/O."""


def run_world(
    world: World, drive: Callable[[], Coroutine[Any, Any, None]], verdict: Verdict
) -> None:
    """Run `drive` in `world`; add the world's failures, log and figures to `verdict`."""
    before = {name: probe.fired for name, probe in ALL.items()}
    try:
        world.run(drive)
    except (DeadlockError, StepBudgetError) as error:
        verdict.problems.append(str(error))
    verdict.problems += world.failures
    verdict.log = world.log
    verdict.probes = {name: probe.fired - before[name] for name, probe in ALL.items()}
    verdict.seconds, verdict.steps = world.loop.time(), world.loop.steps
