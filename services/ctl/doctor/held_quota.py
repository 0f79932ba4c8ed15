"""Finds workloads that hold quota without an admission, after their end, or without running."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from services.ctl.doctor.findings import Finding
from services.ctl.get.snapshot import Json, ObjectKey, Snapshot
from shared.contracts.kube.ages import duration, instant
from shared.contracts.reasons import STATUS_WITH_QUOTA, workload_status

SETTLE_SECONDS: Final = 60.0
"""Every service has seen a change after this time, many times over."""

DRAIN_SECONDS: Final = 600.0
"""How long evicted pods may take to end, grace period included."""


def held_quota(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """One finding for each workload that should not hold quota, or is admitted and does not run."""
    for ident, admission in sorted(snapshot.admissions.items()):
        if workload_status("", admission.get("state")) not in STATUS_WITH_QUOTA:
            continue
        state = snapshot.workloads.get(ident)
        title = f"workload {ident.namespace}/{ident.name}"
        since = instant(admission.get("decided_at"))
        seconds = 0.0 if since is None else (now - since).total_seconds()
        if admission.get("unplanned"):
            yield Finding(
                where=title,
                problem=f"runs though nobody admitted it, and holds {_amounts(admission)}",
                advice="find out who started it: the webhook may be off, or somebody edited the job",
            )
        elif (not_entitled := _why_not_entitled(state, admission)) and seconds > SETTLE_SECONDS:
            yield Finding(
                where=title,
                problem=f"{not_entitled}, but has held {_amounts(admission)} of "
                f"{admission.get('cluster_queue')} for {duration(seconds)}",
                advice="if the quota service runs and it stays so, its pods may still run; "
                f"`sluice history {ident.namespace}/{ident.name}` tells",
            )
        elif state is not None and not not_entitled:
            yield from _stuck_workload(title, ident, state, admission, seconds)


def _why_not_entitled(state: Json | None, admission: Json) -> str:
    """Why the workload must not hold quota any more; empty if it may."""
    if state is None:
        return "is gone"
    if state.get("uid") != admission.get("uid"):
        return "is another one of the same name now"
    if state.get("phase") == "finished" and not state.get("pods_active"):
        return "is finished"
    return ""


def _stuck_workload(
    title: str, ident: ObjectKey, state: Json, admission: Json, seconds: float
) -> Iterator[Finding]:
    if admission["state"] == "evicted" and seconds > DRAIN_SECONDS:
        yield Finding(
            where=title,
            problem=f"was evicted {duration(seconds)} ago ({admission.get('reason')}), "
            "and its pods still run",
            advice=f"look at its pods: `kubectl get pods -n {ident.namespace}`; finalizers or a lost node "
            "keep them",
        )
    waits = state.get("phase") == "waiting" and state.get("held", True)
    if (
        admission["state"] == "admitted"
        and waits
        and not state.get("on_hold")
        and seconds > SETTLE_SECONDS
    ):
        yield Finding(
            where=title,
            problem=f"was admitted {duration(seconds)} ago, and nobody released its job",
            advice="is the patcher running, and may it write? its log and "
            f"`sluice history {ident.namespace}/{ident.name}` tell",
        )


def _amounts(admission: Json) -> str:
    amounts = [
        f"{amount} {resource}"
        for pod_set in admission.get("pod_sets") or []
        for resource, amount in sorted((pod_set.get("usage") or {}).items())
    ]
    return ", ".join(amounts) or "quota"
