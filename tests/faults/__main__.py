"""``python -m tests.faults [pattern]``: one line for each fault whose name it matches; `make faults`.

FAULTS=40 plays so many, drawn from the table; without it, each as often as the table says. SEED= draws other
moments. A fault that this machine cannot make is told, not counted. A run that made too few fails.
"""

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Collection
from itertools import groupby
from random import Random

import structlog

from tests.faults.fault import Fault, Outcome, play
from tests.faults.injuries import NotPossibleError
from tests.faults.site import site
from tests.faults.table import faults
from tests.faults.tally import MADE_MIN, Tally

PROBLEMS_SHOWN = 5


def chosen(
    pattern: str, count: int | None, random: Random, *, without: Collection[str] = ()
) -> list[Fault]:
    """The faults of a run, sorted by the system that they need, otherwise in an order that the seed draws.

    `without`: names of faults that are not drawn.
    """
    rows = [row for row in faults() if re.search(pattern, row.name) and row.name not in without]
    if count is None:
        picked = [row for row in rows for _ in range(row.times)]
    else:
        rows = [row for row in rows if row.quick] or rows
        random.shuffle(rows)
        picked = [rows[number % len(rows)] for number in range(count)] if rows else []
    random.shuffle(picked)
    return sorted(picked, key=_system)


def _system(row: Fault) -> tuple[int, bool]:
    """What kind of system a fault needs."""
    return row.servers, row.clocks


def demanded(pattern: str, count: int | None) -> int:
    """How many faults must be made at least: what FAULTS says; else 100 of the table, 1 of a part of it."""
    if count is not None:
        return count
    return 1 if pattern else MADE_MIN


async def _main(pattern: str) -> int:
    """Play the chosen faults; the exit code."""
    seed = int(os.environ.get("SEED") or 1)
    count = int(os.environ["FAULTS"]) if os.environ.get("FAULTS") else None
    random, tally = Random(seed), Tally(demanded=demanded(pattern, count))
    picked = chosen(pattern, count, random)
    while picked:
        await _play(picked, tally, seed)
        # In the place of each fault that cannot be made here another one is drawn.
        lacking, left_out = (count or 0) - tally.made, {name for name, _ in tally.left_out}
        picked = chosen(pattern, lacking, random, without=left_out) if lacking > 0 else []
    for line in tally.lines():
        _say(line)
    return 0 if tally.ok else 1


async def _play(picked: list[Fault], tally: Tally, seed: int) -> None:
    """Play faults that are sorted by system, and count them."""
    number = 0
    for (servers, clocked), group in groupby(picked, key=_system):
        began = time.monotonic()
        async with site(servers, clocked=clocked) as place:
            _say(
                f"{servers} nats-server{'s' * (servers > 1)}, up after {time.monotonic() - began:.0f} s"
            )
            for row in group:
                number += 1
                began = time.monotonic()
                try:
                    outcome = await play(row, place, Random(f"{seed} {number} {row.name}"))
                except NotPossibleError as error:
                    _say(f"  {number:>3} of {len(picked)}  left out  {row.name}: {error}")
                    tally.left_out.append((row.name, str(error)))
                    continue
                tally.recoveries.append(outcome.recovery_seconds)
                tally.survived += not outcome.problems
                _report(number, len(picked), row, outcome, time.monotonic() - began)


def _report(number: int, of: int, row: Fault, outcome: Outcome, seconds: float) -> None:
    how = "survived" if not outcome.problems else "BROKEN  "
    _say(
        f"  {number:>3} of {of}  {how}  {row.name} (recovery {outcome.recovery_seconds:.1f} s, "
        f"{seconds:.0f} s in all)"
    )
    if outcome.problems and row.known:
        _say(f"        known: {row.known}")
    for problem in outcome.problems[:PROBLEMS_SHOWN]:
        _say(f"        {problem}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    sys.exit(asyncio.run(_main(" ".join(sys.argv[1:]))))
