"""Mistakes that are planted to see that a judge finds them.

What a world does changes with whatever the services do, so a mistake is looked for in more worlds than the
one that found it last.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple

import pytest

from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.port import Scenario
from services.simulator.scenarios.tenants.rights import Write
from services.simulator.scenarios.tenants.scenario import written_often

WORLDS: Final = 60
"""How many are tried when the one that found a mistake finds it no more: seconds of a processor each."""


class Mistake(NamedTuple):
    """One function and what it is replaced by."""

    where: Any
    name: str
    replacement: Any
    seed: int
    """One that finds it, of the first two hundred: tried first."""

    found: str
    """Part of what the judge says."""

    often: Write | None = None
    """The write of a tenant that it takes, if that one is rare: it is then every second one."""


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Make the mistake meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mistake.where, mistake.name, mistake.replacement)
        with written_often(mistake.often) if mistake.often else nullcontext():
            yield


def finds(play: Scenario, said: str, first: int, *, worlds: int = WORLDS) -> bool:
    """Return whether the judge says it: of the world `first`, or of one of so many from the first one on."""
    return any(
        said in problem
        for seed in (first, *range(1, worlds + 1))
        for problem in play(seed).problems
    )


def search(mistakes: Mapping[str, Mistake], scenario: str, arguments: list[str]) -> None:
    """Write the first seed that finds each mistake. Arguments: first seed, last seed, word of a label."""
    first, last, word, *_ = (*arguments, *("1", "200", "")[len(arguments) :])
    for label, mistake in mistakes.items():
        if word not in label:
            continue
        with planted(mistake):
            seed = _first_that_finds(SCENARIOS[scenario], mistake, range(int(first), int(last) + 1))
        _say(f"{label}: {seed or 'not found'}")


def _first_that_finds(play: Scenario, mistake: Mistake, seeds: range) -> int | None:
    for seed in seeds:
        problems = play(seed).problems
        if any(mistake.found in problem for problem in problems):
            return seed
        if problems:
            _say(f"  {seed}: other: {problems[0][:200]}")
    return None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
