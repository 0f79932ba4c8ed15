"""Everything that the dispatcher has read in one term.

It holds the hub's reservations and check states, the orders to the spokes and the reports about them, and
the copies that are observed. All of it can be read from the bus again, so losing it loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from services.dispatcher.hub.configuration import MultiKueueConfiguration
from services.dispatcher.hub.given_answers import GivenAnswer, GivenAnswers
from services.dispatcher.hub.jobs import HubJobs
from services.dispatcher.hub.other_checks import OtherChecks
from services.dispatcher.spokes.capacity import Capacity, LocalQueueName, requested_amounts
from services.dispatcher.spokes.copies import (
    Copy,
    CopyPhase,
    RemoteWorkload,
    order_id,
    read_copy,
    read_remote_workload,
)
from services.dispatcher.spokes.liveness import SpokeHealth
from services.dispatcher.spokes.statuses import PackedRecord, SpokeStatuses
from shared.contracts.controllers import MULTIKUEUE, may_answer
from shared.contracts.kube.bodies import status_of
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.messages.admissions import GRANTED, Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import CopyState, Heartbeat, HubStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integrations

T_co = TypeVar("T_co", bound=Message, covariant=True)

_LIVE: Final = frozenset({"offered", "chosen"})
"""States of an order by which a copy may exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T_co]):
    """A message and its sequence in the log."""

    message: T_co
    sequence: int
    received_at: float = 0.0
    """By the dispatcher's monotonic clock."""


class _CopyName(NamedTuple):
    """A job of a spoke. A tombstone has this name, but not the labels of the copy."""

    spoke: str
    resource: str
    """Plural and group."""

    namespace: str
    name: str


class Store:
    """The memory of one term. Workloads are those of the hub unless a method says otherwise."""

    def __init__(
        self,
        *,
        cluster: str,
        origin: str,
        nominations: bool,
        health: SpokeHealth,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._origin = origin
        self._clock = clock
        self.health = health
        self.configuration = MultiKueueConfiguration(cluster=cluster)
        self.integrations = Integrations()
        """The kinds of jobs that the hub's Integration objects describe. Copies are read by them too: a
        copy is of a kind of the hub, and a spoke must not choose what is evaluated here."""

        self.jobs = HubJobs(
            cluster=cluster, nominations=nominations, integrations=self.integrations
        )
        self.capacity = Capacity()
        self.loaded_spokes: dict[str, None] = {}
        """Spokes whose objects were all read: an object that is not in the store does not exist."""

        self.admissions: dict[WorkloadRef, Admission] = {}
        """Of workloads that hold quota and have admission checks."""

        self.answers: dict[WorkloadRef, Record[CheckState]] = {}
        """The last answer of the MultiKueue check. It may be of another check until it is known which
        checks are MultiKueue's."""

        self.other_checks = OtherChecks(self.configuration)
        self.given_answers = GivenAnswers(self.configuration)

        self.orders: dict[WorkloadRef, dict[str, Record[Dispatch]]] = {}
        """By spoke."""

        self.expected_orders: set[tuple[WorkloadRef, str]] = set()
        """Workload and spoke of each order that is being published."""

        self.reports: dict[WorkloadRef, dict[str, Record[CopyState]]] = {}
        """By spoke, without a status; of orders that exist."""

        self.ended_statuses = SpokeStatuses()
        """Of copies that had succeeded, as reported."""

        self.copy_statuses = SpokeStatuses()
        self.hub_statuses: dict[WorkloadRef, PackedRecord[HubStatus]] = {}
        self.copies: dict[WorkloadRef, dict[str, Copy]] = {}
        """By spoke."""

        self.remote_workloads: dict[WorkloadRef, RemoteWorkload] = {}
        """By Workload of the spoke."""

        self._copied: dict[_CopyName, WorkloadRef] = {}
        """Copy to its workload."""

        self._dirty: dict[WorkloadRef, None] = {}

    # --- reading ---

    def has_work(self) -> bool:
        """Whether the hub has a MultiKueue check, or an order was given in this or an earlier term."""
        return bool(self.orders or self.configuration.multikueue_checks())

    def observe_integration(self, observed: Observed) -> None:
        """Record an Integration object of the hub. One of a spoke is ignored."""
        if observed.cluster == self._cluster:
            self.integrations.observe(observed)
            self.mark_all_dirty()

    def mark_listed(self, cluster: str) -> None:
        """Record that a watcher has listed all objects of `cluster`."""
        self.configuration.mark_listed(cluster)
        self.mark_all_dirty()

    def observe_hub_object(self, observed: Observed) -> None:
        """Record an object of the hub."""
        if self.configuration.observe(observed):
            self.mark_all_dirty()
            return
        workload = self.jobs.observe(observed)
        if workload is not None:
            self.mark_dirty(workload)

    def observe_admission(self, admission: Admission) -> None:
        """Record a decision of quota."""
        workload = admission.ref
        if admission.checks and admission.state in GRANTED:
            self.admissions[workload] = admission
        else:
            self.other_checks.on_quota_lost(workload)
            if self.admissions.pop(workload, None) is None and workload not in self.orders:
                return
        # Dirty even if nothing of it is left: a plan for it may be in progress.
        self._dirty[workload] = None

    def observe_check(self, check: CheckState, sequence: int) -> None:
        """Record a check state of this term, of an earlier one, or of another service."""
        workload = check.ref
        self.other_checks.observe_answer(check)
        self.given_answers.observe(check, sequence)
        if not self.configuration.is_multikueue_check(check.check):
            self.mark_dirty(workload)
        if may_answer(MULTIKUEUE, check.service):
            self.record_answer(check, sequence)

    def observe_workload(self, state: WorkloadState) -> None:
        """Record what controllers of other checks answered in the Workload's status."""
        if state.cluster == self._cluster and self.other_checks.observe_workload(state):
            self.mark_dirty(state.ref)

    def observe_heartbeat(self, beat: Heartbeat, sequence: int) -> None:
        """Record a heartbeat of a spoke."""
        before = self._health_of(beat.spoke)
        self.health.observe_heartbeat(beat, sequence)
        if self._health_of(beat.spoke) != before:
            self.mark_all_dirty()

    def _health_of(self, spoke: str) -> tuple[object, ...]:
        health = self.health
        return (
            health.liveness(spoke),
            health.is_compatible(spoke),
            health.reaches_api_server(spoke),
            health.cluster_uid(spoke),
        )

    def observe_report(self, report: CopyState, sequence: int) -> None:
        """Record what a spoke reports about an order."""
        if report.cluster != self._cluster:
            return  # An order of another hub.
        workload, spoke = report.ref, report.spoke
        is_expected = (workload, spoke) in self.expected_orders
        if not is_expected and spoke not in self.orders.get(workload, {}):
            return  # Orders are read before reports: nobody ordered this.
        known = self.reports.get(workload, {}).get(spoke)
        if known is not None and known.sequence >= sequence:
            return
        self.ended_statuses.put(spoke, workload, report.ended)
        self.reports.setdefault(workload, {})[spoke] = Record(
            message=report.without_status(), sequence=sequence, received_at=self._clock()
        )
        if report.state != "gone":
            self.health.fail_offer(report.spoke, workload)
        self.mark_dirty(workload)

    def observe_order(self, order: Dispatch, sequence: int) -> None:
        """Record an order of this term or of an earlier one."""
        if order.cluster == self._cluster and self.record_order(order, sequence):
            workload = order.ref
            if order.state in _LIVE:
                self.reserve_capacity(order.spoke, workload)
            self.mark_dirty(workload)

    def is_newer_order(self, order: Dispatch, sequence: int) -> bool:
        """Whether this is an order of this hub that is newer than the recorded one."""
        if order.cluster != self._cluster:
            return False
        known = self.orders.get(order.ref, {}).get(order.spoke)
        return known is None or known.sequence < sequence

    def observe_spoke_object(self, spoke: str, observed: Observed) -> None:
        """Record an object of a spoke."""
        if observed.cluster != spoke or self.capacity.observe_queue(spoke, observed):
            return
        if observed.namespace is None:
            return
        if observed.plural == WORKLOAD.plural and observed.group == WORKLOAD.group:
            self._observe_remote_workload(spoke, observed, observed.namespace)
        else:
            self._observe_copy(spoke, observed, observed.namespace)

    def _observe_remote_workload(self, spoke: str, observed: Observed, namespace: str) -> None:
        remote = WorkloadRef(spoke, namespace, observed.name)
        obj = None if observed.deleted else observed.body
        self.capacity.observe_workload(remote, obj)
        before = self.remote_workloads.get(remote)
        after = None if obj is None else read_remote_workload(obj)
        if after is None:
            self.remote_workloads.pop(remote, None)
        else:
            self.remote_workloads[remote] = after
        if before != after:
            self.mark_dirty(remote.on(self._cluster))

    def _observe_copy(self, spoke: str, observed: Observed, namespace: str) -> None:
        resource = f"{observed.plural}_{observed.group}"
        name = _CopyName(spoke, resource, namespace, observed.name)
        integration = self.integrations.find(group=observed.group, plural=observed.plural)
        copy, body = None, observed.body
        if integration is not None and not observed.deleted and body is not None:
            copy = read_copy(body, integration, hub=self._cluster, origin=self._origin)
        before = self._copied.get(name)
        workload = None if copy is None else WorkloadRef(self._cluster, namespace, copy.workload)
        if before is not None and before != workload:
            del self._copied[name]
            others = self.copies.get(before, {})
            others.pop(spoke, None)
            if not others:
                self.copies.pop(before, None)
            self.copy_statuses.put(spoke, before, None)
            self._dirty[before] = None  # Even without an order, as below.
        if copy is None or workload is None:
            return
        self._copied[name] = workload
        self.copy_statuses.put(spoke, workload, status_of(body))
        self.copies.setdefault(workload, {})[spoke] = copy
        self.health.observe_copy(spoke, workload)
        if copy.phase is CopyPhase.FINISHED:
            self.capacity.finish(workload.on(spoke))
        self._dirty[workload] = None  # Even without an order: the copy may be an orphan.

    # --- recording what was published ---

    def record_answer(self, check: CheckState, sequence: int) -> None:
        """Record an answer. One of another check is kept until it is known whose check it is."""
        workload = check.ref
        known = self.answers.get(workload)
        if known is not None and known.sequence >= sequence:
            return
        if known is not None and known.message.check != check.check:
            is_ours = self.configuration.is_multikueue_check
            if is_ours(known.message.check) and not is_ours(check.check):
                return
        self.answers[workload] = Record(message=check, sequence=sequence)

    def record_order(self, order: Dispatch, sequence: int) -> bool:
        """Record an order; return False if the store has it or a newer one already."""
        orders = self.orders.setdefault(order.ref, {})
        known = orders.get(order.spoke)
        if known is not None and known.sequence >= sequence:
            return False
        orders[order.spoke] = Record(message=order, sequence=sequence, received_at=self._clock())
        return True

    def record_hub_status(self, status: HubStatus, sequence: int) -> None:
        """Record a status for the hub that was published in this term or in an earlier one."""
        if status.cluster != self._cluster:
            return
        workload = status.ref
        known = self.hub_statuses.get(workload)
        if known is None or known.sequence < sequence:
            self.hub_statuses[workload] = PackedRecord.of(status, sequence)

    def reserve_capacity(self, spoke: str, workload: WorkloadRef) -> None:
        """Count the quota of an offered workload as used on the spoke."""
        admission = self.admissions.get(workload)
        if admission is not None:
            queue = LocalQueueName(workload.namespace, admission.queue)
            self.capacity.reserve(workload.on(spoke), queue, requested_amounts(admission))

    def mark_loaded(self, spoke: str) -> None:
        """Record that all objects of a spoke were read, and count what was offered there before."""
        self.loaded_spokes[spoke] = None
        for workload in (*self.admissions, *self.orders):
            order = self.orders.get(workload, {}).get(spoke)
            if order is not None and order.message.state in _LIVE:
                self.reserve_capacity(spoke, workload)
        self.mark_all_dirty()

    def forget_answer(self, subject: str, answer: GivenAnswer) -> None:
        """Forget an answer that is needed no more."""
        self.given_answers.forget(subject, answer)
        self.other_checks.forget(answer.workload, answer.check, answer.service)
        known = self.answers.get(answer.workload)
        if known is not None and known.sequence == answer.sequence:
            del self.answers[answer.workload]

    # --- workloads to plan for ---

    def mark_dirty(self, workload: WorkloadRef) -> None:
        """Plan for this workload, if it has a reservation or an order."""
        if workload in self.admissions or workload in self.orders:
            self._dirty[workload] = None

    def mark_all_dirty(self) -> None:
        """Plan for every workload."""
        self._dirty.update(dict.fromkeys((*self.admissions, *self.orders, *self.copies)))

    def is_dirty(self, workload: WorkloadRef) -> bool:
        """Whether something changed since the last `drain_dirty`."""
        return workload in self._dirty

    def drain_dirty(self) -> list[WorkloadRef]:
        """The workloads to plan for now; none of them is dirty afterwards."""
        dirty, self._dirty = list(self._dirty), {}
        return dirty

    # --- queries ---

    def aliases(self, spoke: str) -> list[str]:
        """Other names of the same cluster: of the hub, or of known spokes."""
        is_known = self.configuration.is_known
        return [n for n in self.health.aliases(spoke) if n == self._cluster or is_known(n)]

    def primary_name(self, spoke: str) -> str | None:
        """The name under which the cluster of `spoke` is used; None if it is `spoke`."""
        aliases = self.aliases(spoke)
        if self._cluster in aliases:
            return self._cluster
        first = self.health.first_shown((spoke, *aliases))
        return None if first == spoke else first

    def may_be_of_an_alias(self, workload: WorkloadRef, spoke: str) -> bool:
        """Whether a copy may be that of an order to the same cluster under another name, or the hub's own."""
        aliases = self.aliases(spoke)
        ordered = self.orders.get(workload, {}).keys()
        return self._cluster in aliases or not ordered.isdisjoint(aliases)

    def multikueue_check(self, admission: Admission) -> str | None:
        """The MultiKueue check of an admission: it has one at most; None if it has none."""
        return next(filter(self.configuration.is_multikueue_check, admission.checks), None)

    def live_orders(self, workload: WorkloadRef) -> list[Dispatch]:
        """Orders by which a copy may exist."""
        records = self.orders.get(workload, {}).values()
        return [record.message for record in records if record.message.state in _LIVE]

    def ordered_spokes(self) -> list[str]:
        """Every spoke that has an order in the store."""
        return sorted({spoke for orders in self.orders.values() for spoke in orders})

    def requested_spec_change(self, workload: WorkloadRef) -> dict[str, Any] | None:
        """Fields of the spec that the user changed since the chosen copy was made; None for none."""
        chosen = next((o for o in self.live_orders(workload) if o.state == "chosen"), None)
        return None if chosen is None else self.jobs.requested_spec_change(workload, chosen.spec)

    def report_of(self, workload: WorkloadRef, order: Dispatch) -> CopyState | None:
        """What the spoke reports about this order; None if it has not, or about an earlier one only."""
        record = self.reports.get(workload, {}).get(order.spoke)
        report = None if record is None else record.message
        return report if report is not None and report.number == order.number else None

    def success_report(self, workload: WorkloadRef, uid: str) -> CopyState | None:
        """The report of a copy that succeeded after it was withdrawn; None while another one is chosen."""
        if any(order.state == "chosen" for order in self.live_orders(workload)):
            return None
        orders = [record.message for record in self.orders.get(workload, {}).values()]
        reports = [self.report_of(workload, order) for order in orders if order.uid == uid]
        ended = self.ended_statuses.has
        return next((r for r in reports if r is not None and ended(r.spoke, workload)), None)

    def is_removed(self, workload: WorkloadRef, spoke: str) -> bool:
        """Whether the spoke reports that the copy is gone, and no copy is observed there."""
        report = self.report_of(workload, self.orders[workload][spoke].message)
        reported = report is not None and report.state == "gone"
        return reported and spoke not in self.copies.get(workload, {})

    def copy_phases(self, workload: WorkloadRef) -> dict[str, CopyPhase]:
        """The phase of each copy that an order in the store made, by spoke.

        On a spoke with its own Kueue the Workload comes first: the job is created once it has quota.
        """
        orders = {spoke: record.message for spoke, record in self.orders.get(workload, {}).items()}
        phases = {
            spoke: self.copy_phase(spoke, workload, copy)
            for spoke, copy in self.copies.get(workload, {}).items()
            if spoke in orders and copy.number == orders[spoke].number
        }
        for spoke, order in orders.items():
            remote = self.remote_workloads.get(workload.on(spoke))
            if remote is None or order.workload is None or spoke in phases:
                continue
            if remote.order == order_id(self._cluster, order.number):
                phases[spoke] = remote.phase
        return phases

    def copy_phase(self, spoke: str, workload: WorkloadRef, copy: Copy) -> CopyPhase:
        """The phase that a copy and its Workload show together."""
        remote = self.remote_workloads.get(workload.on(spoke))
        if remote is None or copy.phase in {CopyPhase.FINISHED, CopyPhase.TERMINATING}:
            return copy.phase
        return copy.phase if remote.phase is CopyPhase.WAITING else remote.phase

    def not_dispatchable(self, state: WorkloadState) -> str | None:
        """Why a workload has no job that could run on a spoke; None if its job is not observed yet."""
        owner = state.owner
        if owner is None:
            return "The workload has no job that could be sent to a worker cluster"
        group = owner.api_version.rpartition("/")[0]
        if self.integrations.find(group=group, plural=owner.plural) is None:
            return f"No way is known to send a {owner.kind} to a worker cluster"
        return None
