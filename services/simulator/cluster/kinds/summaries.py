"""Cells of `kubectl get` that sum a pod or a node up, as kubectl's own printers do."""

from typing import Final

from services.simulator.cluster.kinds.registry import Obj

_ROLE: Final = "node-role.kubernetes.io/"


def pod_ready(pod: Obj) -> str:
    """Ready containers of all, for instance ``1/1``."""
    total = len((pod.get("spec") or {}).get("containers") or ())
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return f"{total if ready else 0}/{total}"


def pod_status(pod: Obj) -> str:
    """Its phase in kubectl's words."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "")
    return str(status.get("reason") or ("Completed" if phase == "Succeeded" else phase))


def pod_restarts(pod: Obj) -> str:
    """Restarts of all containers together."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(int(each.get("restartCount") or 0) for each in statuses))


def node_status(node: Obj) -> str:
    """``Ready`` or ``NotReady``, and whether it takes new pods."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    cordoned = (node.get("spec") or {}).get("unschedulable")
    return ("Ready" if ready else "NotReady") + (",SchedulingDisabled" if cordoned else "")


def node_roles(node: Obj) -> str:
    """The roles that its labels name."""
    labels = node["metadata"].get("labels") or {}
    roles = sorted(name.removeprefix(_ROLE) for name in labels if name.startswith(_ROLE))
    return ",".join(filter(None, roles)) or "<none>"
