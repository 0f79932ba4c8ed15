"""Collects the situation of a workload from the store, and tells why a spoke is not usable."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from services.dispatcher.planning.nomination import (
    Candidate,
    NominationRules,
    NominationStrategy,
)
from services.dispatcher.planning.order_lifecycle import OrderState
from services.dispatcher.planning.plan import Order, Situation
from services.dispatcher.planning.priority import changed_priority
from services.dispatcher.spokes.capacity import LocalQueueName, requested_amounts
from services.dispatcher.spokes.copies import CopyPhase
from services.dispatcher.spokes.liveness import Liveness
from services.dispatcher.store import Store
from shared.contracts.kube.names import SPOKE_LABEL
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.refs import WorkloadRef


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckCandidates:
    """The spokes of a check, for one workload."""

    candidates: tuple[Candidate, ...] = ()
    problem: str
    """Why the other spokes are no candidates."""

    listed: tuple[str, ...] = ()
    """All spokes of the check that a watcher has listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SituationReader:
    """Reads the store, and changes nothing."""

    store: Store
    rules: NominationRules
    clock: Callable[[], float]
    orphan_seconds: float
    collects_orphans: bool = True

    def withdrawing(self) -> Iterator[tuple[WorkloadRef, str]]:
        """Workload and spoke of each withdrawn order whose copy is not yet reported as gone."""
        for workload, orders in self.store.orders.items():
            for spoke, record in orders.items():
                withdrawn = record.message.state == "withdrawn"
                if withdrawn and not self.store.is_removed(workload, spoke):
                    yield workload, spoke

    def has_orphans(self) -> bool:
        """Whether any spoke has a copy that no order explains."""
        return any(self._orphans(workload) for workload in self.store.copies)

    def situation(
        self, workload: WorkloadRef, now: datetime, stopped: frozenset[str]
    ) -> Situation | None:
        """The situation of a workload; None while the objects of one of its spokes are being read.

        `stopped`: spokes whose leases have run out. That has to be proved after their orders were
        withdrawn.
        """
        store = self.store
        admission = store.admissions.get(workload)
        check = store.multikueue_check(admission) if admission is not None else None
        orders = {
            spoke: self._order(workload, record.message, admission, now)
            for spoke, record in store.orders.get(workload, {}).items()
        }
        lost = {s for s in orders if store.configuration.declared_lost(s) is not None}
        unwanted = Situation(
            wanted=False,
            awaits_check=False,
            orders=orders,
            orphans=self._orphans(workload),
            stopped=stopped | lost,
            collects_orphans=self.collects_orphans,
        )
        if admission is None or check is None:
            return unwanted
        if any(order.uid != admission.uid for order in store.live_orders(workload)):
            # Orders of an earlier workload of that name are withdrawn first.
            return unwanted
        spokes = self._candidates(workload, admission, check)
        if any(spoke not in store.loaded_spokes for spoke in (*spokes.listed, *orders)):
            return None
        reserved = admission.state == "reserved"
        report = store.success_report(workload, admission.uid)
        return replace(
            unwanted,
            wanted=True,
            awaits_check=reserved,
            pending_checks=store.other_checks.pending(admission) if reserved else (),
            rules=self.rules,
            candidates=spokes.candidates,
            external=store.jobs.nominated.get(workload, ()),
            problem=spokes.problem,
            copies=store.copy_phases(workload),
            evictions={
                spoke: remote.evicted
                for spoke in orders
                if (remote := store.remote_workloads.get(workload.on(spoke)))
                and remote.evicted is not None
            },
            recorded_winner=self._recorded_winner(workload, admission),
            silent=frozenset(s for s in orders if store.health.liveness(s) is Liveness.LOST),
            spec_change_requested=store.requested_spec_change(workload) is not None,
            succeeded_on=None if report is None else report.spoke,
        )

    def _order(
        self, workload: WorkloadRef, order: Dispatch, admission: Admission | None, now: datetime
    ) -> Order:
        store = self.store
        report = store.report_of(workload, order)
        refusal = ""
        if report is not None and report.state != "gone":
            current = admission is not None and order.attempt == admission.number
            refusal = (report.message or report.state) if current else ""
        change = store.requested_spec_change(workload)
        return Order(
            state=OrderState(order.state),
            started=order.started,
            removed=store.is_removed(workload, order.spoke),
            refusal=refusal,
            age_seconds=max(0.0, (now - order.at).total_seconds()),
            spec_change_sent=order.wish is not None and order.wish == change,
            priority_changed=changed_priority(store, workload, order) is not None,
        )

    def _orphans(self, workload: WorkloadRef) -> dict[str, CopyPhase]:
        """Copies without an order, or still observed long after the spoke reported them as gone."""
        store = self.store
        orphans: dict[str, CopyPhase] = {}
        for spoke, copy in store.copies.get(workload, {}).items():
            if store.may_be_of_an_alias(workload, spoke):
                continue
            order = store.orders.get(workload, {}).get(spoke)
            if order is None:
                orphans[spoke] = store.copy_phase(spoke, workload, copy)
                continue
            report = store.reports.get(workload, {}).get(spoke)
            if (
                order.message.state == "withdrawn"
                and report is not None
                and report.message.number == order.message.number
                and report.message.state == "gone"
                and self.clock() - max(report.received_at, order.received_at) >= self.orphan_seconds
            ):
                orphans[spoke] = copy.phase
        return orphans

    def _candidates(
        self, workload: WorkloadRef, admission: Admission, check: str
    ) -> _CheckCandidates:
        store = self.store
        spokes = store.configuration.spokes(check)
        if spokes.problem:
            return _CheckCandidates(problem=spokes.problem)
        required = self._required_spokes(workload, admission)
        amounts = requested_amounts(admission)
        queue = LocalQueueName(workload.namespace, admission.queue)
        best_fit = self.rules.strategy is NominationStrategy.BEST_FIT
        candidates: list[Candidate] = []
        excluded: dict[str, list[str]] = {}
        if spokes.missing:
            excluded["Missing clusters"] = list(spokes.missing)
        for spoke in spokes.configured:
            problem = self.problem_of(spoke)
            if problem is None and required - {spoke}:
                problem = f"Not {' and '.join(sorted(required))}"
            fit = store.capacity.fit(workload.on(spoke), queue, amounts)
            if problem is None and best_fit and not fit.has_queue and spoke in store.loaded_spokes:
                problem = f"Without LocalQueue {'/'.join(queue)}"
            if problem is not None:
                excluded.setdefault(problem, []).append(spoke)
                continue
            candidates.append(
                Candidate(
                    spoke=spoke,
                    fits=fit.fits,
                    load=fit.load,
                    failures=store.health.failures(spoke),
                    latency_seconds=store.health.latency_seconds(spoke) or 0.0,
                )
            )
        reasons = ". ".join(f"{what}: {', '.join(names)}" for what, names in excluded.items())
        return _CheckCandidates(
            candidates=tuple(candidates),
            problem=f"No usable worker cluster. {reasons}",
            listed=tuple(s for s in spokes.configured if store.configuration.is_listed(s)),
        )

    def problem_of(self, spoke: str) -> str | None:
        """Why no new workload goes to a spoke; None if it is usable."""
        store = self.store
        if store.configuration.declared_lost(spoke) is not None:
            return "Clusters declared lost"
        if (
            not store.configuration.is_listed(spoke)
            or store.health.liveness(spoke) is not Liveness.LIVE
            or not store.health.reaches_api_server(spoke)
        ):
            return "Inactive clusters"
        if not store.health.is_compatible(spoke):
            return "Clusters of another version"
        if store.primary_name(spoke) is not None:
            return "Clusters named twice"
        return None

    def _required_spokes(self, workload: WorkloadRef, admission: Admission) -> set[str]:
        """The spokes that the job or its flavors require. With two or more, no spoke is usable."""
        flavors = (f for pods in admission.pod_sets for f in pods.flavors.values())
        configuration = self.store.configuration
        required = {spoke for f in flavors if (spoke := configuration.required_spoke(f))}
        label = self.store.jobs.label(workload, SPOKE_LABEL)
        return required | {label} if label else required

    def _recorded_winner(self, workload: WorkloadRef, admission: Admission) -> str | None:
        record = self.store.answers.get(workload)
        if record is None or record.message.uid != admission.uid:
            return None
        current = admission.state == "admitted" or record.message.answers(admission)
        return record.message.spoke if current else None
