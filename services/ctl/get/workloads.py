"""The row and the object of a workload: its state, its decision and its Workload object in one."""

from datetime import datetime
from typing import Final

from services.ctl.get.snapshot import Json, ObjectKey, Snapshot, metadata_of
from shared.contracts.kube import kinds
from shared.contracts.kube.ages import age, duration, instant
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.conditions import find_condition, is_true, transition_time
from shared.contracts.reasons import (
    CLUSTER_QUEUE_STOPPED,
    LOCAL_QUEUE_STOPPED,
    MISCONFIGURED,
    STATUS_WITH_QUOTA,
    workload_status,
)

WORKLOAD_COLUMNS: Final = (
    *("NAME", "+JOB TYPE", "+JOB NAME", "LOCALQUEUE", "+CLUSTERQUEUE", "STATUS"),
    *("POSITION", "REASON", "+EXEC TIME", "AGE"),
    *("+PRIORITY", "+RESERVED IN", "+ADMITTED", "+FINISHED"),
)
POSITION: Final = WORKLOAD_COLUMNS.index("POSITION")
"""The column that only the quota service can fill."""

_ORDER: Final = ("PENDING", "QUOTARESERVED", "EVICTED", "ADMITTED", "FINISHED")
"""Statuses as a table shows them: what waits comes first."""


def status_of(snapshot: Snapshot, ident: ObjectKey) -> str:
    """The status in kueuectl's words."""
    phase = str(snapshot.workloads[ident].get("phase"))
    return workload_status(phase, snapshot.admission_of(ident).get("state"))


def workload_cells(snapshot: Snapshot, ident: ObjectKey, now: datetime) -> tuple[str, ...]:
    """One for each of `WORKLOAD_COLUMNS`."""
    state, admission = snapshot.workloads[ident], snapshot.admission_of(ident)
    owner = state.get("owner") or {}
    status = status_of(snapshot, ident)
    reserved, admitted = _standing(snapshot, ident, status)
    return (
        ident.name,
        _job_type(owner),
        str(owner.get("name", "")),
        str(state.get("queue", "")),
        snapshot.cluster_queue_of(ident),
        status,
        "",
        waiting_reason(snapshot, ident) or _reason(state, admission, status),
        _exec_time(snapshot, ident, now),
        age(state.get("created_at"), now),
        str(state.get("priority", 0)),
        reserved,
        str(admitted),
        str(status == "FINISHED"),
    )


def queue_order(cells: tuple[str, ...], created_at: str) -> tuple[int, str, int, int, str]:
    """The key that sorts rows: by status, then by ClusterQueue and position there, then by age."""
    cell = dict(zip(WORKLOAD_COLUMNS, cells, strict=True))
    status, position = cell["STATUS"], cell["POSITION"]
    waits = status == _ORDER[0]
    return (
        _ORDER.index(status) if status in _ORDER else len(_ORDER),
        cell["+CLUSTERQUEUE"] if waits else "",
        int(position) if position.isdigit() else _LAST,
        -int(cell["+PRIORITY"]) if waits else 0,
        created_at,
    )


_LAST: Final = 1 << 62


def waiting_reason(snapshot: Snapshot, ident: ObjectKey) -> str:
    """Why it waits, also that its queue is on hold; empty if it does not wait or no reason is known."""
    status = status_of(snapshot, ident)
    if status != _ORDER[0]:
        return ""
    queue = str(snapshot.workloads[ident].get("queue"))
    local = snapshot.of(kinds.LOCAL_QUEUE).get(ObjectKey(ident.cluster, ident.namespace, queue))
    above = ObjectKey(ident.cluster, "", snapshot.cluster_queue_of(ident))
    for obj, reason in (
        (local, LOCAL_QUEUE_STOPPED),
        (snapshot.of(kinds.CLUSTER_QUEUE).get(above), CLUSTER_QUEUE_STOPPED),
    ):
        if (spec_of(obj).get("stopPolicy") or "None") != "None":
            return reason
    return _reason(snapshot.workloads[ident], snapshot.admission_of(ident), status)


def _standing(snapshot: Snapshot, ident: ObjectKey, status: str) -> tuple[str, bool]:
    """Where it has quota, and whether it is admitted.

    A finished workload keeps both on record, as in Kueue.
    """
    if status == "FINISHED":
        recorded = (snapshot.of(kinds.WORKLOAD).get(ident) or {}).get("status") or {}
        where = str((recorded.get("admission") or {}).get("clusterQueue", ""))
        return where, _transition(snapshot, ident, "Admitted") is not None
    holding = status in STATUS_WITH_QUOTA
    where = str(snapshot.admission_of(ident).get("cluster_queue", "")) if holding else ""
    return where, status == "ADMITTED"


def _job_type(owner: Json) -> str:
    """As kubectl names a kind on the command line, for instance ``job.batch``."""
    group = str(owner.get("api_version", "")).rpartition("/")[0]
    return f"{str(owner.get('kind', '')).lower()}.{group}".strip(".")


def _reason(state: Json, admission: Json, status: str) -> str:
    if status == "FINISHED":
        success = (state.get("finish") or {}).get("success")
        return "" if success is None else ("Succeeded" if success else "Failed")
    return str(admission.get("reason") or (MISCONFIGURED if state.get("inadmissible") else ""))


def _exec_time(snapshot: Snapshot, ident: ObjectKey, now: datetime) -> str:
    """Time from admission to the end, or until now."""
    state, admission = snapshot.workloads[ident], snapshot.admission_of(ident)
    began = _transition(snapshot, ident, "Admitted")
    if began is None and admission.get("state") == "admitted":
        began = instant(admission.get("decided_at"))
    finish = state.get("finish") or {}
    if state.get("phase") == "finished":
        ended = instant(finish.get("at")) or _transition(snapshot, ident, "Finished")
    else:
        ended = now if admission.get("state") == "admitted" else None
    if began is None or ended is None:
        return ""
    return duration((ended - began).total_seconds())


def _transition(snapshot: Snapshot, ident: ObjectKey, condition: str) -> datetime | None:
    """When a condition of the Workload object became true; None if it is not."""
    obj = snapshot.of(kinds.WORKLOAD).get(ident)
    return transition_time(find_condition(obj, condition)) if is_true(obj, condition) else None


def workload_object(snapshot: Snapshot, ident: ObjectKey) -> Json:
    """The Workload object as last observed, with the messages about it under `sluice`."""
    obj = snapshot.of(kinds.WORKLOAD).get(ident)
    if obj is None:
        # The patcher has not written it yet.
        obj = {
            "apiVersion": kinds.WORKLOAD.api_version,
            "kind": kinds.WORKLOAD.kind,
            "metadata": {"namespace": ident.namespace, "name": ident.name},
        }
    metadata = metadata_of(obj)
    added = {
        "cluster": ident.cluster,
        "workload": snapshot.workloads[ident],
        "admission": snapshot.admissions.get(ident),
    }
    return {**obj, "metadata": metadata, "sluice": added}
