"""`make bench-days`: what every service keeps in memory while days of short workloads pass.

All services run in one world without faults, in virtual time; jobs come all day long, end, and are deleted
within the hour; the webhook reviews each of them, and somebody looks at the console every hour. At each
midnight the objects that each service keeps alive are counted in bytes. The slope of these figures, from the
second day on, is what a service leaks; at 5,000 workloads a day the goal leaves 210 bytes for each, at 200 it
leaves 5 kB. Not among them: sockets, and the client of NATS, whose place the world's bus takes. The last
line is
``days: <days> of <workloads> workloads, <n> of <n> ended; steepest: <service> <MiB> MiB a day``.
"""

import argparse
import asyncio
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from services.simulator.scenarios import load
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.system import SERVICES, System
from shared.contracts.kube import kinds
from shared.integrations import integration_for
from shared.testing.world.world import World
from tests.days.beside import Beside
from tests.days.kept import kept_bytes, module_contents

DAY_SECONDS: Final = 86_400.0
HOURS: Final = 24
QUIET_HOURS: Final = 3
"""At the end of each day nothing comes, so that all has ended at midnight."""

SLOPE_MAX: Final = 1.0
"""MiB a day, of every service."""

SETTLED_DAYS: Final = 2
"""Caches fill meanwhile; the slope begins with the midnight after."""

MODULES: Final = "modules"
"""What belongs to no service but to the modules: their caches."""

STEPS_A_DAY: Final = 10_000_000
"""Callbacks of a day, at most."""

MIB: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class Days:
    """What was seen at the midnights."""

    kept: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """MiB at the end of each day, by service."""

    day_seconds: float
    submitted: int = 0
    ended: int = 0

    @property
    def hour_seconds(self) -> float:
        """The 24th part of a day."""
        return self.day_seconds / HOURS


def slope(values: Sequence[float]) -> float:
    """Return how much a line through the values of consecutive days climbs each day (least squares)."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    spread = sum((day - middle) ** 2 for day in range(len(values)))
    return sum((day - middle) * (value - mean) for day, value in enumerate(values)) / spread


def measure(
    days: int, workloads: int, verdict: Verdict, *, day_seconds: float = DAY_SECONDS
) -> Days:
    """Play `days` with so many workloads each; add what went wrong to the verdict."""
    seen = Days(day_seconds=day_seconds)
    with World(1, steps_max=days * STEPS_A_DAY) as world:
        system = System(world)
        beside = Beside(system, hour_seconds=seen.hour_seconds)
        run_world(world, lambda: _drive(system, beside, seen, days, workloads), verdict)
    verdict.problems += beside.problems(seen.submitted)
    if seen.ended != seen.submitted:
        verdict.problems.append(f"{seen.ended} of {seen.submitted} workloads ended")
    return seen


async def _drive(system: System, beside: Beside, seen: Days, days: int, workloads: int) -> None:
    random = Random("days")
    for kind, obj in load.queues(random):
        await system.kube.create(kind, obj)
    for service in SERVICES:
        system.serve(service)
    pruning = asyncio.create_task(_prune(system, seen))
    loop = asyncio.get_running_loop()
    for day in range(1, days + 1):
        runs, span = workloads // 2, (HOURS - QUIET_HOURS) * seen.hour_seconds
        coming = load.arrivals(random, runs=runs, jobs=workloads - runs, seconds=span)
        await _submit(system, beside, seen, coming, day)
        await asyncio.sleep(day * seen.day_seconds - loop.time())
        for name, size in _sizes(system):
            seen.kept[name].append(size)
        system.world.log.clear()
        _tell(seen, day)
    pruning.cancel()


async def _submit(
    system: System, beside: Beside, seen: Days, coming: list[load.Arrival], day: int
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for one in coming:
        await asyncio.sleep(max(0.0, began + one.at - loop.time()))
        one.job["metadata"]["name"] += f"-of-{day}"
        await beside.review(one.kind, one.job)
        await system.kube.create(one.kind, one.job)
        seen.submitted += 1


async def _prune(system: System, seen: Days) -> None:
    """Delete what has ended, as Tekton's pruner and a Job's time to live do."""
    while True:
        await asyncio.sleep(seen.hour_seconds)
        for kind in (kinds.JOB, kinds.PIPELINE_RUN):
            integration = integration_for(group=kind.group, kind=kind.kind)
            assert integration is not None
            for job in (await system.kube.list(kind)).items:
                if integration.finish(job) is not None:
                    metadata = job["metadata"]
                    await system.kube.delete(kind, metadata["namespace"], metadata["name"])
                    seen.ended += 1


def _sizes(system: System) -> Iterator[tuple[str, float]]:
    """Yield the MiB that each service keeps."""
    gc.collect()  # A world runs without it.
    loop = system.world.loop
    for name, process in system.world.processes.items():
        if process.mortal:  # The cluster is not.
            roots = [*loop.tasks_of(process.group), *loop.called_later(process.group)]
            yield name.removesuffix("-1"), kept_bytes(roots) / MIB
    yield MODULES, kept_bytes(module_contents()) / MIB


def _tell(seen: Days, day: int) -> None:
    figures = ", ".join(f"{name} {sizes[-1]:.2f}" for name, sizes in seen.kept.items())
    sys.stdout.write(f"day {day}, {seen.ended} of {seen.submitted} ended, MiB: {figures}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the benchmark; print the figures and whether the goal is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--workloads", type=int, default=200, help="a day")
    given = parser.parse_args()
    if given.days < SETTLED_DAYS + 1:
        parser.error(f"--days: {given.days} is too few; a slope needs {SETTLED_DAYS + 1} days")
    verdict = Verdict(seed=1)
    seen = measure(given.days, given.workloads, verdict)
    slopes = {name: slope(sizes[SETTLED_DAYS - 1 :]) for name, sizes in seen.kept.items()}
    lines = [f"{name}: {climbs:+.3f} MiB a day" for name, climbs in slopes.items()]
    steepest = max(slopes, key=lambda name: slopes[name])
    lines += verdict.problems
    lines.append(
        f"days: {given.days} of {given.workloads} workloads, {seen.ended} of {seen.submitted} ended; "
        f"steepest: {steepest} {slopes[steepest]:.3f} MiB a day"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if slopes[steepest] <= SLOPE_MAX and not verdict.problems else 1
