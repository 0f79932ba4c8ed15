"""Plays what is going to happen: workloads arrive, are admitted, run and end, in simulated time.

Pure, and only as wrong as the run times that it is given. What it takes for granted: an eviction
frees its quota at once, an admission check says yes at once, and a preempted workload starts from zero.
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

__all__ = ["NEVER", "Arrival", "RunningWorkload", "SimulatedWorkload", "Simulation", "repeated"]

_Id = tuple[str, Key]
"""Cluster and ``<namespace>/<name>``."""

NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A workload that is submitted, or waits already. All times in nanoseconds."""

    fact: WorkloadChanged
    at: int
    """Since when it may be admitted."""

    runs_for: int
    """From its admission to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorkload:
    """A workload that holds quota when the course begins."""

    held: QuotaHeld
    ends_at: int
    requeued: Arrival | None = None
    """What it asks, so that it queues again when it is preempted; None: then it is lost from sight."""


@dataclass(slots=True, kw_only=True)
class SimulatedWorkload:
    """What became of one workload, as far as the course went."""

    cluster: str
    key: Key
    queue: str
    """``<namespace>/<LocalQueue>``."""

    submitted_at: int
    cluster_queue: str = ""
    """Where it was admitted first; empty: it never was."""

    started_at: int | None = None
    """Its first admission."""

    ended_at: int | None = None
    preemptions: int = 0
    reason: str = ""
    """Why it waited last."""


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
    ) -> None:
        self.engine = QuotaEngine(policy)
        self.now = start
        self.last_end = start
        """When the last of all that ended so far did, also of what ran when the course began."""

        self.results: dict[_Id, SimulatedWorkload] = {}
        self.first_decisions: list[Decision] = []
        """What was decided in the first instant."""

        self._arrived: dict[_Id, Arrival] = {}
        self._ends: list[tuple[int, int, _Id]] = []
        self._runs: dict[_Id, int] = {}
        """Number of the present run of whatever runs: an end of an earlier one means nothing."""

        self._number = 0
        # `later` is asked for one by one, so that it may go on for ever.
        present = sorted(arrivals, key=lambda arrival: arrival.at)
        self._arrivals = heapq.merge(present, later, key=lambda arrival: arrival.at)
        self._next = next(self._arrivals, None)
        self._has_begun = False
        for fact in set_up:
            self.engine.apply(fact)
        for holder in holders:
            self._restore(holder)

    def run(
        self, *, until: int = NEVER, done: Callable[["Simulation"], bool] | None = None
    ) -> "Simulation":
        """Play until nothing is left to happen, `until` is reached, or `done` says so."""
        while not (done is not None and done(self)):
            at = self._next_at() if self._has_begun else self.now
            if at is None or at > until:
                self.now = max(self.now, until) if until != NEVER else self.now
                break
            self.now = max(self.now, at)
            self._apply_due_events()
            self._decide()
            self._has_begun = True
        return self

    # What happens ----------------------------------------------------------------------------------

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
        """Everything that happens up to now."""
        while self._ends and self._ends[0][0] <= self.now:
            at, number, ident = heapq.heappop(self._ends)
            if self._runs.get(ident) == number:
                self._end(ident, at)
        while self._next is not None and self._next.at <= self.now:
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
        if (fate := self.results.get(ident)) is not None:
            fate.ended_at = at

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

    def _decide(self) -> None:
        """Decide until nothing follows from what was decided."""
        while decisions := self.engine.decide(self.now):
            if not self._has_begun:
                self.first_decisions += decisions
            told = [self._carry_out(decision) for decision in decisions]
            if not any(told):
                break

    def _carry_out(self, decision: Decision) -> bool:
        """Carry a decision out; whether that told the engine something."""
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
                if (fate := self.results.get(ident)) is not None:
                    fate.reason = decision.reason
            case _:
                pass
        return False

    def _start(self, ident: _Id, cluster_queue: str) -> None:
        known = self._arrived.get(ident)
        if known is None:
            return
        if (fate := self.results.get(ident)) is not None and fate.started_at is None:
            fate.started_at = self.now
            fate.cluster_queue = cluster_queue
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
        if (fate := self.results.get(ident)) is not None:
            fate.preemptions += 1
        elif (known := self._arrived.get(ident)) is not None:
            # It held quota when all began: from now on it is followed like whoever waits.
            self.results[ident] = SimulatedWorkload(
                cluster=cluster,
                key=key,
                queue=f"{namespace}/{known.fact.queue}",
                submitted_at=self.now,
                preemptions=1,
            )
        self.engine.apply(WorkloadDrained(cluster=cluster, namespace=namespace, name=name, uid=uid))


def repeated(fact: WorkloadChanged, *, at: int, name: str, runs: int) -> Arrival:
    """A workload like another one, at another time and under another name."""
    again = replace(fact, name=name, uid=name, created_at=at, generation=0)
    return Arrival(fact=again, at=at, runs_for=runs)
