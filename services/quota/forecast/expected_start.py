"""When a workload will probably start: simulates many possible futures and compares them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Final

from services.quota.forecast.history import History
from services.quota.forecast.simulation import Arrival, Simulation, repeated
from services.quota.forecast.snapshot import SECOND, Id, Snapshot
from services.quota.wire.inbound import nanoseconds
from shared.contracts.messages.workloads import WorkloadState

FUTURES: Final = 40
CONFIDENCE: Final = 0.8
"""Share of the futures between `earliest` and `latest`."""

STRETCHES: Final = 12
"""Number of stretches into which recent submissions are cut."""

HORIZON: Final = timedelta(days=1)
INSTANTS_MAX: Final = 2_000
"""Instants that a future is simulated for; a later start counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStart:
    """When a workload will probably start."""

    at: datetime
    """Half of the futures start it before."""

    earliest: datetime
    latest: datetime | None
    """None: beyond the horizon."""

    known_runs: int
    """Number of past runs that its own run time is estimated from."""

    never: float
    """Share of the futures without a start within the horizon."""


def expected_start(
    snapshot: Snapshot,
    ident: Id,
    *,
    past: History,
    recent: Sequence[WorkloadState],
    random: Random,
    futures: int = FUTURES,
) -> ExpectedStart | None:
    """Play `futures` of the workload `ident`.

    None where it starts in fewer than half of them, and where it holds quota already.

    `recent`: what was submitted in the time before, in any order; the same is taken to come again.
    """
    state = snapshot.workloads[ident]
    if snapshot.quota_held(ident) is not None:
        return None
    near = snapshot.cohort_only(state.cluster, snapshot.cluster_queue_of(state))
    coming = [s for s in recent if near.cluster_queue_of(s) and s.cluster == state.cluster]
    begin = nanoseconds(snapshot.at)
    ends = begin + int(HORIZON.total_seconds()) * SECOND
    starts = []
    submissions = _Submissions(near, coming, past)
    for _ in range(futures):
        simulation = near.simulation(past, random=random, later=submissions.again(random))
        simulation.run(until=ends, done=_until_started(ident))
        if (at := _started(simulation, ident)) is not None:
            starts.append((at - begin) / SECOND)
    never = futures - len(starts)
    ordered = sorted(starts) + [math.inf] * never
    tail = (1 - CONFIDENCE) / 2
    earliest, middle, latest = (_quantile(ordered, share) for share in (tail, 0.5, 1 - tail))
    if math.isinf(middle):
        return None
    return ExpectedStart(
        at=snapshot.at + timedelta(seconds=middle),
        earliest=snapshot.at + timedelta(seconds=earliest),
        latest=None if math.isinf(latest) else snapshot.at + timedelta(seconds=latest),
        known_runs=past.count_of(state),
        never=never / futures,
    )


def _until_started(ident: Id) -> Callable[[Simulation], bool]:
    instants = 0

    def done(simulation: Simulation) -> bool:
        nonlocal instants
        instants += 1
        return instants > INSTANTS_MAX or _started(simulation, ident) is not None

    return done


def _started(simulation: Simulation, ident: Id) -> int | None:
    result = simulation.results.get(ident)
    return None if result is None else result.started_at


class _Submissions:
    """Repeats random stretches of the recent submissions, one after another, from now on.

    Whole stretches keep bursts together. Random ones vary the load, as it varies from day to day.
    """

    def __init__(self, snapshot: Snapshot, recent: Sequence[WorkloadState], past: History) -> None:
        self._now = nanoseconds(snapshot.at)
        self._past = past
        arrivals = [(state, snapshot.arrival(state, past)) for state in recent]
        known = [(arrival.fact, state) for state, arrival in arrivals if arrival is not None]
        self._known = sorted(known, key=lambda pair: pair[0].created_at)
        self._times = [fact.created_at for fact, _ in self._known]
        self._begin = min(self._times, default=self._now)

    def again(self, random: Random) -> Iterator[Arrival]:
        """One possible sequence of submissions, without an end."""
        stretch = (self._now - self._begin) // STRETCHES
        number, begin = 0, self._now
        while stretch > 0:
            origin = random.randrange(self._begin, self._now - stretch)
            first, last = (bisect_left(self._times, at) for at in (origin, origin + stretch))
            for fact, state in self._known[first:last]:
                number += 1
                yield repeated(
                    fact,
                    at=begin + fact.created_at - origin,
                    name=f"{fact.name}~{number}",
                    runs=int(self._past.sample_seconds(state, random) * SECOND),
                )
            begin += stretch


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation, so that another sample is below it with chance `share`.

    Another sample falls into one of the n + 1 gaps before, between and after n samples.
    """
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if math.isinf(ordered[high]):
        return ordered[high]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
