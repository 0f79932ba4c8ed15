"""A busy queue with a known future, to ask forecasts about it and compare."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from services.quota.forecast import Arrival, Budget, FinishedRun, History, Simulation, Snapshot
from services.quota.wire.inbound import nanoseconds
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.explain import Explanation
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import admission, cluster_queue_spec, job_owner, observed, workload

AT: Final = datetime(2026, 1, 5, tzinfo=UTC)
CLUSTER: Final = "hub"
SECOND: Final = 1_000_000_000

SORTS: Final = {"unit-tests": (60, 0.3, 1), "build": (240, 0.5, 2), "release": (900, 0.4, 4)}
"""Name to median seconds, spread, and CPUs."""


def queue(nominal: str, name: str = "main", **spec: Any) -> Observed:
    """A ClusterQueue with CPUs of one flavor."""
    return observed(kinds.CLUSTER_QUEUE, name, cluster_queue_spec(nominal, "machines", **spec))


def set_up(nominal: str = "14", **spec: Any) -> list[Observed]:
    """One ClusterQueue `main`, reached from `team`'s LocalQueue `queue`."""
    return [
        observed(kinds.NAMESPACE, "team", {}),
        observed(kinds.RESOURCE_FLAVOR, "machines", {}),
        queue(nominal, **spec),
        observed(kinds.LOCAL_QUEUE, "queue", {"clusterQueue": "main"}, "team"),
    ]


def waiting(
    name: str, at: datetime, *, cpu: int = 1, priority: int = 0, queue: str = "queue"
) -> WorkloadState:
    """Return a workload that has waited since `at`."""
    return workload(
        f"job-{name}",
        cpu=cpu,
        queue=queue,
        priority=priority,
        created_at=at,
        owner=job_owner(name),
        uid=f"uid-{name}",
    )


def admitted(state: WorkloadState, at: datetime, cluster_queue: str = "main") -> Admission:
    """Return the admission of `state` on the only flavor."""
    return admission(state, flavor="machines", cluster_queue=cluster_queue, decided_at=at)


def ticking(seconds: float) -> Budget:
    """A budget of a clock that goes on by a millisecond whenever it is read."""
    ticks = iter(range(1_000_000_000))
    return Budget(seconds, lambda: next(ticks) / 1000)


def explanation_of(state: WorkloadState) -> Explanation:
    return Explanation(
        cluster=state.cluster,
        namespace=state.namespace,
        name=state.name,
        reason="WaitingForQuota",
        message="",
        created_at=state.created_at,
    )


@dataclass(slots=True)
class Submission:
    """A workload and the run time that only its world knows."""

    state: WorkloadState
    seconds: float


def submissions(random: Random, count: int) -> Iterator[Submission]:
    """A stream that keeps 16 CPUs busy, with bursts, two priorities and three sorts of work."""
    at = AT
    for number in range(count):
        burst = number % 40 < 12
        at += timedelta(seconds=random.expovariate(1 / (12 if burst else 60)))
        sort = random.choices(list(SORTS), weights=(6, 3, 1))[0]
        median, spread, cpu = SORTS[sort]
        yield Submission(
            state=waiting(
                f"{sort}-{number:05d}", at, cpu=cpu, priority=random.choice((0, 0, 0, 100))
            ),
            seconds=median * random.lognormvariate(0, spread),
        )


class World:
    """The truth: what really happens to the submissions."""

    def __init__(self, stream: list[Submission], *, objects: list[Observed]) -> None:
        self.objects = objects
        self.stream = stream
        self._base = Snapshot(at=AT, observed={o.subject: o for o in objects})
        self.course = Simulation(
            set_up=self._base.configuration(),
            arrivals=[self._arrival(each) for each in stream],
            start=nanoseconds(AT),
        )
        self._past = History()
        self._unended = list(stream)

    def _arrival(self, each: Submission) -> Arrival:
        known = self._base.arrival(each.state, History())
        assert known is not None
        return Arrival(fact=known.fact, at=known.at, runs_for=int(each.seconds * SECOND))

    def at(self, when: datetime) -> tuple[Snapshot, History]:
        """Play until `when`, each time a later one; what can be seen then, and what was learned."""
        self.course.run(until=nanoseconds(when))
        picture = Snapshot(at=when, observed=self._base.observed)
        alive = {key for shard in self.course.engine.shards() for key in shard.workloads}
        unended = []
        for number, each in enumerate(self._unended):
            fate = self.course.results.get((CLUSTER, f"team/{each.state.name}"))
            if fate is None:
                unended += self._unended[number:]
                break
            if fate.key not in alive:
                self._past.add(FinishedRun(state=each.state, seconds=each.seconds))
                continue
            unended.append(each)
            ident = (CLUSTER, fate.key)
            picture.workloads[ident] = each.state
            if fate.started_at is not None:
                started = AT + timedelta(microseconds=(fate.started_at - nanoseconds(AT)) // 1000)
                picture.admissions[ident] = admitted(each.state, started)
        self._unended = unended
        return picture, self._past
