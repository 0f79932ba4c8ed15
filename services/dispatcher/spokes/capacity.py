"""How much quota is free on a spoke, by what its queues and Workloads show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.contracts.kube.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, Object
from shared.contracts.kube.quantities import QuantityError, amount
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed

__all__ = ["Amounts", "Fit", "Room", "amounts_of", "asked_by"]

Amounts = dict[str, int]
"""Resource to what `shared.contracts.kube.quantities.amount` counts."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a workload would fit."""

    queue: bool
    """There is such a LocalQueue, with a ClusterQueue."""

    room: bool
    load: float
    """Share of the fullest resource, with it."""


@dataclass(slots=True, kw_only=True)
class _Queue:
    cohort: str
    nominal: Amounts
    most: Amounts
    """With what may be borrowed; a resource that is not here has no such limit."""


@dataclass(slots=True, kw_only=True)
class _Cluster:
    queues: dict[str, _Queue] = field(default_factory=dict)
    local: dict[Key, str] = field(default_factory=dict)
    held: dict[Key, tuple[str, Amounts]] = field(default_factory=dict)
    """Workload on the spoke to its ClusterQueue and what it holds there."""

    coming: dict[Key, tuple[Key, Amounts]] = field(default_factory=dict)
    """Workload to its LocalQueue and what it will ask for: offered, and not seen to hold quota yet."""

    done: dict[Key, None] = field(default_factory=dict)
    """Workloads whose copy has ended, which their Workload does not show yet."""

    used: dict[str, Amounts] = field(default_factory=dict)
    """Sums of `held` by ClusterQueue."""

    due: dict[Key, Amounts] = field(default_factory=dict)
    """Sums of `coming` by LocalQueue."""

    def hold(self, key: Key, held: tuple[str, Amounts] | None) -> None:
        before = self.held.pop(key, None)
        if before is not None:
            _add(self.used.setdefault(before[0], {}), before[1], -1)
        if held is not None:
            self.held[key] = held
            _add(self.used.setdefault(held[0], {}), held[1], 1)

    def expect(self, key: Key, coming: tuple[Key, Amounts] | None) -> None:
        before = self.coming.pop(key, None)
        if before is not None:
            _add(self.due.setdefault(before[0], {}), before[1], -1)
        if coming is not None:
            self.coming[key] = coming
            _add(self.due.setdefault(coming[0], {}), coming[1], 1)


class Room:
    """All spokes. Flavors are added up: which one it gets is the spoke's business."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}

    def take_queue(self, spoke: str, observed: Observed) -> bool:
        """Take in a queue of a spoke; return whether it was one."""
        cluster = self._clusters.setdefault(spoke, _Cluster())
        if observed.plural == CLUSTER_QUEUE.plural:
            if observed.deleted or observed.object is None:
                cluster.queues.pop(observed.name, None)
            else:
                cluster.queues[observed.name] = _queue(observed.object)
            return True
        if observed.plural == LOCAL_QUEUE.plural:
            key = (observed.namespace or "", observed.name)
            if observed.deleted or observed.object is None:
                cluster.local.pop(key, None)
            else:
                spec = observed.object.get("spec") or {}
                cluster.local[key] = str(spec.get("clusterQueue") or "")
            return True
        return False

    def take_workload(self, spoke: str, key: Key, workload: Object | None) -> None:
        """Take in a Workload of a spoke; None: it is gone."""
        cluster = self._clusters.setdefault(spoke, _Cluster())
        held = None if workload is None else _held(workload)
        if workload is None:
            cluster.done.pop(key, None)
        if key in cluster.done:
            held = None
        cluster.hold(key, held)
        if held is not None:
            cluster.expect(key, None)

    def finish(self, spoke: str, key: Key) -> None:
        """The copy has ended: its quota is free, or will be by the time that anybody gets there."""
        cluster = self._clusters.setdefault(spoke, _Cluster())
        if key in cluster.held:
            cluster.done[key] = None
            cluster.hold(key, None)
        cluster.expect(key, None)

    def expect(self, spoke: str, key: Key, queue: Key, asked: Amounts) -> None:
        """An offer is on its way: what it asks for is as good as taken."""
        cluster = self._clusters.setdefault(spoke, _Cluster())
        if key not in cluster.held:
            cluster.expect(key, (queue, asked))

    def release(self, spoke: str, key: Key) -> None:
        """The offer is withdrawn."""
        self._clusters.setdefault(spoke, _Cluster()).expect(key, None)

    def fit(self, spoke: str, queue: Key, asked: Amounts, *, but: Key | None = None) -> Fit:
        """How `asked` would fit into a queue of `spoke`; `but` does not count itself."""
        cluster = self._clusters.get(spoke) or _Cluster()
        name = cluster.local.get(queue, "")
        found = cluster.queues.get(name)
        if found is None:
            return Fit(queue=False, room=False, load=1.0)
        used = self._used(cluster, [name], but)
        mates = [n for n, q in cluster.queues.items() if found.cohort and q.cohort == found.cohort]
        pooled = self._used(cluster, mates, but) if mates else used
        total = _sum(cluster.queues[mate].nominal for mate in mates) if mates else found.nominal
        room, load = True, 0.0
        for resource, wants in asked.items():
            has = total.get(resource, 0)
            most = min(has, found.most.get(resource, has)) if mates else has
            own = used.get(resource, 0) + wants
            everybody = pooled.get(resource, 0) + wants
            room = room and own <= most and everybody <= has
            load = max(load, everybody / has if has else 1.0)
        return Fit(queue=True, room=room, load=load)

    def free(self, spoke: str) -> Amounts:
        """What no Workload holds and no offer will, over all queues."""
        cluster = self._clusters.get(spoke)
        if cluster is None:
            return {}
        total = _sum(queue.nominal for queue in cluster.queues.values())
        used = self._used(cluster, list(cluster.queues), None)
        return {resource: has - used.get(resource, 0) for resource, has in total.items()}

    @staticmethod
    def _used(cluster: _Cluster, names: list[str], but: Key | None) -> Amounts:
        wanted = set(names)
        total = _sum(cluster.used.get(name, {}) for name in names)
        for queue, due in cluster.due.items():
            if cluster.local.get(queue) in wanted:
                _add(total, due, 1)
        if but is not None:
            held, coming = cluster.held.get(but), cluster.coming.get(but)
            if held is not None and held[0] in wanted:
                _add(total, held[1], -1)
            if coming is not None and cluster.local.get(coming[0]) in wanted:
                _add(total, coming[1], -1)
        return total


def amounts_of(texts: Mapping[str, str]) -> Amounts:
    """Quantities as they are written; what is none counts as nothing."""
    amounts: Amounts = {}
    for resource, text in texts.items():
        try:
            amounts[resource] = amount(resource, str(text))
        except QuantityError:
            amounts[resource] = 0
    return amounts


def asked_by(admission: Admission) -> Amounts:
    """What all pods of a workload ask, as quota reserved it."""
    return _sum(amounts_of(pod_set.usage) for pod_set in admission.pod_sets)


def _sum(all_: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in all_:
        _add(total, amounts, 1)
    return total


def _add(total: Amounts, amounts: Amounts, times: int) -> None:
    for resource, value in amounts.items():
        total[resource] = total.get(resource, 0) + times * value


def _queue(obj: Object) -> _Queue:
    spec = obj.get("spec") or {}
    nominal: list[Amounts] = []
    most: dict[str, int] = {}
    unlimited: dict[str, None] = {}
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for resource in flavor.get("resources") or []:
                name = str(resource.get("name"))
                own = amounts_of({name: resource.get("nominalQuota") or "0"})
                nominal.append(own)
                limit = resource.get("borrowingLimit")
                if limit is None:
                    unlimited[name] = None
                else:
                    borrows = amounts_of({name: limit})[name]
                    most[name] = most.get(name, 0) + own[name] + borrows
    return _Queue(
        cohort=str(spec.get("cohortName") or spec.get("cohort") or ""),
        nominal=_sum(nominal),
        most={name: value for name, value in most.items() if name not in unlimited},
    )


def _held(workload: Object) -> tuple[str, Amounts] | None:
    status = workload.get("status") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or []}
    admission = status.get("admission")
    if not admission or conditions.get("Finished") == "True":
        return None
    if conditions.get("QuotaReserved") != "True":
        return None
    usages = (p.get("resourceUsage") or {} for p in admission.get("podSetAssignments") or [])
    return str(admission.get("clusterQueue") or ""), _sum(amounts_of(usage) for usage in usages)
