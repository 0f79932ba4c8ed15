"""What a queue uses, and of how much, in a few words."""

from typing import Any, Final

from shared.contracts.kube.quantities import (
    QuantityError,
    amount,
    format_amount,
)
from shared.contracts.kube.queue_specs import quotas_of

Json = dict[str, Any]

SHOWN_MAX: Final = 2
"""Resources that one cell names: those of which most is used."""


def quota_of(spec: Json) -> dict[str, int]:
    """Resource to the nominal quota of a ClusterQueue, all flavors together."""
    total: dict[str, int] = {}
    for (_, resource), quota in quotas_of(spec):
        _add(total, resource, quota.get("nominalQuota"))
    return total


def used_of_quota(queue: Json, quota: dict[str, int]) -> str:
    """``cpu 3/4, memory 2Gi/16Gi, 4 more``: what is reserved, the fullest first."""
    used: dict[str, int] = {}
    for flavor in queue.get("reservation") or []:
        for resource in flavor.get("resources") or []:
            _add(used, str(resource.get("name")), resource.get("total"))
    if not queue:
        return ""
    names = sorted({*used, *quota}, key=lambda name: (-_share(name, used, quota), name))
    if not quota:
        names = [name for name in names if used[name]]
    shown = [
        f"{name} {format_amount(name, used.get(name, 0))}"
        + (f"/{format_amount(name, quota[name])}" if name in quota else "")
        for name in names[:SHOWN_MAX]
    ]
    if len(names) > SHOWN_MAX:
        shown.append(f"{len(names) - SHOWN_MAX} more")
    return ", ".join(shown)


def _share(name: str, used: dict[str, int], quota: dict[str, int]) -> float:
    return used.get(name, 0) / (quota.get(name) or 1)


def _add(total: dict[str, int], resource: str, text: object) -> None:
    try:
        total[resource] = total.get(resource, 0) + amount(resource, str(text))
    except QuantityError:
        return  # Quota refuses it, and says so.
