"""Plays worlds with one mechanism taken out, until a safety check notices."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import get_context
from typing import Final, TextIO

from services.simulator.mutants.plant import Mutant, planted
from services.simulator.mutants.results import MutantResult, Results
from services.simulator.mutants.table import MUTANTS
from services.simulator.scenarios import SCENARIOS

SEEDS_MAX: Final = 300
RUNNER_MODULE: Final = "services.simulator.mutants.runner"


def run(
    mutants: Sequence[Mutant],
    results: Results,
    *,
    seeds: int = SEEDS_MAX,
    jobs: int = 2,
    budget_seconds: float = 3600.0,
    out: TextIO | None = None,
) -> int:
    """Play the mutants that have no result yet; return the exit status: 0 if all were found."""
    out = out if out is not None else sys.stdout
    until = time.monotonic() + budget_seconds
    missing = [mutant for mutant in mutants if results.get(mutant.name) is None]
    for name, result in _play_all([(mutant.name, seeds) for mutant in missing], jobs):
        results.put(name, result)
        _report(name, result, out)
        if time.monotonic() > until:
            print("  the time is over; run it again to go on", file=out)
            break
    known = [results.get(mutant.name) for mutant in mutants]
    found = sum(result is not None and result.found for result in known)
    print(f"mutants: {found} of {len(mutants)} found", file=out, flush=True)
    return 0 if found == len(mutants) else 1


def part(mutants: Iterable[Mutant], *, turn: int, turns: int) -> list[Mutant]:
    """The mutants of one turn out of `turns`, without those that only many worlds show."""
    return [mutant for mutant in mutants if not mutant.is_rare][turn % turns :: turns]


def play(mutant: Mutant, *, seeds: int = SEEDS_MAX) -> MutantResult:
    """Play seeds of each scenario in turn until a violation is found that the original does not have."""
    began, played = time.process_time(), 0
    why = "no safety check noticed"
    for seed in range(1, seeds // len(mutant.scenarios) + 1):
        for scenario in mutant.scenarios:
            with planted(mutant):
                problems = _unsafe(scenario, seed)
            played += 1
            if not problems:
                continue
            if others := _fails_without(mutant, scenario, seed):
                why = f"{scenario} {seed} fails {others}, too"
                continue
            return MutantResult(
                found=True,
                scenario=scenario,
                seed=seed,
                problem=problems[0][:300],
                played=played,
                cpu_seconds=round(time.process_time() - began, 1),
            )
    spent = round(time.process_time() - began, 1)
    return MutantResult(found=False, problem=why, played=played, cpu_seconds=spent)


def _fails_without(mutant: Mutant, scenario: str, seed: int) -> str:
    """Return with which less taken out this seed fails as well; empty if with nothing less."""
    if _unsafe(scenario, seed):
        return "without it"
    if mutant.besides is None:
        return ""
    for one in (mutant.besides, replace(mutant, besides=None)):
        with planted(one):
            if _unsafe(scenario, seed):
                return f"if only {one.name}"
    return ""


def _unsafe(scenario: str, seed: int) -> list[str]:
    """What a safety check says about a world: not what takes too long, and no exception."""
    try:
        return SCENARIOS[scenario](seed).unsafe
    except Exception:  # noqa: BLE001 # a mutant may break the judge: that is no find
        return []


def _play_one(task: tuple[str, int]) -> tuple[str, MutantResult]:
    name, seeds = task
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    return name, play(mutant, seeds=seeds)


def _play_all(tasks: Iterable[tuple[str, int]], jobs: int) -> Iterator[tuple[str, MutantResult]]:
    if jobs <= 1:
        yield from map(_play_one, tasks)
        return
    context = get_context("forkserver")
    context.set_forkserver_preload([RUNNER_MODULE])
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_play_one, tasks)


def _report(name: str, result: MutantResult, out: TextIO) -> None:
    where = f"{result.scenario} {result.seed}" if result.found else "NOT FOUND"
    cost = f"{result.played} worlds, {result.cpu_seconds:g} s"
    print(f"  {name}: {where} ({cost}): {result.problem}", file=out, flush=True)
