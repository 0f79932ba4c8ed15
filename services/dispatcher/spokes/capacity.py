"""Free quota of the spokes, computed from their ClusterQueues, LocalQueues and Workloads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.kube.conditions import FINISHED, QUOTA_RESERVED, is_true
from shared.contracts.kube.kinds import CLUSTER_QUEUE, LOCAL_QUEUE
from shared.contracts.kube.quantities import QuantityError, amount
from shared.contracts.kube.queue_specs import quotas_of
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import WorkloadRef

Amounts = dict[str, int]
"""Resource to an amount in the units of `shared.contracts.kube.quantities.amount`."""


class LocalQueueName(NamedTuple):
    """A LocalQueue by namespace and name: it has the same ones on the hub and on a spoke."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a workload fits into a queue of a spoke."""

    has_queue: bool
    """The spoke has that LocalQueue, and the ClusterQueue that it points to."""

    fits: bool
    """The quota that is free covers the whole workload."""

    load: float
    """Share of quota in use with this workload, of the resource that is used most; 1.0 is full."""


@dataclass(slots=True, kw_only=True)
class _ClusterQueue:
    cohort: str
    nominal: Amounts
    limits: Amounts
    """Nominal quota and borrowing limit together; no entry for a resource without a borrowing limit."""


@dataclass(slots=True, kw_only=True)
class _Reserved:
    """Quota that a Workload of the spoke has reserved."""

    cluster_queue: str
    amounts: Amounts


@dataclass(slots=True, kw_only=True)
class _Expected:
    """Quota that an offered workload will request, before its Workload has reserved any."""

    queue: LocalQueueName
    amounts: Amounts


@dataclass(slots=True, kw_only=True)
class _SpokeQuota:
    queues: dict[str, _ClusterQueue] = field(default_factory=dict)
    local_queues: dict[LocalQueueName, str] = field(default_factory=dict)
    """LocalQueue to the name of its ClusterQueue."""

    reserved: dict[WorkloadRef, _Reserved] = field(default_factory=dict)
    expected: dict[WorkloadRef, _Expected] = field(default_factory=dict)
    finished: dict[WorkloadRef, None] = field(default_factory=dict)
    """Workloads whose copy has finished while the Workload still shows its reservation."""

    reserved_sums: dict[str, Amounts] = field(default_factory=dict)
    """Sums of `reserved` by ClusterQueue."""

    expected_sums: dict[LocalQueueName, Amounts] = field(default_factory=dict)
    """Sums of `expected` by LocalQueue."""

    def set_reserved(self, workload: WorkloadRef, reserved: _Reserved | None) -> None:
        before = self.reserved.pop(workload, None)
        if before is not None:
            _add(self.reserved_sums.setdefault(before.cluster_queue, {}), before.amounts, -1)
        if reserved is not None:
            self.reserved[workload] = reserved
            _add(self.reserved_sums.setdefault(reserved.cluster_queue, {}), reserved.amounts, 1)

    def set_expected(self, workload: WorkloadRef, expected: _Expected | None) -> None:
        before = self.expected.pop(workload, None)
        if before is not None:
            _add(self.expected_sums.setdefault(before.queue, {}), before.amounts, -1)
        if expected is not None:
            self.expected[workload] = expected
            _add(self.expected_sums.setdefault(expected.queue, {}), expected.amounts, 1)

    def usage(self, queues: Iterable[str], *, excluding: WorkloadRef | None = None) -> Amounts:
        """What Workloads have reserved or will request of these ClusterQueues."""
        names = set(queues)
        total = _sum(self.reserved_sums.get(name, {}) for name in names)
        for queue, amounts in self.expected_sums.items():
            if self.local_queues.get(queue) in names:
                _add(total, amounts, 1)
        if excluding is not None:
            reserved, expected = self.reserved.get(excluding), self.expected.get(excluding)
            if reserved is not None and reserved.cluster_queue in names:
                _add(total, reserved.amounts, -1)
            if expected is not None and self.local_queues.get(expected.queue) in names:
                _add(total, expected.amounts, -1)
        return total


class Capacity:
    """Quota of all spokes. Flavors are added up, since the spoke itself assigns them."""

    def __init__(self) -> None:
        self._spokes: dict[str, _SpokeQuota] = {}

    def observe_queue(self, spoke: str, observed: Observed) -> bool:
        """Record a ClusterQueue or LocalQueue of a spoke; return whether it was one."""
        quota = self._quota(spoke)
        if observed.plural == CLUSTER_QUEUE.plural:
            if observed.deleted or observed.body is None:
                quota.queues.pop(observed.name, None)
            else:
                quota.queues[observed.name] = _cluster_queue(observed.body)
            return True
        if observed.plural == LOCAL_QUEUE.plural:
            queue = LocalQueueName(observed.namespace or "", observed.name)
            if observed.deleted:
                quota.local_queues.pop(queue, None)
            else:
                name = spec_of(observed.body).get("clusterQueue")
                quota.local_queues[queue] = str(name or "")
            return True
        return False

    def observe_workload(self, workload: WorkloadRef, obj: Body | None) -> None:
        """Record a Workload of a spoke (`workload.cluster`); None: it is deleted."""
        quota = self._quota(workload.cluster)
        reserved = None if obj is None else _reserved(obj)
        if obj is None:
            quota.finished.pop(workload, None)
        if workload in quota.finished:
            reserved = None
        quota.set_reserved(workload, reserved)
        if reserved is not None:
            quota.set_expected(workload, None)

    def finish(self, workload: WorkloadRef) -> None:
        """Count the quota of a finished copy as free before its Workload shows that."""
        quota = self._quota(workload.cluster)
        if workload in quota.reserved:
            quota.finished[workload] = None
            quota.set_reserved(workload, None)
        quota.set_expected(workload, None)

    def reserve(self, workload: WorkloadRef, queue: LocalQueueName, amounts: Amounts) -> None:
        """Count the quota of an offered workload as used until its Workload has reserved it."""
        quota = self._quota(workload.cluster)
        if workload not in quota.reserved:
            quota.set_expected(workload, _Expected(queue=queue, amounts=amounts))

    def release(self, workload: WorkloadRef) -> None:
        """Undo `reserve`: the offer is withdrawn."""
        self._quota(workload.cluster).set_expected(workload, None)

    def fit(self, workload: WorkloadRef, queue: LocalQueueName, amounts: Amounts) -> Fit:
        """Whether `amounts` fit into `queue`. What `workload` itself uses already does not count."""
        quota = self._spokes.get(workload.cluster) or _SpokeQuota()
        name = quota.local_queues.get(queue, "")
        found = quota.queues.get(name)
        if found is None:
            return Fit(has_queue=False, fits=False, load=1.0)
        used = quota.usage([name], excluding=workload)
        cohort = [n for n, q in quota.queues.items() if found.cohort and q.cohort == found.cohort]
        cohort_used = quota.usage(cohort, excluding=workload) if cohort else used
        total = _sum(quota.queues[n].nominal for n in cohort) if cohort else found.nominal
        fits, load = True, 0.0
        for resource, requested in amounts.items():
            available = total.get(resource, 0)
            limit = min(available, found.limits.get(resource, available)) if cohort else available
            own = used.get(resource, 0) + requested
            everybody = cohort_used.get(resource, 0) + requested
            fits = fits and own <= limit and everybody <= available
            load = max(load, everybody / available if available else 1.0)
        return Fit(has_queue=True, fits=fits, load=load)

    def free(self, spoke: str) -> Amounts:
        """Quota of all ClusterQueues of a spoke that no Workload has reserved and no offer will request."""
        quota = self._spokes.get(spoke)
        if quota is None:
            return {}
        total = _sum(queue.nominal for queue in quota.queues.values())
        used = quota.usage(quota.queues)
        return {resource: has - used.get(resource, 0) for resource, has in total.items()}

    def _quota(self, spoke: str) -> _SpokeQuota:
        return self._spokes.setdefault(spoke, _SpokeQuota())


def requested_amounts(admission: Admission) -> Amounts:
    """What all pods of a workload request, as quota reserved it on the hub."""
    return _sum(_amounts(pod_set.usage) for pod_set in admission.pod_sets)


def _amounts(quantities: Mapping[str, str]) -> Amounts:
    """Kubernetes quantities as amounts; an invalid quantity counts as 0."""
    amounts: Amounts = {}
    for resource, text in quantities.items():
        try:
            amounts[resource] = amount(resource, str(text))
        except QuantityError:
            amounts[resource] = 0
    return amounts


def _sum(all_: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in all_:
        _add(total, amounts, 1)
    return total


def _add(total: Amounts, amounts: Amounts, factor: int) -> None:
    for resource, value in amounts.items():
        total[resource] = total.get(resource, 0) + factor * value


def _cluster_queue(obj: Body) -> _ClusterQueue:
    spec = spec_of(obj)
    nominal: Amounts = {}
    limits: Amounts = {}
    unlimited: dict[str, None] = {}
    for (_, name), quota in quotas_of(spec):
        own = _amounts({name: quota.get("nominalQuota") or "0"})
        _add(nominal, own, 1)
        limit = quota.get("borrowingLimit")
        if limit is None:
            unlimited[name] = None
        else:
            _add(limits, own, 1)
            _add(limits, _amounts({name: limit}), 1)
    return _ClusterQueue(
        cohort=str(spec.get("cohortName") or spec.get("cohort") or ""),
        nominal=nominal,
        limits={name: value for name, value in limits.items() if name not in unlimited},
    )


def _reserved(workload: Body) -> _Reserved | None:
    admission = status_of(workload).get("admission")
    if not admission or is_true(workload, FINISHED) or not is_true(workload, QUOTA_RESERVED):
        return None
    usages = (p.get("resourceUsage") or {} for p in admission.get("podSetAssignments") or [])
    return _Reserved(
        cluster_queue=str(admission.get("clusterQueue") or ""),
        amounts=_sum(_amounts(usage) for usage in usages),
    )
