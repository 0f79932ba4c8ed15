"""`sluice simulate-world`: runs seeded worlds, and prints the command that repeats one that failed."""

import os
from pathlib import Path
from typing import Final

from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.kept import KeptWorlds
from services.simulator.scenarios.runner import run
from services.simulator.source_state import UNKNOWN, state_of_source
from shared.runtime.command import CommandError

_CHECKOUT: Final = Path(__file__).parents[3]
"""Where this source is, whichever folder and repository the command is called in."""


def run_worlds(scenario: str, *, first_seed: int, seeds: int, show_log: bool = False) -> int:
    """Run the worlds, one for each processor at a time; return the exit status.

    In a checkout, worlds that passed are kept in its folder `.worlds` until the source changes.
    """
    if scenario not in SCENARIOS:
        known = ", ".join(sorted(SCENARIOS))
        raise CommandError(f"--scenario {scenario}", "there is none of this name", hint=known)
    state = state_of_source(_CHECKOUT) if (_CHECKOUT / ".git").exists() else UNKNOWN
    keeps = seeds > 1 and not show_log and state != UNKNOWN
    return run(
        scenario,
        seeds,
        start=first_seed,
        jobs=os.cpu_count() or 1,
        show_log=show_log,
        kept=KeptWorlds(_CHECKOUT / ".worlds", state, scenario) if keeps else None,
    )
