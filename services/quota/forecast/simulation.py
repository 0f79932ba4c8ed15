"""Simulates the future: workloads arrive, are admitted, run and end, in simulated time.

Pure. It assumes that the given run times are right, that an eviction frees its quota at once, that
admission checks become ready at once, and that a preempted workload starts from zero.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from services.quota.engine import Policy, QuotaEngine
from services.quota.engine.facts import (
    Admit,
    CheckStateChanged,
    Decision,
    Evict,
    Fact,
    Key,
    Preempt,
    QuotaHeld,
    Reserve,
    Wait,
    WorkloadChanged,
    WorkloadDrained,
    WorkloadFinished,
)

_Id = tuple[str, Key]
"""Cluster and ``<namespace>/<name>``."""

NEVER: Final = 1 << 62
ARRIVALS_MAX: Final = 256
"""Later arrivals of one instant of an imprecise simulation, so that it can be stopped in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A workload that is submitted later, or waits already. Times are in nanoseconds."""

    fact: WorkloadChanged
    at: int
    """From when on it may be admitted."""

    runs_for: int
    """Run time from its admission to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorkload:
    """A workload that holds quota when the simulation begins."""

    held: QuotaHeld
    ends_at: int
    requeued: Arrival | None = None
    """How it queues again after a preemption; None: it does not."""


@dataclass(slots=True, kw_only=True)
class SimulatedWorkload:
    """The result of one workload, up to the end of the simulation."""

    cluster: str
    key: Key
    queue: str
    """``<namespace>/<LocalQueue>``."""

    submitted_at: int
    cluster_queue: str = ""
    """Where it was admitted first; empty: it never was."""

    started_at: int | None = None
    """Its first admission."""

    preemptions: int = 0
    reason: str = ""
    """The last reason for which it waited."""


class Simulation:
    """One possible future. `run` may be called again to go on.

    `later` must come in the order of time, and may be endless.
    """

    def __init__(
        self,
        *,
        set_up: Iterable[Fact],
        holders: Iterable[RunningWorkload] = (),
        arrivals: Iterable[Arrival] = (),
        later: Iterable[Arrival] = (),
        start: int,
        policy: Policy | None = None,
        precision: int | None = None,
    ) -> None:
        """`precision`: events may come too early by one part in so many of the time since `start`.

        Events that are so close are one instant, so that the number of instants grows with the logarithm
        of the time. None: each event comes at its time.
        """
        self.engine = QuotaEngine(policy, explains=False)
        self.now = start
        self._begin = start
        self._precision = precision
        self.last_end = start
        """When the latest end so far was, workloads that ran from the beginning included."""

        self.results: dict[_Id, SimulatedWorkload] = {}
        self.first_decisions: list[Decision] = []
        """Decisions of the first instant."""

        self._arrived: dict[_Id, Arrival] = {}
        self._ends: list[tuple[int, int, _Id]] = []
        self._runs: dict[_Id, int] = {}
        """Running workload to the number of its run; ends of earlier runs are void."""

        self._number = 0
        # `later` is consumed one by one, because it may be endless.
        present = sorted(arrivals, key=lambda arrival: arrival.at)
        self._arrivals = heapq.merge(present, later, key=lambda arrival: arrival.at)
        self._next = next(self._arrivals, None)
        self._has_begun = False
        for fact in set_up:
            self.engine.apply(fact)
        for holder in holders:
            self._restore(holder)

    def run(
        self,
        *,
        until: int = NEVER,
        done: Callable[["Simulation"], bool] | None = None,
        over: Callable[[], bool] | None = None,
    ) -> "Simulation":
        """Simulate until nothing is left to happen, `until` is reached, or `done` or `over` returns True.

        `done` is asked at each instant, `over` also within one: it may have thousands of decisions.
        """
        while not ((done is not None and done(self)) or (over is not None and over())):
            at = self._next_at() if self._has_begun else self.now
            if at is None or at > until:
                self.now = max(self.now, until) if until != NEVER else self.now
                break
            self.now = max(self.now, at)
            self._apply_due_events()
            self._decide(over)
            self._has_begun = True
        return self

    # Events ----------------------------------------------------------------------------------------

    def _restore(self, holder: RunningWorkload) -> None:
        held = holder.held
        ident = (held.cluster, f"{held.namespace}/{held.name}")
        if holder.requeued is not None:
            self._arrived[ident] = holder.requeued
            self.engine.apply(holder.requeued.fact)
        self.engine.apply(held)
        self._schedule_end(ident, holder.ends_at)

    def _schedule_end(self, ident: _Id, at: int) -> None:
        self._number += 1
        self._runs[ident] = self._number
        heapq.heappush(self._ends, (at, self._number, ident))

    def _next_at(self) -> int | None:
        times = []
        if self._next is not None:
            times.append(self._next.at)
        while self._ends and self._runs.get(self._ends[0][2]) != self._ends[0][1]:
            heapq.heappop(self._ends)
        if self._ends:
            times.append(self._ends[0][0])
        if (timer := self.engine.next_at()) is not None:
            times.append(timer)
        return min(times, default=None)

    def _apply_due_events(self) -> None:
        """Apply what happens up to now, or so soon that an imprecise simulation makes no difference."""
        due = self.now
        if self._precision is not None:
            due += (due - self._begin) // self._precision
        while self._ends and self._ends[0][0] <= due:
            at, number, ident = heapq.heappop(self._ends)
            if self._runs.get(ident) == number:
                self._end(ident, at)
        arrived = 0
        while self._next is not None and self._next.at <= due:
            if arrived == ARRIVALS_MAX and self._precision is not None and self._has_begun:
                break
            arrived += 1
            self._arrive(self._next)
            self._next = next(self._arrivals, None)

    def _end(self, ident: _Id, at: int) -> None:
        del self._runs[ident]
        self.last_end = max(self.last_end, at)
        cluster, key = ident
        namespace, _, name = key.partition("/")
        known = self._arrived.get(ident)
        uid = "" if known is None else known.fact.uid
        self.engine.apply(
            WorkloadFinished(cluster=cluster, namespace=namespace, name=name, uid=uid)
        )

    def _arrive(self, arrival: Arrival) -> None:
        fact = arrival.fact
        ident = (fact.cluster, f"{fact.namespace}/{fact.name}")
        self._arrived[ident] = arrival
        self.results[ident] = SimulatedWorkload(
            cluster=fact.cluster,
            key=ident[1],
            queue=f"{fact.namespace}/{fact.queue}",
            submitted_at=arrival.at,
        )
        self.engine.apply(fact)

    def _decide(self, over: Callable[[], bool] | None) -> None:
        """Decide until the decisions cause no more facts."""
        while decisions := self.engine.decide(self.now, over=over):
            if not self._has_begun:
                self.first_decisions += decisions
            caused_facts = [self._carry_out(decision) for decision in decisions]
            if not any(caused_facts) or (over is not None and over()):
                break

    def _carry_out(self, decision: Decision) -> bool:
        """Carry a decision out; return whether that gave the engine a fact."""
        ident = (decision.cluster, decision.key)
        match decision:
            case Reserve() if decision.admitted:
                self._start(ident, decision.cluster_queue)
            case Reserve():
                self._approve(decision)
                return True
            case Admit():
                self._start(ident, decision.cluster_queue)
            case Preempt() | Evict():
                self._stop(ident, decision.uid)
                return True
            case Wait():
                if (result := self.results.get(ident)) is not None:
                    result.reason = decision.reason
            case _:
                pass
        return False

    def _start(self, ident: _Id, cluster_queue: str) -> None:
        known = self._arrived.get(ident)
        if known is None:
            return
        if (result := self.results.get(ident)) is not None and result.started_at is None:
            result.started_at = self.now
            result.cluster_queue = cluster_queue
        self._schedule_end(ident, self.now + known.runs_for)

    def _approve(self, decision: Reserve) -> None:
        namespace, _, name = decision.key.partition("/")
        for check in decision.checks:
            self.engine.apply(
                CheckStateChanged(
                    cluster=decision.cluster,
                    namespace=namespace,
                    name=name,
                    uid=decision.uid,
                    check=check,
                    state="Ready",
                    at=self.now,
                )
            )

    def _stop(self, ident: _Id, uid: str) -> None:
        cluster, key = ident
        namespace, _, name = key.partition("/")
        self._runs.pop(ident, None)
        if (result := self.results.get(ident)) is not None:
            result.preemptions += 1
        elif (known := self._arrived.get(ident)) is not None:
            # It held quota from the beginning: from now on it has a result like waiting ones.
            self.results[ident] = SimulatedWorkload(
                cluster=cluster,
                key=key,
                queue=f"{namespace}/{known.fact.queue}",
                submitted_at=self.now,
                preemptions=1,
            )
        self.engine.apply(WorkloadDrained(cluster=cluster, namespace=namespace, name=name, uid=uid))


def repeated(fact: WorkloadChanged, *, at: int, name: str, runs: int) -> Arrival:
    """The arrival of an equal workload at another time, under another name."""
    again = replace(fact, name=name, uid=name, created_at=at, generation=0)
    return Arrival(fact=again, at=at, runs_for=runs)
