"""The state of quota at one instant, read from the streams or from files, and changeable for what-if."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Final

from services.quota.engine import Policy
from services.quota.engine.facts import Fact, Key, QuotaHeld
from services.quota.forecast.history import FinishedRun, History
from services.quota.forecast.simulation import Arrival, RunningWorkload, Simulation
from services.quota.wire import inbound, outbound
from services.quota.wire.inbound import CONFIGURATION_KINDS
from services.quota.wire.workloads import workload_changed
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import is_synced, message_sort

Id = tuple[str, Key]
"""Cluster and ``<namespace>/<name>``."""

SECOND: Final = 1_000_000_000
_CLUSTER_QUEUES: Final = (kinds.CLUSTER_QUEUE.group, kinds.CLUSTER_QUEUE.plural)
_LOCAL_QUEUES: Final = (kinds.LOCAL_QUEUE.group, kinds.LOCAL_QUEUE.plural)


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The last state of every object, workload and admission. Changes stay in this snapshot."""

    at: datetime
    observed: dict[str, Observed] = field(default_factory=dict)
    """By subject."""

    workloads: dict[Id, WorkloadState] = field(default_factory=dict)
    admissions: dict[Id, Admission] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    problems: list[str] = field(default_factory=list)
    """Sentences about objects that cannot be used."""

    def copy(self) -> "Snapshot":
        """A copy whose changes do not affect this snapshot."""
        return Snapshot(
            at=self.at,
            observed=dict(self.observed),
            workloads=dict(self.workloads),
            admissions=dict(self.admissions),
            policy=self.policy,
        )

    def observe(self, observed: Observed) -> None:
        """Add, replace or remove an object."""
        if observed.deleted:
            self.observed.pop(observed.subject, None)
        else:
            self.observed[observed.subject] = observed

    def of(self, kind: Kind, cluster: str) -> Iterator[Observed]:
        """The objects of one kind in one cluster."""
        for each in self.observed.values():
            if (each.group, each.plural, each.cluster) == (kind.group, kind.plural, cluster):
                yield each

    def cluster_queue_of(self, state: WorkloadState) -> str:
        """The ClusterQueue whose quota it holds, or to which its LocalQueue points; empty: none."""
        return self.cluster_queues()(state)

    def cluster_queues(self) -> Callable[[WorkloadState], str]:
        """`cluster_queue_of` for many workloads, as of now: it looks through the LocalQueues once."""
        local_queues = {
            (each.cluster, each.namespace, each.name): str(_spec(each).get("clusterQueue") or "")
            for each in self.observed.values()
            if (each.group, each.plural) == _LOCAL_QUEUES
        }

        def queue_of(state: WorkloadState) -> str:
            admission = self.admissions.get(_id(state))
            if admission is not None and admission.uid == state.uid and admission.state in HOLDING:
                return admission.cluster_queue
            return local_queues.get((state.cluster, state.namespace, state.queue), "")

        return queue_of

    # Simulation ------------------------------------------------------------------------------------

    def configuration(self) -> Iterator[Fact]:
        """Facts about queues, flavors and all else that decides about workloads."""
        order = {
            (kind.group, kind.plural): number for number, kind in enumerate(CONFIGURATION_KINDS)
        }
        wanted = [o for o in self.observed.values() if (o.group, o.plural) in order]
        for each in sorted(wanted, key=lambda o: (order[o.group, o.plural], o.subject)):
            try:
                yield from inbound.observed_facts(each)
            except inbound.TranslateError as error:
                self.problems.append(str(error))

    def arrivals(self, history: History, random: Random | None = None) -> Iterator[Arrival]:
        """The waiting workloads."""
        for ident, state in self.workloads.items():
            if state.phase == "finished" or self.quota_held(ident) is not None:
                continue
            if (arrival := self.arrival(state, history, random)) is not None:
                yield arrival

    def arrival(
        self, state: WorkloadState, history: History, random: Random | None = None
    ) -> Arrival | None:
        """The arrival of a workload; None: its state cannot be used."""
        try:
            fact = workload_changed(state)
        except inbound.TranslateError as error:
            self.problems.append(str(error))
            return None
        seconds = (
            history.median_seconds(state)
            if random is None
            else history.sample_seconds(state, random)
        )
        at = max(inbound.nanoseconds(self.at), fact.created_at)
        return Arrival(fact=fact, at=at, runs_for=int(seconds * SECOND))

    def holders(self, history: History, random: Random | None = None) -> Iterator[RunningWorkload]:
        """The workloads that hold quota, with their estimated ends."""
        now = inbound.nanoseconds(self.at)
        for ident, state in self.workloads.items():
            held = None if state.phase == "finished" else self.quota_held(ident)
            if held is None:
                continue
            elapsed = max(0.0, (now - held.at) / SECOND)
            again = self.arrival(state, history, random)
            rest = (
                history.median_seconds(state, elapsed=elapsed)
                if random is None
                else history.sample_seconds(state, random, elapsed=elapsed)
            )
            yield RunningWorkload(
                held=held, ends_at=now + int(max(0.0, rest) * SECOND), requeued=again
            )

    def quota_held(self, ident: Id) -> QuotaHeld | None:
        """The quota that a workload holds, by the log or by its cluster's record; None: it holds none."""
        state, admission = self.workloads.get(ident), self.admissions.get(ident)
        if state is None:
            return None
        if admission is not None and admission.uid == state.uid:
            return outbound.to_quota_held(admission) if admission.state in HOLDING else None
        return outbound.recorded_holding(state)

    def simulation(
        self, history: History, *, random: Random | None = None, later: Iterable[Arrival] = ()
    ) -> Simulation:
        """A simulation with median run times, or with random ones; `later` must be in order of time."""
        return Simulation(
            set_up=self.configuration(),
            holders=self.holders(history, random),
            arrivals=self.arrivals(history, random),
            later=later,
            start=inbound.nanoseconds(self.at),
            policy=self.policy,
        )

    # Competitors -----------------------------------------------------------------------------------

    def cohort_only(self, cluster: str, cluster_queue: str) -> "Snapshot":
        """A snapshot with only the cohort tree of one ClusterQueue: its queues, and what competes there."""
        roots = self._roots(cluster)
        members = {name for name, root in roots.items() if root == roots.get(cluster_queue)}
        small = Snapshot(at=self.at, admissions=self.admissions, policy=self.policy)
        small.observed = {
            subject: each
            for subject, each in self.observed.items()
            if each.cluster == cluster and _leads_to(each, members)
        }
        queue_of = small.cluster_queues()
        small.workloads = {
            ident: state
            for ident, state in self.workloads.items()
            if state.cluster == cluster and queue_of(state) in members
        }
        return small

    def _roots(self, cluster: str) -> dict[str, str]:
        """ClusterQueue to the root of its tree."""
        parents: dict[str, str] = {}
        for each in self.of(kinds.COHORT, cluster):
            spec = _spec(each)
            if parent := spec.get("parentName") or spec.get("parent"):
                parents[each.name] = str(parent)
        roots = {}
        for each in self.of(kinds.CLUSTER_QUEUE, cluster):
            spec = _spec(each)
            top = str(spec.get("cohortName") or spec.get("cohort") or "")
            met: set[str] = set()
            while top in parents and top not in met:
                met.add(top)
                top = parents[top]
            roots[each.name] = f"cohort {top}" if top else f"queue {each.name}"
        return roots


class SnapshotReader:
    """Builds a snapshot from the messages of the views, in any order."""

    def __init__(self, at: datetime) -> None:
        self.snapshot = Snapshot(at=at)

    def apply(self, subject: str, body: Mapping[str, Any]) -> None:
        """Apply one message; other kinds of messages are ignored. Raises pydantic's ValidationError."""
        match message_sort(subject):
            case "observed" if not is_synced(subject):
                self.snapshot.observe(Observed.model_validate(body))
            case "workload":
                state = WorkloadState.model_validate(body)
                if state.phase == "gone":
                    self.snapshot.workloads.pop(_id(state), None)
                else:
                    self.snapshot.workloads[_id(state)] = state
            case "admission":
                admission = Admission.model_validate(body)
                self.snapshot.admissions[_id(admission)] = admission
            case _:
                pass


def finished_runs(
    admissions: Iterable[Admission], workloads: Iterable[WorkloadState]
) -> Iterator[FinishedRun]:
    """The runs on a log, each from the last admission before the workload's end.

    Both in the order of the log.
    """
    begun: dict[tuple[Id, str], list[datetime]] = {}
    for admission in admissions:
        if admission.state == "admitted":
            begun.setdefault((_id(admission), admission.uid), []).append(admission.decided_at)
    seen: set[tuple[Id, str]] = set()
    for state in workloads:
        identity = (_id(state), state.uid)
        if state.finish is None or state.finish.at is None or identity in seen:
            continue
        before = [at for at in begun.get(identity, []) if at <= state.finish.at]
        if before:
            seen.add(identity)
            yield FinishedRun(state=state, seconds=(state.finish.at - before[-1]).total_seconds())


def _id(message: WorkloadState | Admission) -> Id:
    return message.cluster, f"{message.namespace}/{message.name}"


def _spec(observed: Observed) -> Mapping[str, Any]:
    return (observed.object or {}).get("spec") or {}


def _leads_to(observed: Observed, cluster_queues: Collection[str]) -> bool:
    """Whether an object may decide about workloads of these ClusterQueues."""
    if (observed.group, observed.plural) == _LOCAL_QUEUES:
        return _spec(observed).get("clusterQueue") in cluster_queues
    is_queue = (observed.group, observed.plural) == _CLUSTER_QUEUES
    return not is_queue or observed.name in cluster_queues
