"""The checks at the end of the demo. They read the logs, never the engine."""

import asyncio
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, variance
from typing import Final

from services.ctl.demo.results import JobResult, LoadResult, records
from services.ctl.demo.summary import left_behind
from services.simulator.judge import checks
from shared.bus.port import Bus
from shared.contracts.messages.hosts import ANSWERED

MEMBERS_MIN: Final = 12
"""How many workloads of one shape and priority their mean needs."""

NOISE_SECONDS: Final = 0.5
"""Means closer than this are equal: an admission takes some tenths of a second."""

ERRORS_MAX: Final = 1.0
"""Means closer than this many standard errors of their difference are equal, too: while there is free
quota nobody waits, whatever the priority, and chance decides who comes then."""

WAITED_SECONDS: Final = 1.0
WAITED_SHARE_MIN: Final = 0.2
GIVEN_BACK_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0
"""Between two readings of the machine records: each reads a whole log."""

WRONG_MAX: Final = 5
"""How many faults of one check are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One check and the faults that it found."""

    name: str
    wrong: tuple[str, ...]

    def lines(self) -> list[str]:
        """For people."""
        if not self.wrong:
            return [f"  ok      {self.name}"]
        rest = len(self.wrong) - WRONG_MAX
        return [
            f"  FAILED  {self.name}",
            *(f"            {sentence}" for sentence in self.wrong[:WRONG_MAX]),
            *([f"            and {rest} more"] if rest > 0 else []),
        ]


def judge(result: LoadResult, *, load: bool = True, queues: bool = True) -> list[Verdict]:
    """Run all checks. `load`: nothing may be refused or fail. `queues`: queues must have formed."""
    message_logs = result.message_logs
    found = {
        "nothing lost: everything submitted was seen, and ran to its end": [
            *(
                f"{each.name} was refused: {each.refusal}"
                for each in (result.refused if load else ())
            ),
            *checks.none_lost(message_logs, result.names, finished=True),
            *checks.nothing_dead(message_logs),
            *(_failures(result.cases) if load else ()),
        ],
        "nothing admitted twice, nothing started twice, one decider at a time": [
            *checks.none_admitted_twice(message_logs),
            *checks.none_started_twice(message_logs),
            *checks.decided_in_order(message_logs),
        ],
        "no quota exceeded at any position of the log": checks.quotas_respected(message_logs),
        "nothing ran without quota, and all quota was given back": [
            *checks.none_runs_without_leave(message_logs),
            *checks.quota_given_back(message_logs),
        ],
        "every build got a machine or was told why, and none is left behind": machines_settled(
            result
        ),
        "no priority inversion: nobody more important waited who would have fitted": (
            checks.priorities_respected(message_logs)
        ),
    }
    if queues:
        found["queues formed"] = queues_formed(result.cases)
        found["mean wait falls with priority among workloads of equal shape"] = (
            waits_fall_with_priority(result.cases)
        )
    return [Verdict(name=name, wrong=tuple(wrong)) for name, wrong in found.items()]


def machines_settled(result: LoadResult) -> list[str]:
    """Every TaskRun that asked for a machine got an answer, and no machine is held for one that ended."""
    states_of: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for state in result.hosts:
        states_of.setdefault(state.uid, set()).add(state.state)
        names[state.uid] = f"{state.namespace}/{state.name}"
    silent = [names[uid] for uid, states in states_of.items() if not states & ANSWERED]
    return [
        *(f"{name} asked for a machine and was never answered" for name in silent),
        *(
            f"{record.platform}: {left_behind(record)} places or machines of builds that are over"
            for record in result.platforms
            if left_behind(record)
        ),
    ]


async def until_given_back(bus: Bus) -> None:
    """Wait until no machine is held for a build that has ended, or until the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GIVEN_BACK_SECONDS
    while any(map(left_behind, await records(bus))):
        if loop.time() > deadline:
            return
        await asyncio.sleep(LOOK_SECONDS)


def _failures(cases: Iterable[JobResult]) -> Iterator[str]:
    """Workloads that failed: nothing in a generated load is made to fail."""
    for case in cases:
        finish = None if case.state is None else case.state.finish
        if finish is not None and not finish.success:
            yield f"{case.submitted.name} failed: {finish.message}"


def queues_formed(cases: Iterable[JobResult]) -> list[str]:
    """Faults if hardly anybody waited: then the load proves nothing about priorities."""
    waits = [case.wait_seconds for case in cases if case.wait_seconds is not None]
    waited = sum(wait > WAITED_SECONDS for wait in waits)
    if waited >= WAITED_SHARE_MIN * len(waits):
        return []
    return [f"only {waited} of {len(waits)} waited longer than {WAITED_SECONDS:g} s"]


def waits_fall_with_priority(cases: Iterable[JobResult]) -> list[str]:
    """Faults if among equal workloads of a queue a higher priority waited longer."""
    groups: dict[str, dict[int, list[float]]] = {}
    for case in cases:
        wait = case.wait_seconds
        if case.state is not None and wait is not None:
            by_priority = groups.setdefault(case.shape, {})
            by_priority.setdefault(case.state.priority, []).append(wait)
    return [
        sentence for shape, by_priority in groups.items() for sentence in _rises(shape, by_priority)
    ]


def _rises(shape: str, by_priority: dict[int, list[float]]) -> Iterator[str]:
    groups = [
        (priority, waits)
        for priority, waits in sorted(by_priority.items(), reverse=True)
        if len(waits) >= MEMBERS_MIN
    ]
    for (higher, waits), (lower, longer) in pairwise(groups):
        noise = max(NOISE_SECONDS, ERRORS_MAX * _standard_error(waits, longer))
        if fmean(waits) > fmean(longer) + noise:
            yield (
                f"{shape}: priority {higher} waited {fmean(waits):.1f} s on average, {lower} only "
                f"{fmean(longer):.1f} s"
            )
    if len(groups) > 1 and fmean(groups[0][1]) >= fmean(groups[-1][1]) > NOISE_SECONDS:
        yield f"{shape}: the most important waited no less than the least important"


def _standard_error(one: list[float], other: list[float]) -> float:
    """The standard error of the difference of the two means."""
    return math.sqrt(variance(one) / len(one) + variance(other) / len(other))
