"""`sluice simulate-world`: many seeded worlds, and the command that repeats one that failed."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from services.ctl.errors import CommandError, Exit
from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.port import Verdict

__all__ = ["repeat_command", "run_worlds"]

PROBLEMS_MAX: Final = 10
LOG_LINES_MAX: Final = 40


def run_worlds(scenario: str, *, first_seed: int, seeds: int, show_log: bool = False) -> int:
    """Play the worlds, as many at a time as there are processors; return the exit status."""
    if scenario not in SCENARIOS:
        known = ", ".join(sorted(SCENARIOS))
        raise CommandError(f"--scenario {scenario}", "there is none of this name", hint=known)
    wanted = range(first_seed, first_seed + seeds)
    failed = 0
    with ProcessPoolExecutor(max_workers=min(seeds, os.cpu_count() or 1)) as pool:
        verdicts = pool.map(_play, [scenario] * seeds, wanted)
        for verdict in verdicts:
            if show_log:
                print("\n".join(verdict.log))
            if verdict.problems:
                failed += 1
                _tell(scenario, verdict, with_log=not show_log)
            else:
                print(f"seed {verdict.seed}: ok, {verdict.seconds:.0f} s, {verdict.steps} steps")
    print(f"simulate-world: {'failed' if failed else 'ok'}: {failed} of {seeds} worlds failed")
    return Exit.FAILED if failed else Exit.OK


def _play(scenario: str, seed: int) -> Verdict:
    return SCENARIOS[scenario](seed)


def _tell(scenario: str, verdict: Verdict, *, with_log: bool) -> None:
    print(f"seed {verdict.seed}: FAILED after {verdict.seconds:.0f} s, {verdict.steps} steps")
    for problem in verdict.problems[:PROBLEMS_MAX]:
        print(f"  {problem}")
    if len(verdict.problems) > PROBLEMS_MAX:
        print(f"  and {len(verdict.problems) - PROBLEMS_MAX} more")
    if with_log:
        for line in verdict.log[-LOG_LINES_MAX:]:
            print(f"    {line}")
    print(f"  repeat it: {repeat_command(scenario, verdict.seed)}")
    sys.stdout.flush()


def repeat_command(scenario: str, seed: int) -> str:
    """What to type to see the same world again, with its whole log."""
    return f"sluice simulate-world --scenario {scenario} --first-seed {seed} --seeds 1 --log"
