"""Measures the engine alone, in simulated time: `make bench-engine`.

Workloads arrive, are admitted, run, and end; a preempted one starts from zero. Facts that fall on one
millisecond are applied together. The last line is ``engine: <admissions per CPU second>, <peak MiB>`` of
the large load; before it come what grows with what, and how long the deep load takes beside the same
policy run plainly, one cycle of every tree a millisecond. Garbage is collected as seldom as in the
service (`shared.runtime.host`).
"""

import gc
import heapq
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import (
    ClusterQueueChanged,
    FlavorChanged,
    FlavorQuotas,
    LocalQueueChanged,
    NamespaceChanged,
    PodSet,
    Preempt,
    Preemption,
    Quota,
    Reserve,
    ResourceGroup,
    Selector,
    WorkloadChanged,
    WorkloadDrained,
    WorkloadFinished,
)

LOADS: Final = Path(__file__).parent / "loads"
CLUSTER: Final = "bench"
MILLI: Final = 1_000_000
"""Nanoseconds."""

GC_THRESHOLDS: Final = (50_000, 20, 20)
"""As `shared.runtime.host` sets them for every service."""

STEADY: Final = 500
"""Admissions over which a growth figure is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Equal workloads that every queue receives."""

    name: str
    count: int
    every: int
    """Milliseconds between two of them."""

    runs: int
    """Milliseconds."""

    priority: int
    cpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Queues, and what arrives in each."""

    cohorts: int
    per_cohort: int
    nominal: int
    borrowing_limit: int
    preemption: Preemption
    kinds: tuple[Kind, ...]


@dataclass(slots=True)
class Result:
    """The result of one run."""

    admissions: int = 0
    preemptions: int = 0
    wasted: int = 0
    """CPU milliseconds of preempted work."""

    makespan: int = 0
    """Milliseconds of simulated time."""

    cpu_seconds: float = 0.0
    """Of this process, in the run."""


def load(name: str) -> Load:
    """Read one of the loads that lie beside this module."""
    raw: dict[str, Any] = yaml.safe_load((LOADS / f"{name}.yaml").read_text(encoding="utf-8"))
    queue = raw["queue"]
    return Load(
        cohorts=raw["cohorts"],
        per_cohort=raw["queuesPerCohort"],
        nominal=queue["nominal"],
        borrowing_limit=queue["borrowingLimit"],
        preemption=Preemption(
            within=queue["withinClusterQueue"], reclaim=queue["reclaimWithinCohort"]
        ),
        kinds=tuple(
            Kind(
                name=w["name"],
                count=w["count"],
                every=w["everyMilliseconds"],
                runs=w["runsMilliseconds"],
                priority=w["priority"],
                cpu=w["cpu"],
            )
            for w in raw["workloads"]
        ),
    )


def _engine(what: Load) -> tuple[QuotaEngine, list[str]]:
    engine = QuotaEngine()
    engine.apply(NamespaceChanged(cluster=CLUSTER, name="ns"))
    engine.apply(FlavorChanged(cluster=CLUSTER, name="default"))
    quota = Quota(nominal=what.nominal * 1000, borrowing_limit=what.borrowing_limit * 1000)
    group = ResourceGroup(
        covered=("cpu",), flavors=(FlavorQuotas(name="default", quotas={"cpu": quota}),)
    )
    names = []
    for c in range(what.cohorts):
        for q in range(what.per_cohort):
            name = f"q{c}-{q}"
            names.append(name)
            engine.apply(
                ClusterQueueChanged(
                    cluster=CLUSTER,
                    name=name,
                    cohort=f"c{c}",
                    groups=(group,),
                    namespaces=Selector(),
                    preemption=what.preemption,
                )
            )
            engine.apply(
                LocalQueueChanged(cluster=CLUSTER, namespace="ns", name=name, cluster_queue=name)
            )
    return engine, names


class _World:
    """Arrivals and ends in simulated time, in milliseconds."""

    def __init__(self, what: Load) -> None:
        self.engine, queues = _engine(what)
        self.kinds: dict[str, Kind] = {}
        self.started: dict[str, int] = {}
        self.ends: list[tuple[int, str]] = []
        self.arrivals = sorted(self._arrivals(what, queues), key=lambda a: a[0])
        self.arrived = 0
        self.result = Result()

    def _arrivals(self, what: Load, queues: list[str]) -> Iterator[tuple[int, WorkloadChanged]]:
        for kind in what.kinds:
            pod_sets = (PodSet(name="main", count=1, requests={"cpu": kind.cpu * 1000}),)
            for queue in queues:
                for n in range(kind.count):
                    at = n * kind.every
                    name = f"{kind.name}-{queue}-{n}"
                    self.kinds[f"ns/{name}"] = kind
                    yield (
                        at,
                        WorkloadChanged(
                            cluster=CLUSTER,
                            namespace="ns",
                            name=name,
                            uid=name,
                            queue=queue,
                            priority=kind.priority,
                            created_at=at * MILLI,
                            pod_sets=pod_sets,
                        ),
                    )

    def next_at(self) -> int | None:
        """When something happens next."""
        times = []
        if self.arrived < len(self.arrivals):
            times.append(self.arrivals[self.arrived][0])
        if self.ends:
            times.append(self.ends[0][0])
        return min(times, default=None)

    def apply_events(self, now: int) -> None:
        """Apply everything that happens up to this millisecond."""
        apply = self.engine.apply
        while self.ends and self.ends[0][0] <= now:
            at, key = heapq.heappop(self.ends)
            if self.started.get(key) == at - self.kinds[key].runs:
                del self.started[key]
                apply(WorkloadFinished(cluster=CLUSTER, namespace="ns", name=key[3:], uid=key[3:]))
        while self.arrived < len(self.arrivals) and self.arrivals[self.arrived][0] <= now:
            apply(self.arrivals[self.arrived][1])
            self.arrived += 1

    def act(self, decisions: list[Any], now: int) -> bool:
        """Start admitted workloads and stop preempted ones; return whether any was preempted."""
        stopped = False
        for decision in decisions:
            if isinstance(decision, Reserve):
                key = decision.key
                self.started[key] = now
                heapq.heappush(self.ends, (now + self.kinds[key].runs, key))
                self.result.admissions += 1
            elif isinstance(decision, Preempt):
                key = decision.key
                self.result.preemptions += 1
                self.result.wasted += (now - self.started.pop(key)) * self.kinds[key].cpu
                self.engine.apply(
                    WorkloadDrained(cluster=CLUSTER, namespace="ns", name=key[3:], uid=key[3:])
                )
                stopped = True
        return stopped


def run(what: Load, *, plainly: bool = False) -> Result:
    """Play a load; `plainly`: one cycle of every tree a millisecond, as Kueue does."""
    world = _World(what)
    gc.collect()
    gc.freeze()  # What the load generator keeps is not the engine's to trace.
    begin = time.process_time()
    now = 0
    while True:
        at = world.next_at()
        if plainly and world.engine.needs_another_cycle:
            now += 1
        elif at is None:
            break
        else:
            now = max(at, now + 1) if plainly else at
        world.apply_events(now)
        if plainly:
            world.act(world.engine.cycle(now * MILLI), now)
        else:
            while world.act(world.engine.decide(now * MILLI), now):
                pass
        world.result.makespan = now
    world.result.cpu_seconds = time.process_time() - begin
    gc.unfreeze()
    return world.result


def steady(*, waiting: int, cohorts: int, per_cohort: int) -> float:
    """Microseconds of CPU per admission while `waiting` workloads wait all the time.

    Their sizes divide the quota and their priorities are equal, so that the figure is that of an
    admission and not of a preemption.
    """
    each = waiting // (2 * cohorts * per_cohort) + 20
    kinds = (
        Kind(name="a", count=each, every=0, runs=10, priority=1, cpu=5),
        Kind(name="b", count=each, every=0, runs=15, priority=1, cpu=10),
    )
    what = Load(
        cohorts=cohorts,
        per_cohort=per_cohort,
        nominal=20,
        borrowing_limit=100,
        preemption=Preemption(within="LowerPriority", reclaim="Any"),
        kinds=kinds,
    )
    world = _World(what)
    world.apply_events(0)
    world.act(world.engine.decide(0), 0)
    before = world.result.admissions
    gc.collect()
    gc.freeze()
    begin = time.process_time()
    while world.result.admissions - before < STEADY and world.ends:
        now = world.ends[0][0]
        world.apply_events(now)
        while world.act(world.engine.decide(now * MILLI), now):
            pass
    spent = time.process_time() - begin
    gc.unfreeze()
    return spent / max(1, world.result.admissions - before) * 1e6


def _growth(say: Any) -> None:
    say("cost of one admission, microseconds of CPU")
    say("  waiting workloads (20 queues in cohorts of 10)")
    for waiting in (1_000, 10_000, 100_000):
        say(f"    {waiting:>7}: {steady(waiting=waiting, cohorts=2, per_cohort=10):8.1f}")
    say("  queues in cohorts of 10 (10 workloads each)")
    for queues in (100, 1_000, 5_000):
        cost = steady(waiting=queues * 10, cohorts=queues // 10, per_cohort=10)
        say(f"    {queues:>7}: {cost:8.1f}")
    say("  queues in one cohort (10 workloads each)")
    for queues in (100, 1_000):
        cost = steady(waiting=queues * 10, cohorts=1, per_cohort=queues)
        say(f"    {queues:>7}: {cost:8.1f}")


def _compare(say: Any) -> None:
    what = load("baseline")
    say("baseline load          makespan  admissions  preemptions  wasted CPU s   engine CPU s")
    for name, plainly in (("decided at once", False), ("cycle by cycle", True)):
        r = run(what, plainly=plainly)
        say(
            f"  {name:<18} {r.makespan / 1000:8.2f} s {r.admissions:>10} {r.preemptions:>12}"
            f" {r.wasted / 1000:>13.1f} {r.cpu_seconds:>14.2f}"
        )
    say("  (66 s is the bound that arithmetic sets)")


def main() -> int:
    """Run all benchmarks and print the results."""

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    gc.set_threshold(*GC_THRESHOLDS)
    result = run(load("large-scale"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    _growth(say)
    _compare(say)
    say(
        f"large-scale load: makespan {result.makespan / 1000:.2f} s, {result.admissions} admissions,"
        f" {result.preemptions} preemptions, {result.wasted / 1000:.1f} CPU s wasted"
    )
    say(f"engine: {result.admissions / result.cpu_seconds:.0f}, {peak:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
