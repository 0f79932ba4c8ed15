"""Turns messages of the view into rows of documents."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeVar

from services.console.documents import Document, FlavorRow, Job, QueueRow, ResourceRow, WorkloadRow
from services.console.view import RowText, View
from services.quota.engine.views.explanation import NEVER_RECLAIMED
from services.quota.engine.views.remedies import remedy_of_inactive
from shared.bus.follow import isolated
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.names import ORIGIN
from shared.contracts.kube.quantities import (
    QuantityError,
    amount,
    format_amount,
    parse_quantity,
)
from shared.contracts.kube.queue_specs import quotas_of
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.reasons import (
    MISCONFIGURED,
    QUEUE_STOPPED,
    RESERVED,
    STATUS_WITH_QUOTA,
    workload_status,
)
from shared.contracts.refs import QueueRef, WorkloadRef

K = TypeVar("K", WorkloadRef, QueueRef)
R = TypeVar("R")
Json = dict[str, Any]


def row_text(
    view: View, what: Literal["workload", "queue"], ident: WorkloadRef | QueueRef
) -> str | None:
    """The row of a workload or queue as JSON; None if there is none. All pages share one text."""
    if isinstance(ident, WorkloadRef):
        found = view.workload(ident)
        if found is None:
            view.texts.pop((what, ident), None)
            return None
        queue, _ = view.queue(QueueRef(ident.cluster, ident.namespace, found[0].queue))
        checks = view.replica.unready_checks(ident).items()
        return _shared(view, what, ident, (*found, queue, *chain(*checks)), workload_row)
    observed, status = view.queue(ident)
    cohort = spec_of(observed.object if observed is not None else None)
    above = view.cohorts(ident.cluster, cohort.get("cohortName") or cohort.get("cohort"))
    return _shared(view, what, ident, (observed, status, *above), queue_row)


def _shared(
    view: View,
    what: str,
    ident: K,
    sources: tuple[object, ...],
    make: Callable[[View, K], Document | None],
) -> str | None:
    known = view.texts.get((what, ident))
    # Messages are frozen: the same objects make the same row.
    if known is not None and list(map(id, known.sources)) == list(map(id, sources)):
        return known.text
    row = make(view, ident)
    if row is None:
        view.texts.pop((what, ident), None)
        return None
    text = row.model_dump_json(by_alias=True, exclude_none=True)
    view.texts[what, ident] = RowText(sources, text)
    return text


def usable(stream: str, name: str, make: Callable[[], R]) -> R | None:
    """What `make` returns; None if contents of a message that no correct writer sends keep it from that.

    One bad object must not hide all others: it is counted, and logged once.
    """
    with isolated(stream, name):
        return make()
    return None


def workload_row(view: View, ident: WorkloadRef) -> WorkloadRow | None:
    """The row of a workload; None if there is none of this name, or none that can be read."""
    return usable(WorkloadState.stream, "/".join(ident), partial(_workload_row, view, ident))


def _workload_row(view: View, ident: WorkloadRef) -> WorkloadRow | None:
    found = view.workload(ident)
    if found is None:
        return None
    state, admission = found
    status = workload_status(state.phase, None if admission is None else admission.state)
    holding = status in STATUS_WITH_QUOTA
    owner, finish = state.owner, state.finish
    return WorkloadRow.model_validate(
        {
            "cluster": state.cluster,
            "namespace": state.namespace,
            "name": state.name,
            "job": None if owner is None else Job(kind=owner.kind, name=owner.name),
            "queue": state.queue,
            "cluster_queue": cluster_queue_of(view, state, admission if holding else None),
            "priority": state.priority,
            "status": status,
            **_reason(view, state, admission, status),
            "asks": _total_requests(state.pod_sets),
            "spoke": admission.spoke if admission is not None and holding else None,
            "copied": True if ORIGIN in state.labels else None,
            "created_at": state.created_at,
            "admitted_at": admitted_at(state, admission),
            "evicted_at": _evicted_at(state, admission),
            "finished_at": None if finish is None else finish.at,
            "succeeded": None if finish is None else finish.success,
        }
    )


def cluster_queue_of(view: View, state: WorkloadState, admission: Admission | None) -> str:
    """The ClusterQueue that gave it quota, else the one that its LocalQueue names; empty if none is known."""
    if admission is not None and admission.cluster_queue:
        return admission.cluster_queue
    observed, _ = view.queue(QueueRef(state.cluster, state.namespace, state.queue))
    return str(spec_of(observed.object if observed is not None else None).get("clusterQueue") or "")


def _reason(
    view: View, state: WorkloadState, admission: Admission | None, status: str
) -> dict[str, str]:
    if status == "FINISHED":
        finish = state.finish
        reason = "" if finish is None else ("Succeeded" if finish.success else "Failed")
        return {"reason": reason, "message": "" if finish is None else finish.message}
    if status == "QUOTARESERVED":
        return {"reason": RESERVED, "message": _awaited(view, state.ref)}
    if admission is not None:
        return {"reason": admission.reason, "message": admission.message}
    if state.inadmissible:
        return {"reason": MISCONFIGURED, "message": state.inadmissible}
    return {}


def _awaited(view: View, ref: WorkloadRef) -> str:
    """What the admission checks say that a workload with quota waits for; empty: they are not known."""
    parts = []
    for check, answer in view.replica.unready_checks(ref).items():
        text = "no answer yet" if answer is None else answer.message or answer.state
        parts.append(f"check {check}: {text}")
    return "; ".join(parts)


def admitted_at(state: WorkloadState, admission: Admission | None) -> datetime | None:
    """When it was admitted; None if it is not."""
    if admission is not None and admission.state == "admitted":
        return admission.admitted_at or admission.decided_at
    return state.admitted_at if state.phase == "finished" else None


def _evicted_at(state: WorkloadState, admission: Admission | None) -> datetime | None:
    """When it was evicted last: by the decision at once, by the Workload's condition later."""
    if admission is not None and admission.state == "evicted":
        return admission.decided_at
    return state.evicted_at


def _total_requests(pod_sets: Iterable[PodSet]) -> dict[str, str]:
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        for resource, quantity in pod_set.requests.items():
            try:
                each = amount(resource, quantity)
            except QuantityError:
                continue  # The workload's reason names the malformed quantity.
            total[resource] = total.get(resource, 0) + each * pod_set.count
    return {resource: format_amount(resource, value) for resource, value in sorted(total.items())}


def queue_row(view: View, ident: QueueRef) -> QueueRow | None:
    """The row of a queue; None if it is not configured, or cannot be read."""
    return usable(Observed.stream, "/".join(ident), partial(_queue_row, view, ident))


def _queue_row(view: View, ident: QueueRef) -> QueueRow | None:
    observed, status = view.queue(ident)
    if observed is None:
        return None
    cluster, namespace, name = ident
    spec = spec_of(observed.object)
    cohort = spec.get("cohortName") or spec.get("cohort")
    pull_request: dict[str, object] = {}
    if status is not None:
        pull_request = {
            "active": status.active,
            "reason": status.reason,
            "message": status.message,
            "remedy": "" if status.active else _remedy(status),
            "pending": status.pending,
            "reserving": status.reserving,
            "admitted": status.admitted,
        }
    return QueueRow.model_validate(
        {
            "kind": "LocalQueue" if namespace else "ClusterQueue",
            "cluster": cluster,
            "namespace": namespace or None,
            "name": name,
            "cohort": cohort,
            "cohorts": view.cohorts(cluster, cohort),
            "cluster_queue": spec.get("clusterQueue"),
            **pull_request,
            "flavors": _flavors(spec, status),
            "configuration": {} if namespace else _configuration(spec),
            "advice": [] if namespace else _advice(spec),
        }
    )


def _configuration(spec: Json) -> dict[str, str]:
    """What is set beside the quotas, with Kueue's defaults."""
    preemption = _part(spec, "preemption")
    checks = _part(spec, "admissionChecksStrategy").get("admissionChecks")
    names = checks if isinstance(checks, list) else spec.get("admissionChecks") or []
    found = {
        "Order": str(spec.get("queueingStrategy") or "BestEffortFIFO"),
        "Namespaces": _selected(spec.get("namespaceSelector")),
        "Preempts in the queue": str(preemption.get("withinClusterQueue") or "Never"),
        "Preempts to borrow": str(_part(preemption, "borrowWithinCohort").get("policy") or "Never"),
        "Takes lent quota back": str(preemption.get("reclaimWithinCohort") or "Never"),
        "Admission checks": ", ".join(
            str(each.get("name") if isinstance(each, dict) else each) for each in names
        )
        or "none",
    }
    for field, about in (("borrowingLimit", "Borrows at most"), ("lendingLimit", "Lends at most")):
        limits = [
            f"{quota[field]} {resource} in {flavor}"
            for (flavor, resource), quota in quotas_of(spec)
            if quota.get(field) is not None
        ]
        if limits:
            found[about] = ", ".join(limits)
    fungibility = _part(spec, "flavorFungibility")
    for field, about in (("whenCanBorrow", "May borrow"), ("whenCanPreempt", "May preempt")):
        if fungibility.get(field):
            found[f"{about} before the next flavor"] = str(fungibility[field])
    return found


def _advice(spec: Json) -> list[str]:
    """What surprises people about a configuration that is valid."""
    found = []
    preemption = _part(spec, "preemption")
    cohort = spec.get("cohortName") or spec.get("cohort")
    if cohort and (preemption.get("reclaimWithinCohort") or "Never") == "Never":
        found.append(
            f"What cohort {cohort} borrows of its quota comes back only when the borrowers end: "
            f"{NEVER_RECLAIMED}"
        )
    if spec.get("namespaceSelector") is None:
        found.append(
            "Nobody may use it: spec.namespaceSelector is not set ({} selects every namespace)"
        )
    return found


def _part(of: Json, field: str) -> Json:
    """An object of a spec; empty if there is none."""
    part = of.get(field)
    return part if isinstance(part, dict) else {}


def _selected(selector: object) -> str:
    """A namespaceSelector in words."""
    if not isinstance(selector, dict):
        return "none"
    wanted = [f"{name}={value}" for name, value in _part(selector, "matchLabels").items()]
    for each in selector.get("matchExpressions") or []:
        values = ", ".join(each.get("values") or [])
        wanted.append(f"{each.get('key')} {each.get('operator')} {values}".rstrip())
    return "; ".join(wanted) or "all"


def _remedy(status: QueueStatus) -> str:
    """What makes an inactive queue active again."""
    if status.reason == QUEUE_STOPPED:
        where = f" -n {status.namespace}" if status.namespace else ""
        return f"if that is over: `sluice resume {status.kind.lower()} {status.name}{where}`"
    return remedy_of_inactive(status.reason)


def _flavors(spec: Json, status: QueueStatus | None) -> list[FlavorRow]:
    """Configured flavors first, then flavors that only have usage."""
    nominal = {place: str(quota.get("nominalQuota", "0")) for place, quota in quotas_of(spec)}
    used: dict[tuple[str, str], tuple[str, str]] = {}
    for flavor_usage in status.reservation if status is not None else ():
        for usage in flavor_usage.resources:
            used[flavor_usage.name, usage.name] = (usage.total, usage.borrowed)
    found: dict[str, list[ResourceRow]] = {}
    for flavor_name, resource_name in {**nominal, **used}:
        place = (flavor_name, resource_name)
        total, borrowed = used.get(place, ("0", "0"))
        row = ResourceRow(
            name=resource_name,
            nominal=nominal.get(place),
            reserved=total,
            borrowed=borrowed,
            share=_share(total, nominal.get(place)),
        )
        found.setdefault(flavor_name, []).append(row)
    return [FlavorRow(name=name, resources=rows) for name, rows in found.items()]


def _share(total: str, nominal: str | None) -> float | None:
    if nominal is None:
        return None
    try:
        used, whole = parse_quantity(total), parse_quantity(nominal)
    except QuantityError:
        return None
    if whole <= 0:
        return 1.0 if used > 0 else 0.0
    return round(used / whole, 4)
