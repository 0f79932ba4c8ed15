"""Who holds what of which queue, as the streams record it. Shares no code with the quota engine.

The arithmetic is Kueue's (kubernetes-sigs/kueue pkg/cache/scheduler/resource_node.go): a node keeps
the quota that it does not lend, and borrows more from its cohort up to its borrowing limit. Amounts are
counted as `shared.contracts.kube.quantities.amount` does.

A message costs a few steps up the tree of its queue. Sums over children are made when somebody asks, kept
until a quota changes, and corrected by each decision.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from shared.contracts.kube import kinds
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.kube.quantities import amount, format_amount, nearest_amount
from shared.contracts.messages.admissions import HOLDING, Admission, PodSetAssignment
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState

Cell = tuple[str, str]
"""Flavor and resource."""


class WorkloadId(NamedTuple):
    """A workload of one cluster. A uid alone does not identify one: a writer can give it to two names."""

    namespace: str
    name: str
    uid: str


QUEUES: Final = (kinds.CLUSTER_QUEUE.group, kinds.CLUSTER_QUEUE.plural)
COHORTS: Final = (kinds.COHORT.group, kinds.COHORT.plural)

UNLIMITED_FROM: Final = 2**63 - 1
"""A quota of this amount and more has no limit, as in Kueue."""

UNLIMITED: Final = 1 << 100


@dataclass(slots=True, kw_only=True, eq=False)
class LedgerNode:
    """A ClusterQueue or a Cohort."""

    name: str
    is_cohort: bool = False
    parent: str = ""
    """Name of its cohort; empty: it has none."""

    nominal: dict[Cell, int] = field(default_factory=dict)
    lending: dict[Cell, int] = field(default_factory=dict)
    borrowing: dict[Cell, int] = field(default_factory=dict)
    groups: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    """Resources and flavors of each resource group."""

    usage: dict[Cell, int] = field(default_factory=dict)
    """Of a queue, what its workloads hold. Of a cohort, what its children use beyond what is their own; a
    cell that is missing has not been summed up."""

    holders: int = 0
    """Workloads that hold quota of this queue."""

    spec: dict[str, Any] = field(default_factory=dict)
    """As observed, without its defaults."""

    @property
    def is_open(self) -> bool:
        """True if the queue is not stopped and open to all namespaces."""
        return (
            self.spec.get("stopPolicy", "None") == "None"
            and self.spec.get("namespaceSelector") == {}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """The part of one pod set that needs no quota any more."""

    asked: int
    """Pods that the job asks for now."""

    reclaimable: int
    returned: dict[str, str]
    running: int
    """Pods that run, where these are more than have quota."""


class QuotaLedger:
    """The queues of one cluster and the quota that workloads hold in them."""

    def __init__(self) -> None:
        self.queues: dict[str, LedgerNode] = {}
        self._cohorts: dict[str, LedgerNode] = {}
        self._children: dict[str, list[LedgerNode]] | None = None
        """Cohort to its children; None: quotas or parents have changed."""

        self._cyclic: set[str] = set()
        """Cohorts in a circle, which has no root. They neither lend nor borrow."""

        self._subtrees: dict[tuple[bool, str, Cell], int] = {}
        self._held: dict[WorkloadId, Admission] = {}
        """The admission by which a workload holds quota."""

        self._ended: dict[WorkloadId, dict[str, _Ended]] = {}
        """What finished of each of its pod sets, where anything did."""

    # What is observed

    def observe(self, observed: Observed) -> bool:
        """Ingest the state of a queue or a cohort, ignore other kinds. Returns whether a quota changed.

        Raises `QuantityError`, and then keeps what it knew.
        """
        kind = (observed.group, observed.plural)
        if kind == QUEUES:
            return self._keep(self.queues, observed, is_cohort=False)
        return kind == COHORTS and self._keep(self._cohorts, observed, is_cohort=True)

    def _keep(self, nodes: dict[str, LedgerNode], observed: Observed, *, is_cohort: bool) -> bool:
        before = nodes.get(observed.name)
        if observed.deleted:
            if before is None:
                return False
            if is_cohort:
                del nodes[observed.name]
            else:  # Its workloads hold on.
                nodes[observed.name] = _node(observed.name, {}, before)
        else:
            spec = (observed.object or {}).get("spec") or {}
            if before is not None and before.spec == spec:
                return False
            nodes[observed.name] = _node(observed.name, spec, before, is_cohort=is_cohort)
        self._children = None
        return True

    # Who holds what

    def holder(self, of: WorkloadState | Admission) -> Admission | None:
        """Return the admission by which this workload, of this uid, holds quota; None: it holds none."""
        return self._held.get(_id_of(of))

    def holders(self) -> Iterable[Admission]:
        """Return the admission of each workload that holds quota."""
        return self._held.values()

    def queue_held(self, namespace: str, name: str, uid: str) -> str | None:
        """Return the ClusterQueue of which a workload holds quota; None: it holds none."""
        held = self._held.get(WorkloadId(namespace, name, uid))
        return None if held is None else held.cluster_queue

    def reclaim(self, state: WorkloadState) -> None:
        """Release the quota of finished pods and of machines that are gone; count pods beyond it."""
        ident = _id_of(state)
        if state.phase in ENDED_PHASES:  # The decision that follows gives back the rest.
            if ident not in self._held:
                self._ended.pop(ident, None)
            return
        running = state.running_pods or {}
        ended = {
            one.name: _Ended(
                asked=min(one.count, INT32_MAX),
                reclaimable=one.reclaimable,
                returned=dict(one.returned),
                running=min(running.get(one.name, 0), INT32_MAX),
            )
            for one in state.pod_sets
            if one.reclaimable or one.returned or one.name in running
        }
        if ended == self._ended.get(ident, {}):
            return
        holder = self._held.get(ident)
        if holder is not None:
            self._add(holder, -1)
        self._ended[ident] = ended
        if holder is not None:
            self._add(holder, 1)

    def usage(self, admission: Admission, *, beyond: bool = True) -> dict[Cell, int]:
        """Return the amount held of each flavor and resource; also by pods `beyond` what was granted."""
        ended = self._ended.get(_id_of(admission), {})
        usage: dict[Cell, int] = {}
        for pod_set in admission.pod_sets:
            for resource, flavor in pod_set.flavors.items():
                held = _left(pod_set, resource, ended.get(pod_set.name), beyond=beyond)
                usage[flavor, resource] = usage.get((flavor, resource), 0) + held
        return usage

    def record(self, admission: Admission) -> None:
        """Ingest one decision."""
        ident = _id_of(admission)
        before = self._held.pop(ident, None)
        if before is not None:
            self._count(before, -1)
        if admission.state in HOLDING:
            self._held[ident] = admission
            self._count(admission, 1)
        elif admission.state == "released":
            self._ended.pop(ident, None)

    def increase(self, admission: Admission) -> dict[Cell, int]:
        """Return what `admission` grants in addition to what its workload was granted."""
        now = self.usage(admission, beyond=False) if admission.state in HOLDING else {}
        before = self._held.get(_id_of(admission))
        if before is not None and before.cluster_queue == admission.cluster_queue:
            for cell, held in self.usage(before, beyond=False).items():
                now[cell] = now.get(cell, 0) - held
        return {cell: more for cell, more in now.items() if more > 0}

    def _count(self, admission: Admission, sign: int) -> None:
        self._add(admission, sign)
        self.queues[admission.cluster_queue].holders += sign

    def _add(self, admission: Admission, sign: int) -> None:
        queue = self.queues.setdefault(
            admission.cluster_queue, LedgerNode(name=admission.cluster_queue)
        )
        for cell, held in self.usage(admission).items():
            self._change(queue, cell, sign * held)

    def _change(self, queue: LedgerNode, cell: Cell, change: int) -> None:
        """Use more or less of a cell; cohorts whose sum is known are corrected."""
        before = queue.usage.get(cell, 0)
        queue.usage[cell] = before + change
        if self._children is None:
            return  # All sums are made anew.
        node: LedgerNode = queue
        while (parent := self._parent(node)) is not None and cell in parent.usage:
            own = self._own(node, cell)
            passed_on = max(0, node.usage[cell] - own) - max(0, before - own)
            before = parent.usage[cell]
            parent.usage[cell] = before + passed_on
            node = parent

    # What is free

    def available(self, queue: str, cell: Cell) -> int:
        """Return what `queue` can still use of a flavor's resource, borrowing included.

        Negative where more is held than there is now.
        """
        node = self.queues.get(queue)
        if node is None:
            return 0
        if self._children is None:
            self._build_children()
        return self._available(node, cell)

    def _available(self, node: LedgerNode, cell: Cell) -> int:
        parent = self._parent(node)
        usage, subtree = self._usage(node, cell), self._subtree(node, cell)
        if parent is None:
            return subtree - usage
        own = self._own(node, cell)
        above = self._available(parent, cell)
        if cell in node.borrowing:
            above = min(above, subtree - own + node.borrowing[cell] - max(0, usage - own))
        return max(0, own - usage) + above

    def _build_children(self) -> None:
        """Forget all sums and find out anew who is below whom."""
        for nodes in (self.queues, self._cohorts):
            for node in list(nodes.values()):
                if node.parent:  # A cohort exists as soon as somebody names it.
                    self._cohorts.setdefault(
                        node.parent, LedgerNode(name=node.parent, is_cohort=True)
                    )
        self._cyclic = {name for name in self._cohorts if self._has_no_root(name)}
        self._subtrees.clear()
        for cohort in self._cohorts.values():
            cohort.usage.clear()
        children: dict[str, list[LedgerNode]] = {}
        for nodes in (self.queues, self._cohorts):
            for node in nodes.values():
                if (parent := self._parent(node)) is not None:
                    children.setdefault(parent.name, []).append(node)
        self._children = children

    def _has_no_root(self, name: str) -> bool:
        seen: set[str] = set()
        while name:
            if name in seen:
                return True
            seen.add(name)
            cohort = self._cohorts.get(name)
            name = "" if cohort is None else cohort.parent
        return False

    def _parent(self, node: LedgerNode) -> LedgerNode | None:
        return None if node.parent in self._cyclic else self._cohorts.get(node.parent)

    def _below(self, cohort: LedgerNode) -> Iterator[LedgerNode]:
        assert self._children is not None
        yield from self._children.get(cohort.name, ())

    def _subtree(self, node: LedgerNode, cell: Cell) -> int:
        """The quota of `node`, and what its children lend."""
        key = (node.is_cohort, node.name, cell)
        if (known := self._subtrees.get(key)) is None:
            known = node.nominal.get(cell, 0)
            if node.is_cohort:
                known += sum(self._subtree(c, cell) - self._own(c, cell) for c in self._below(node))
            self._subtrees[key] = known = min(known, UNLIMITED)
        return known

    def _own(self, node: LedgerNode, cell: Cell) -> int:
        """Return the quota that `node` never lends."""
        lending = node.lending.get(cell)
        return 0 if lending is None else max(0, self._subtree(node, cell) - lending)

    def _usage(self, node: LedgerNode, cell: Cell) -> int:
        if not node.is_cohort:
            return node.usage.get(cell, 0)
        if (known := node.usage.get(cell)) is None:
            known = node.usage[cell] = sum(
                max(0, self._usage(child, cell) - self._own(child, cell))
                for child in self._below(node)
            )
        return known


def _id_of(of: WorkloadState | Admission) -> WorkloadId:
    return WorkloadId(of.namespace, of.name, of.uid)


def amount_text(cell: Cell, held: int) -> str:
    """The amount of a resource in a flavor, for a sentence: ``-2 cpu of default``."""
    flavor, resource = cell
    sign = "-" if held < 0 else ""
    return f"{sign}{format_amount(resource, abs(held))} {resource} of {flavor}"


def _left(pod_set: PodSetAssignment, resource: str, ended: _Ended | None, *, beyond: bool) -> int:
    """What a pod set still holds of a resource, with `beyond` also by pods that it was not granted."""
    held = nearest_amount(resource, pod_set.usage.get(resource, "0"))
    if ended is None:
        return held
    left = max(0, max(ended.asked, pod_set.count) - max(0, ended.reclaimable))
    pods = max(min(left, pod_set.count), ended.running if beyond else 0)
    if pods != pod_set.count:
        held = held // max(1, pod_set.count) * pods
    return max(0, held - nearest_amount(resource, ended.returned.get(resource, "0")))


def _node(
    name: str, spec: dict[str, Any], before: LedgerNode | None, *, is_cohort: bool = False
) -> LedgerNode:
    node = LedgerNode(
        name=name,
        is_cohort=is_cohort,
        parent=str(
            spec.get("cohortName")
            or spec.get("cohort")
            or spec.get("parentName")
            or spec.get("parent")
            or ""
        ),
        spec=spec,
    )
    if before is not None and not is_cohort:
        node.usage, node.holders = before.usage, before.holders
    for group in spec.get("resourceGroups") or []:
        flavors: list[dict[str, Any]] = group.get("flavors") or []
        node.groups.append(
            (tuple(group.get("coveredResources") or ()), tuple(one["name"] for one in flavors))
        )
        for flavor in flavors:
            for resource in flavor.get("resources") or []:
                cell = (flavor["name"], resource["name"])
                for limits, field_name in (
                    (node.nominal, "nominalQuota"),
                    (node.lending, "lendingLimit"),
                    (node.borrowing, "borrowingLimit"),
                ):
                    if (text := resource.get(field_name)) is not None:
                        quota = amount(cell[1], str(text))
                        limits[cell] = UNLIMITED if quota >= UNLIMITED_FROM else quota
    return node
