"""Who got which flavor: between the messages of quota and the status of a Workload object.

On the wire it is `PodSetAssignment`, in `status.admission.podSetAssignments` of a Workload the form of
Kueue. Quantities are canonical texts in both; `amounts` counts them. `WorkloadState.admission` carries the
status as somebody wrote it: who reads it translates it, and says what is wrong with it. Two read single
fields of the JSON without this translator: the dispatcher of a spoke's Workloads, which it does not trust,
and the patcher where it copies an entry into a ProvisioningRequest.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from shared.contracts.kube.quantities import recorded_amount
from shared.contracts.messages.admissions import PodSetAssignment


def to_status(cluster_queue: str, assignments: Iterable[PodSetAssignment]) -> dict[str, Any]:
    """`status.admission` of a Workload that got quota of `cluster_queue`."""
    return {
        "clusterQueue": cluster_queue,
        "podSetAssignments": [
            {
                "name": assigned.name,
                "count": assigned.count,
                "flavors": assigned.flavors,
                "resourceUsage": assigned.usage,
            }
            for assigned in assignments
        ],
    }


def from_status(admission: Mapping[str, Any]) -> list[PodSetAssignment]:
    """What `status.admission` of a Workload says, Kueue's own as well."""
    return [
        PodSetAssignment(
            name=str(assigned.get("name", "")),
            count=int(assigned.get("count") or 0),
            flavors=dict(assigned.get("flavors") or {}),
            usage={
                resource: str(quantity)
                for resource, quantity in (assigned.get("resourceUsage") or {}).items()
            },
        )
        for assigned in admission.get("podSetAssignments") or []
    ]


def counts_given(admission: Mapping[str, Any]) -> dict[str, int]:
    """Pod set to the pods that `status.admission` gives it, where it says how many."""
    return {
        str(assigned.get("name")): int(assigned["count"])
        for assigned in admission.get("podSetAssignments") or []
        if assigned.get("count") is not None
    }


def amounts(usage: Mapping[str, str]) -> dict[str, int]:
    """Resource to amount as quota counts it; what is out of range counts as the nearest that is not.

    Raises `QuantityError` for a text that is no quantity.
    """
    return {resource: recorded_amount(resource, quantity) for resource, quantity in usage.items()}
