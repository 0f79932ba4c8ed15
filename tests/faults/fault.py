"""A row of the table, and how one is played and judged."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.faults.site import BUSY, PROBE, RUNS, Site

BEFORE, BESIDE_SECONDS = 4, 0.7
"""Jobs that wait when a fault begins, and how often another one is created while it lasts."""

IN_TURN: Final = (BUSY, RUNS)
"""Their queues: every second job is a PipelineRun."""

RECOVERY_SECONDS_MAX: Final = 60.0
"""From the end of a fault until a new job starts."""

END_SECONDS_MAX: Final = 180.0
LOOK_SECONDS: Final = 0.05

Make = Callable[[Site, Random], Awaitable[None]]

JUDGED: Final = (
    "every job starts once, after its Workload says so",
    "no quota is exceeded at any moment",
    "every job ends, and then its ClusterQueue has nothing reserved",
    "a new job starts within a minute",
)
"""What is judged after each fault, by the API server's own history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a system breaks."""

    name: str
    servers: int
    """One nats-server, or three."""

    make: Make
    """Breaks something, and mends what does not mend itself. The fault ends when it returns."""

    times: int = 1
    """How often a whole run makes it, each time at another moment."""

    known: str = ""
    """Why it is not always survived yet; empty: it is."""

    quick: bool = True
    """False: too long for a quick run, or possible nowhere yet."""

    jobs: int = 12
    """How many jobs are created at most while it lasts."""

    clocks: bool = False
    """Whether it needs a system whose clocks can be moved. Such a system plays no other faults."""


@dataclass(slots=True)
class Outcome:
    """What came of one fault."""

    problems: list[str] = field(default_factory=list)
    recovery_seconds: float = 0.0


async def play(fault: Fault, site: Site, random: Random) -> Outcome:
    """Make the fault while jobs are created, and judge what the API server wrote."""
    outcome = Outcome()
    known = len(site.books.problems)
    loop = asyncio.get_running_loop()
    for number in range(BEFORE):
        await site.create(IN_TURN[number % len(IN_TURN)])
    await asyncio.sleep(random.uniform(0, 1.5))
    beside = asyncio.create_task(_create_beside(site, fault.jobs))
    following = asyncio.create_task(_follow(site))
    try:
        await fault.make(site, random)
        ended = loop.time()
        probe = asyncio.create_task(site.create(PROBE))
        outcome.recovery_seconds = await _recovery(site, probe, ended)
        beside.cancel()
        with suppress(asyncio.CancelledError):
            await beside
        if outcome.recovery_seconds > RECOVERY_SECONDS_MAX:
            outcome.problems.append(f"no new job started for {outcome.recovery_seconds:.0f} s")
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS_MAX):
                while _left(site):  # noqa: ASYNC110 - it is in another process
                    await asyncio.sleep(LOOK_SECONDS)
        outcome.problems += _left(site)
    finally:
        beside.cancel()
        following.cancel()
        await asyncio.gather(beside, following, return_exceptions=True)
    site.read()
    outcome.problems += site.books.problems[known:]
    return outcome


def _left(site: Site) -> list[str]:
    """What has not ended: jobs first, then quota that is reserved for none of them."""
    return site.books.open_jobs() or site.books.still_reserved()


async def _create_beside(site: Site, count: int) -> None:
    for number in range(count):
        await asyncio.sleep(BESIDE_SECONDS)
        await site.create(IN_TURN[number % len(IN_TURN)])


async def _follow(site: Site) -> None:
    while True:
        site.read()
        await asyncio.sleep(LOOK_SECONDS)


async def _recovery(site: Site, probe: "asyncio.Task[str]", since: float) -> float:
    """Seconds until the probe was let go; a little more than the maximum if it was not."""
    loop = asyncio.get_running_loop()
    while loop.time() - since <= RECOVERY_SECONDS_MAX:
        if probe.done() and site.books.started(probe.result()):
            return loop.time() - since
        await asyncio.sleep(LOOK_SECONDS)
    if not probe.done():
        probe.cancel()
    return RECOVERY_SECONDS_MAX + 1
