"""Finds admission checks whose controller is gone, though the condition `Active` still stands there."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from services.ctl.doctor.findings import Finding
from services.ctl.get.snapshot import ObjectKey, Snapshot, metadata_of
from shared.contracts.controllers import OWN_CONTROLLERS, PROVISIONING
from shared.contracts.kube import kinds
from shared.contracts.kube.ages import duration, instant
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.names import LOST
from shared.contracts.reasons import CHECK_RESET

SILENT_SECONDS: Final = 600.0
"""A controller that works has written some state or message long before."""


def unanswered_checks(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """One finding for each check of another controller that has not answered for long."""
    silent: dict[ObjectKey, list[tuple[float, ObjectKey]]] = {}
    for ident in snapshot.admissions:
        admission = snapshot.admission_of(ident)
        since = instant(admission.get("decided_at"))
        if admission.get("state") != "reserved" or since is None:
            continue
        seconds = (now - since).total_seconds()
        for name in admission.get("checks") or [] if seconds > SILENT_SECONDS else []:
            check = ObjectKey(ident.cluster, "", str(name))
            if not _is_answered(snapshot.workloads[ident], check.name, since):
                silent.setdefault(check, []).append((seconds, ident))
    for check, workloads in sorted(silent.items()):
        obj = snapshot.of(kinds.ADMISSION_CHECK).get(check)
        controller = str(spec_of(obj).get("controllerName") or "")
        if obj is None or controller in {*OWN_CONTROLLERS, PROVISIONING}:
            continue
        seconds, first = max(workloads)
        if LOST in (metadata_of(obj).get("annotations") or {}):
            advice = "take the check out of the ClusterQueue, or the workloads go on holding quota"
        else:
            advice = (
                f"start {controller}; if it is gone, take the check out of its ClusterQueues, or have "
                f"them admit nobody: `kubectl annotate admissioncheck {check.name} {LOST}=REASON`"
            )
        yield Finding(
            where=f"AdmissionCheck {check.name}",
            problem=f"its controller {controller} has answered none of {len(workloads)} workload(s) that "
            f"hold quota, {first.namespace}/{first.name} for {duration(seconds)}",
            advice=advice,
        )


def _is_answered(state: dict[str, Any], check: str, since: datetime) -> bool:
    """Whether the controller has written anything since the reservation: a state, or a message."""
    for answer in state.get("checks") or []:
        if answer.get("check") != check:
            continue
        message, at = str(answer.get("message") or ""), instant(answer.get("at"))
        has_message = bool(message) and not message.startswith(CHECK_RESET)
        return answer.get("state") != "Pending" or has_message or (at is not None and at > since)
    return False
