"""Short ways to say facts; everything has a default."""

from typing import Any

from services.quota.engine import Policy, QuotaEngine
from services.quota.engine.facts import (
    AssignedPodSet,
    ClusterQueueChanged,
    CohortChanged,
    Decision,
    Evict,
    FlavorChanged,
    FlavorQuotas,
    LocalQueueChanged,
    NamespaceChanged,
    PodSet,
    Preempt,
    Preemption,
    Quota,
    QuotaHeld,
    Reserve,
    ResourceGroup,
    Selector,
    Wait,
    WorkloadChanged,
    WorkloadDrained,
    WorkloadFinished,
)
from services.quota.engine.invariants import check

CLUSTER = "c"
SECOND = 1_000_000_000


def quota(nominal: int, borrow: int | None = None, lend: int | None = None) -> Quota:
    return Quota(nominal=nominal, borrowing_limit=borrow, lending_limit=lend)


def group(*flavors: tuple[str, dict[str, Quota]]) -> ResourceGroup:
    return ResourceGroup(
        covered=tuple(flavors[0][1]),
        flavors=tuple(FlavorQuotas(name=name, quotas=quotas) for name, quotas in flavors),
    )


def slots(nominal: int, borrow: int | None = None, lend: int | None = None) -> ResourceGroup:
    """One flavor `default` of one resource `slot`."""
    return group(("default", {"slot": quota(nominal, borrow, lend)}))


def queue(
    name: str = "q", *groups: ResourceGroup, cohort: str | None = None, **more: Any
) -> ClusterQueueChanged:
    return ClusterQueueChanged(
        cluster=CLUSTER,
        name=name,
        cohort=cohort,
        groups=groups or (slots(10),),
        namespaces=more.pop("namespaces", Selector()),
        **more,
    )


def cohort(
    name: str, parent: str | None = None, *groups: ResourceGroup, uid: str = ""
) -> CohortChanged:
    return CohortChanged(cluster=CLUSTER, name=name, parent=parent, groups=groups, uid=uid)


def local(name: str = "q", target: str | None = None, **more: Any) -> LocalQueueChanged:
    return LocalQueueChanged(
        cluster=CLUSTER, namespace="ns", name=name, cluster_queue=target or name, **more
    )


def work(
    name: str, slot: int = 1, *, to: str = "q", priority: int = 0, **more: Any
) -> WorkloadChanged:
    """A workload of one pod that asks so many slots; created in the order of its number."""
    digits = "".join(c for c in name if c.isdigit())
    pod_sets = more.pop("pod_sets", (PodSet(name="main", count=1, requests={"slot": slot}),))
    return WorkloadChanged(
        cluster=CLUSTER,
        namespace="ns",
        name=name,
        uid=more.pop("uid", f"uid-{name}"),
        queue=to,
        priority=priority,
        created_at=more.pop("created_at", int(digits or 0) * SECOND),
        pod_sets=pod_sets,
        **more,
    )


class Bench:
    """An engine with a namespace and a flavor, and a clock that the test moves."""

    def __init__(self, *facts: Any, policy: Policy | None = None, explains: bool = True) -> None:
        self.engine = QuotaEngine(policy, explains=explains)
        self.now = 1_000 * SECOND
        self.take(
            NamespaceChanged(cluster=CLUSTER, name="ns"),
            FlavorChanged(cluster=CLUSTER, name="default"),
            *facts,
        )
        for fact in facts:
            if isinstance(fact, ClusterQueueChanged):
                self.take(local(fact.name))

    def take(self, *facts: Any) -> None:
        for fact in facts:
            self.engine.apply(fact)

    def decide(self, *facts: Any) -> list[Decision]:
        """Take the facts, decide a second later, check the invariants."""
        self.take(*facts)
        self.now += SECOND
        decisions = self.engine.decide(self.now)
        check(self.engine)
        return decisions

    def settle(self, *facts: Any) -> list[Decision]:
        """As `decide`, and whoever is evicted is gone at once, until nothing happens."""
        everything: list[Decision] = []
        decisions = self.decide(*facts)
        while decisions:
            everything += decisions
            gone = [d.key for d in decisions if isinstance(d, Preempt | Evict)]
            decisions = self.decide(*(drained(key) for key in gone)) if gone else []
        return everything

    def reason(self, name: str) -> str:
        found = self.engine.explain(CLUSTER, f"ns/{name}")
        assert found is not None
        return found.reason


def held(name: str, slot: int = 1, *, to: str = "q", flavor: str = "default") -> QuotaHeld:
    given = AssignedPodSet(name="main", count=1, flavors={"slot": flavor}, usage={"slot": slot})
    return QuotaHeld(
        cluster=CLUSTER, namespace="ns", name=name, uid=f"uid-{name}", cluster_queue=to,
        pod_sets=(given,), queue=to,
    )  # fmt: skip


def drained(key: str) -> WorkloadDrained:
    return WorkloadDrained(cluster=CLUSTER, namespace="ns", name=key.removeprefix("ns/"))


def finished(name: str) -> WorkloadFinished:
    return WorkloadFinished(cluster=CLUSTER, namespace="ns", name=name)


def admitted(decisions: list[Decision]) -> list[str]:
    return [d.key.removeprefix("ns/") for d in decisions if isinstance(d, Reserve)]


def preempted(decisions: list[Decision]) -> list[str]:
    return sorted(d.key.removeprefix("ns/") for d in decisions if isinstance(d, Preempt))


def waits(decisions: list[Decision]) -> dict[str, str]:
    return {d.key.removeprefix("ns/"): d.reason for d in decisions if isinstance(d, Wait)}


LOWER = Preemption(within="LowerPriority")
RECLAIM = Preemption(within="LowerPriority", reclaim="Any")
