"""When a workload will probably start: simulates many possible futures and compares them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Final

from services.quota.engine.facts import WorkloadChanged
from services.quota.forecast.history import History
from services.quota.forecast.simulation import Arrival, RunningWorkload, Simulation, repeated
from services.quota.forecast.snapshot import SECOND, Id, Snapshot
from services.quota.wire.inbound import nanoseconds
from shared.contracts.messages.workloads import WorkloadState

FUTURES: Final = 40
FRUITLESS_FUTURES_MAX: Final = 8
"""After so many futures without a start, none with one, no more are played."""

CONFIDENCE: Final = 0.8
"""Share of the futures between `earliest` and `latest`."""

STRETCHES: Final = 12
"""Number of stretches into which recent submissions are cut."""

RECENT: Final = timedelta(hours=3)
"""Forecasts assume that the submissions of this time come again."""

HORIZON: Final = timedelta(days=1)
INSTANTS_MAX: Final = 2_000
SUBMISSIONS_MAX: Final = 10_000
"""With `INSTANTS_MAX` the end of a future that starts nothing: farther it is not played."""

PRECISION: Final = 100
"""Events of a future come too early by one part in so many at most."""

BUDGET_SECONDS: Final = 2.0
"""How long a forecast may take, unless more is asked for."""

LOOKED_AT: Final = 50
"""Workloads of which all are looked at after each instant. Of more, they are looked at more seldom."""

FUTURES_MIN: Final = 4
"""Futures that a budget is enough for: none may take more than its part."""


class Budget:
    """How long a forecast may take. It begins when it is made."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begin = clock()

    @property
    def left(self) -> float:
        """Seconds until it is spent, not below zero."""
        return max(0.0, self._begin + self.seconds - self._clock())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStart:
    """When a workload will probably start."""

    at: datetime | None
    """Half of the futures start it before. None: fewer than half start it."""

    earliest: datetime
    """One future in ten at most starts it before."""

    latest: datetime | None
    """None: beyond the horizon, or beyond what was played."""

    known_runs: int
    """Number of past runs that its own run time is estimated from."""

    futures: int
    """How many were played."""

    cut: int = 0
    """How many of them were not played to its start or to the horizon."""

    wanted: int = FUTURES
    """How many are played if the budget allows."""

    def doubt(self, seconds: float) -> str:
        """Why there is no expected start, or why it is a rough one; empty if it is neither."""
        if self.at is not None:
            few = self.futures < self.wanted
            played = f"{self.futures} of {self.wanted} futures played in {seconds:g} s"
            return f"rough: {played}" if few else ""
        if self.cut:
            return f"the forecast found no start in the {seconds:g} s that it may take"
        hours = int(HORIZON.total_seconds() // 3600)
        return f"it does not start within {hours} h in most of the {self.futures} futures that were played"


def expected_start(
    snapshot: Snapshot,
    ident: Id,
    *,
    history: History,
    recent: Sequence[WorkloadState],
    random: Random,
    futures: int = FUTURES,
    budget: Budget | None = None,
) -> ExpectedStart | None:
    """Play up to `futures` of the workload `ident`, as far as the budget allows.

    None where it holds quota already.

    `recent`: what was submitted in the time before, in any order; the same is taken to come again.
    """
    state = snapshot.workloads[ident]
    if snapshot.quota_held(ident) is not None:
        return None
    near = snapshot.cohort_only(state.cluster, snapshot.cluster_queue_of(state))
    # What has no ClusterQueue competes with nobody, but its own future can be played.
    near.workloads[ident] = state
    found = _expected_starts(
        near, state.cluster, (ident,), history, recent, random, futures, budget
    )
    return found[ident]


def expected_starts(
    snapshot: Snapshot,
    cluster: str,
    cluster_queue: str,
    idents: Collection[Id],
    *,
    history: History,
    recent: Sequence[WorkloadState],
    random: Random,
    budget: Budget,
) -> dict[Id, ExpectedStart]:
    """`expected_start` of many workloads that wait in one ClusterQueue, for the price of the last one.

    All of them are read off the same futures. Those that hold quota already are left out.
    """
    near = snapshot.cohort_only(cluster, cluster_queue)
    waiting = [
        ident for ident in idents if ident in near.workloads and near.quota_held(ident) is None
    ]
    return _expected_starts(near, cluster, waiting, history, recent, random, FUTURES, budget)


def _expected_starts(
    near: Snapshot,
    cluster: str,
    idents: Collection[Id],
    history: History,
    recent: Sequence[WorkloadState],
    random: Random,
    futures: int,
    budget: Budget | None,
) -> dict[Id, ExpectedStart]:
    queue_of = near.cluster_queues()
    coming = [s for s in recent if s.cluster == cluster and queue_of(s)]
    begin = nanoseconds(near.at)
    ends = begin + int(HORIZON.total_seconds()) * SECOND
    present = _Present(near, history)
    submissions = _Submissions(near, coming, history)
    tallies = {ident: _Tally() for ident in idents}
    played = 0
    started_any = False
    while tallies and played < futures:
        if budget is not None and played and not budget.left:
            break
        if not started_any and played >= FRUITLESS_FUTURES_MAX:
            break
        simulation = present.future(random, later=submissions.again(random))
        playing = _Playing(idents, budget)
        simulation.run(until=ends, done=playing.is_over)
        is_whole = played < FUTURES_MIN or budget is None or bool(budget.left)
        if not is_whole and playing.missing:
            break  # The end of the budget cut it short, which says nothing about it.
        played += 1
        for ident, tally in tallies.items():
            if (at := _started(simulation, ident)) is not None:
                started_any = True
                tally.starts.append((at - begin) / SECOND)
            else:
                tally.reached.append((min(simulation.now, ends) - begin) / SECOND)
                tally.cut += playing.was_cut
    return {
        ident: _summary(
            tally, at=near.at, wanted=futures, known_runs=history.count_of(near.workloads[ident])
        )
        for ident, tally in tallies.items()
    }


@dataclass(slots=True)
class _Tally:
    """What became of one workload in the futures."""

    starts: list[float] = field(default_factory=list)
    """Seconds until its start."""

    reached: list[float] = field(default_factory=list)
    """How far the futures were played that did not start it."""

    cut: int = 0


def _summary(tally: _Tally, *, at: datetime, wanted: int, known_runs: int) -> ExpectedStart:
    starts, reached = tally.starts, tally.reached
    tail = (1 - CONFIDENCE) / 2
    ordered = sorted(starts) + [math.inf] * len(reached)
    middle, latest = (_quantile(ordered, share) for share in (0.5, 1 - tail))
    # Where a future ended without a start, it may have come right then.
    earliest = _quantile(sorted([*starts, *reached]), tail)

    def after(seconds: float) -> datetime | None:
        return None if math.isinf(seconds) else at + timedelta(seconds=seconds)

    return ExpectedStart(
        at=after(middle),
        earliest=at + timedelta(seconds=earliest),
        latest=after(latest),
        known_runs=known_runs,
        futures=len(ordered),
        cut=tally.cut,
        wanted=wanted,
    )


class _Playing:
    """Says when one future has been played for long enough."""

    def __init__(self, idents: Collection[Id], budget: Budget | None) -> None:
        self.missing = set(idents)
        """Those that were not seen to start."""

        # To look at each of many at each instant would cost more than to play.
        self._every = 1 + len(idents) // LOOKED_AT
        self._budget = budget
        # Each future gets its part, so that one long future is not all that is played.
        self._until_left = 0.0 if budget is None else budget.left - budget.seconds / FUTURES_MIN
        self._instants = 0
        self.was_cut = False

    def is_over(self, simulation: Simulation) -> bool:
        """Whether the workloads have started, or the future's part of the budget is spent."""
        if self._instants % self._every == 0:
            self.missing = {one for one in self.missing if _started(simulation, one) is None}
        if not self.missing:
            return True
        self._instants += 1
        spent = self._budget is not None and self._budget.left <= max(0.0, self._until_left)
        is_long = self._instants > INSTANTS_MAX or len(simulation.results) > SUBMISSIONS_MAX
        self.was_cut = spent or is_long
        return self.was_cut


def _started(simulation: Simulation, ident: Id) -> int | None:
    result = simulation.results.get(ident)
    return None if result is None else result.started_at


class _Present:
    """What all futures begin with, translated once; only the run times differ."""

    def __init__(self, snapshot: Snapshot, history: History) -> None:
        self._snapshot = snapshot
        self._set_up = list(snapshot.configuration())
        self._waiting = [
            (arrival, history.sampler(snapshot.workloads[_ident(arrival)]))
            for arrival in snapshot.arrivals(history)
        ]
        now = self._now = nanoseconds(snapshot.at)
        self._holding = []
        for holder in snapshot.holders(history):
            held = holder.held
            state = snapshot.workloads[held.cluster, f"{held.namespace}/{held.name}"]
            elapsed = max(0.0, (now - held.at) / SECOND)
            self._holding.append(
                (holder, history.sampler(state, elapsed=elapsed), history.sampler(state))
            )

    def future(self, random: Random, *, later: Iterable[Arrival]) -> Simulation:
        """One that begins now."""
        return Simulation(
            set_up=self._set_up,
            holders=[
                RunningWorkload(
                    held=holder.held,
                    ends_at=self._now + int(max(0.0, rest(random)) * SECOND),
                    requeued=_running_for(holder.requeued, again(random)),
                )
                for holder, rest, again in self._holding
            ],
            arrivals=[
                Arrival(fact=each.fact, at=each.at, runs_for=int(sample(random) * SECOND))
                for each, sample in self._waiting
            ],
            later=later,
            start=self._now,
            policy=self._snapshot.policy,
            precision=PRECISION,
        )


def _running_for(arrival: Arrival | None, seconds: float) -> Arrival | None:
    return (
        None
        if arrival is None
        else Arrival(fact=arrival.fact, at=arrival.at, runs_for=int(seconds * SECOND))
    )


def _ident(arrival: Arrival) -> Id:
    fact = arrival.fact
    return fact.cluster, f"{fact.namespace}/{fact.name}"


_Submission = tuple[WorkloadChanged, Callable[[Random], float]]
"""What was submitted, and a random run time of it."""


class _Submissions:
    """Repeats random stretches of the recent submissions, one after another, from now on.

    Whole stretches keep bursts together. Random ones vary the load, as it varies from day to day.
    """

    def __init__(
        self, snapshot: Snapshot, recent: Sequence[WorkloadState], history: History
    ) -> None:
        self._now = nanoseconds(snapshot.at)
        arrivals = [(state, snapshot.arrival(state, history)) for state in recent]
        times = [arrival.fact.created_at for _, arrival in arrivals if arrival is not None]
        self._begin = min(times, default=self._now)
        known = [
            (arrival.fact, history.sampler(state))
            for state, arrival in arrivals
            # The first only says since when submissions are known, not how often one comes.
            if arrival is not None and self._begin < arrival.fact.created_at < self._now
        ]
        self._known = sorted(known, key=lambda pair: pair[0].created_at)
        self._times = [fact.created_at for fact, _ in self._known]

    def again(self, random: Random) -> Iterator[Arrival]:
        """One possible sequence of submissions, without an end; empty where none came after the first."""
        span = self._now - self._begin
        stretch = span // STRETCHES
        number, begin = 0, self._now
        while self._known and stretch > 0:
            origin = random.randrange(self._begin, self._now)
            for fact, sample in self._within(origin, origin + stretch):
                number += 1
                yield repeated(
                    fact,
                    at=begin + (fact.created_at - origin) % span,
                    name=f"{fact.name}~{number}",
                    runs=int(sample(random) * SECOND),
                )
            begin += stretch

    def _within(self, origin: int, end: int) -> Iterator[_Submission]:
        """The submissions of a stretch. One that reaches over the end goes on at the beginning.

        So each submission has the same chance to come again, however late it was.
        """
        first, last = (bisect_left(self._times, at) for at in (origin, end))
        yield from self._known[first:last]
        if end > self._now:
            yield from self._known[: bisect_left(self._times, end - self._now + self._begin)]


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
