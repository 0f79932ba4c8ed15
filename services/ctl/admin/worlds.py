"""`sluice simulate-world`: runs seeded worlds, and prints the command that repeats one that failed."""

import os

from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.runner import run
from shared.runtime.command import CommandError


def run_worlds(scenario: str, *, first_seed: int, seeds: int, show_log: bool = False) -> int:
    """Run the worlds, one for each processor at a time; return the exit status."""
    if scenario not in SCENARIOS:
        known = ", ".join(sorted(SCENARIOS))
        raise CommandError(f"--scenario {scenario}", "there is none of this name", hint=known)
    jobs = os.cpu_count() or 1
    return run(scenario, seeds, start=first_seed, jobs=jobs, show_log=show_log)
