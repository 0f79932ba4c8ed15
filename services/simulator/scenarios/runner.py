"""Runs a scenario for many seeds on several cores, and prints how to repeat failures."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from typing import Final, TextIO

from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.kept import KeptWorlds
from services.simulator.scenarios.mechanisms import MECHANISMS
from services.simulator.scenarios.port import Verdict
from shared.telemetry.probes import ALL, CONTRADICTED

LOG_LINES_SHOWN: Final = 40
PROBLEMS_SHOWN: Final = 10
LINE_SHOWN_MAX: Final = 300
PROGRESS_SECONDS: Final = 10.0
SCENARIOS_MODULE: Final = "services.simulator.scenarios.runner"
PROBED_SEEDS_MIN: Final = 200
"""Seeds from which on every mechanism of a scenario has to act."""

SEEDS_PER_CHILD: Final = 25
"""Worlds after which a child process is replaced, which bounds its memory."""


class UnknownScenarioError(ValueError):
    """The scenario does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no scenario {name!r}; there are: {', '.join(sorted(SCENARIOS))}")


def run(
    scenario: str,
    seeds: int,
    *,
    start: int = 1,
    jobs: int = 2,
    show_log: bool = False,
    kept: KeptWorlds | None = None,
    out: TextIO | None = None,
) -> int:
    """Run the seeds from `start` in `jobs` processes, but those that are `kept`; return the exit status.

    The status is 0 only if all seeds passed and, in a run of `PROBED_SEEDS_MIN` seeds or more, every
    safety mechanism of the scenario acted. `show_log` prints the log of each world. Raises
    `UnknownScenarioError`.
    """
    out = out if out is not None else sys.stdout
    if scenario not in SCENARIOS:
        raise UnknownScenarioError(scenario)
    began = printed_at = time.monotonic()
    known = _known(range(start, start + seeds), kept)
    if known:
        print(
            f"  {len(known)} of {seeds} passed in an earlier run of this state of the source",
            file=out,
        )
    passed, cpu_seconds = len(known), sum(one.cpu_seconds for one in known.values())
    fired: Counter[str] = Counter()
    for one in known.values():
        fired.update(one.probes)
    missing = [seed for seed in range(start, start + seeds) if seed not in known]
    played = _play_all(scenario, missing, jobs, show_log)
    for done, verdict in enumerate(played, len(known) + 1):
        fired.update(verdict.probes)
        cpu_seconds += verdict.cpu_seconds
        if kept is not None:
            kept.put(verdict)
        if show_log:
            print("\n".join(verdict.log), file=out)
        if verdict.problems:
            _report(scenario, verdict, out, with_log=not show_log)
        else:
            passed += 1
        if time.monotonic() - printed_at >= PROGRESS_SECONDS:
            printed_at = time.monotonic()
            failed = f", {done - passed} failed" if done > passed else ""
            print(
                f"  {done} of {seeds} after {printed_at - began:.0f} s{failed}",
                file=out,
                flush=True,
            )
    silent = _report_probes(scenario, fired, seeds, out)
    took = time.monotonic() - began
    print(f"  {took:.1f} s, mean {cpu_seconds / seeds:.1f} CPU s a seed", file=out)
    print(f"simulate: {scenario}: {passed} of {seeds} seeds ok", file=out, flush=True)
    return 0 if passed == seeds and not silent else 1


def _known(seeds: Iterable[int], kept: KeptWorlds | None) -> dict[int, Verdict]:
    """The worlds that need not be played again, by seed."""
    found = {} if kept is None else {seed: kept.get(seed) for seed in seeds}
    return {seed: one for seed, one in found.items() if one is not None}


def _report_probes(scenario: str, fired: Counter[str], seeds: int, out: TextIO) -> list[str]:
    """Print how often each mechanism acted; return those that had to and did not."""
    expected = MECHANISMS.get(scenario, ())
    names = [name for name in ALL if fired[name] or name in expected]
    if not names:
        return []
    print("  safety mechanisms that acted:", file=out)
    for name in names:
        print(f"  {fired[name]:>9}  {name:<24}{ALL[name].says}", file=out)
    silent = [name for name in expected if not fired[name]]
    if not silent:
        return []
    enough = seeds >= PROBED_SEEDS_MIN
    why = "" if enough else f" (with {PROBED_SEEDS_MIN} seeds or more that is a failure)"
    print(f"  never acted{why}: {', '.join(silent)}", file=out)
    return silent if enough else []


def _play_one(task: tuple[str, int, bool]) -> Verdict:
    """Run one seed of a scenario. An exception becomes a problem of that seed."""
    scenario, seed, with_log = task
    began = time.process_time()
    try:
        verdict = SCENARIOS[scenario](seed)
    except Exception as error:  # noqa: BLE001 # the other seeds are to be played all the same
        verdict = Verdict(seed=seed, problems=[f"the scenario itself failed: {error!r}"])
    if verdict.probes.get(CONTRADICTED.name):
        verdict.problems.append("quota's auditor contradicts its engine: see the log")
    verdict.cpu_seconds = round(time.process_time() - began, 2)
    if not verdict.problems and not with_log:
        verdict.log = []  # The log of a passed world is megabytes and never printed.
    return verdict


def command(scenario: str, seed: int) -> str:
    """Return the command that repeats one world."""
    return f"sluice simulate-world --scenario {scenario} --first-seed {seed} --seeds 1 --log"


def _play_all(scenario: str, seeds: Iterable[int], jobs: int, with_logs: bool) -> Iterator[Verdict]:
    tasks = [(scenario, seed, with_logs) for seed in seeds]
    if jobs <= 1 or len(tasks) == 1:
        yield from map(_play_one, tasks)
        return
    # A world must not see state of its parent: children fork from a process that only imported.
    context = get_context("forkserver")
    context.set_forkserver_preload([SCENARIOS_MODULE])
    with context.Pool(jobs, maxtasksperchild=SEEDS_PER_CHILD) as pool:
        yield from pool.imap(_play_one, tasks)


def _report(scenario: str, verdict: Verdict, out: TextIO, *, with_log: bool) -> None:
    print(f"\nseed {verdict.seed} failed, at {verdict.seconds:.1f} s of its time:", file=out)
    for problem in verdict.problems[:PROBLEMS_SHOWN]:
        print("  - " + problem.replace("\n", "\n    "), file=out)
    if len(verdict.problems) > PROBLEMS_SHOWN:
        print(f"  … and {len(verdict.problems) - PROBLEMS_SHOWN} more", file=out)
    if with_log:
        print("  the end of its log:", file=out)
        for line in verdict.log[-LOG_LINES_SHOWN:]:
            print("    " + line[:LINE_SHOWN_MAX], file=out)
    print(f"  again: {command(scenario, verdict.seed)}", file=out, flush=True)
