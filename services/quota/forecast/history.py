"""Run times of finished workloads, to estimate those of similar ones."""

import re
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from shared.contracts.messages.workloads import WorkloadState

ENOUGH: Final = 5
"""With fewer runs than this of one sort, a wider sort is used."""

KEPT_MAX: Final = 200
"""Runs that are kept of one sort; older ones say little about today."""

UNKNOWN_SECONDS: Final = 300.0
"""The assumed run time while no workload has finished yet."""

_SUFFIX: Final = re.compile(r"-[a-z0-9]{5}$")
_DIGITS: Final = re.compile(r"\d+")

_Sort = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """One finished workload."""

    state: WorkloadState
    seconds: float
    """From its admission to its end."""


@dataclass(slots=True)
class _Lengths:
    """The latest run times of one sort, by age and by length."""

    recent: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    """Replaced at each run, never changed: a simulation in a thread may read it at that moment."""

    def add(self, seconds: float) -> None:
        self.recent.append(seconds)
        ordered = self.ordered.copy()
        insort(ordered, seconds)
        if len(self.recent) > KEPT_MAX:
            ordered.pop(bisect_right(ordered, self.recent.popleft()) - 1)
        self.ordered = ordered


class History:
    """Run times by sort of workload, from very similar ones to all.

    A simulation in a thread may read it while another thread adds runs.
    """

    def __init__(self) -> None:
        self._run_times: dict[_Sort, _Lengths] = {}

    def add(self, run: FinishedRun) -> None:
        """Add a run."""
        for sort in _sorts(run.state):
            self._run_times.setdefault(sort, _Lengths()).add(run.seconds)

    @property
    def is_empty(self) -> bool:
        """Whether no run is known, so that every run time is a guess."""
        return not self._run_times

    def count_of(self, state: WorkloadState) -> int:
        """Number of runs that an answer about `state` is based on; 0: it would be a guess."""
        return len(self._samples_of(state))

    def median_seconds(self, state: WorkloadState, *, elapsed: float = 0.0) -> float:
        """Median of the remaining run time after `elapsed`, in seconds."""
        longer = self._longer_than(state, elapsed)
        return longer[len(longer) // 2] - elapsed if longer else _rest(elapsed)

    def sample_seconds(
        self, state: WorkloadState, random: Random, *, elapsed: float = 0.0
    ) -> float:
        """A random remaining run time after `elapsed`, in seconds."""
        return self.sampler(state, elapsed=elapsed)(random)

    def sampler(self, state: WorkloadState, *, elapsed: float = 0.0) -> Callable[[Random], float]:
        """`sample_seconds` for many draws: looks for similar runs once."""
        longer = self._longer_than(state, elapsed)

        def sample(random: Random) -> float:
            if longer:
                return _between(longer, elapsed, random) - elapsed
            return _rest(elapsed) * random.uniform(0.1, 2.0)

        return sample

    def _longer_than(self, state: WorkloadState, elapsed: float) -> list[float]:
        ordered = self._samples_of(state)
        return ordered[bisect_right(ordered, elapsed) :] if elapsed > 0 else ordered

    def _samples_of(self, state: WorkloadState) -> list[float]:
        widest: list[float] = []
        for sort in _sorts(state):
            found = self._run_times.get(sort)
            if found is None:
                continue
            if len(found.ordered) >= ENOUGH:
                return found.ordered
            widest = found.ordered
        return widest


def _between(longer: list[float], elapsed: float, random: Random) -> float:
    """A run time that falls with equal chance before, between or after the known ones.

    Samples of the known ones alone would exclude shorter and longer runs, which is too certain if
    only few runs were as long as this one.
    """
    place = random.randrange(len(longer) + 1)
    if place == len(longer):
        usual_gap = (longer[-1] - elapsed) / len(longer)
        return longer[-1] + random.expovariate(1.0) * usual_gap
    return random.uniform(longer[place - 1] if place else elapsed, longer[place])


def _rest(elapsed: float) -> float:
    """Remaining seconds beyond all known runs: as long again as it ran already."""
    return max(UNKNOWN_SECONDS, elapsed) if elapsed else UNKNOWN_SECONDS


def _sorts(state: WorkloadState) -> Iterator[_Sort]:
    """Sorts from the narrowest to the widest: same name, same shape, same queue, all."""
    where = (state.cluster, state.namespace, state.queue)
    owner = state.owner
    name = state.name if owner is None else owner.name
    stem = _DIGITS.sub("#", _SUFFIX.sub("", name))
    yield ("name", *where, "" if owner is None else owner.kind, stem)
    yield ("shape", *where, str(state.priority), *_shape(state))
    yield ("shape anywhere", state.cluster, *_shape(state))
    yield ("queue", *where)
    yield ("all",)


def _shape(state: WorkloadState) -> Iterator[str]:
    for pod_set in state.pod_sets:
        requests = ",".join(f"{k}={v}" for k, v in sorted(pod_set.requests.items()))
        yield f"{pod_set.count}:{requests}"
