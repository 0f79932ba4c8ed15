"""Messages of a scheduling cycle: why a head was not admitted, and why a victim is preempted."""

from typing import Final

from services.quota.engine.model.state import Node, Workload

HUMAN: Final = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}
NOT_YET_EVALUATED: Final = "Workload is pending evaluation in the scheduling queue"
OVERLAPPING_TARGETS: Final = "Workload has overlapping preemption targets with another workload"
NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
LESS_BORROWING_FIRST: Final = "Workloads that borrow less are admitted first"
PREEMPTION_LOOP: Final = (
    "Preempting again would go round in a circle: it was tried with the same workloads holding"
    " quota, and they got it back"
)
PODS_NOT_READY: Final = "waiting for all admitted workloads to be in PodsReady condition"


def preempted(by: Workload, its: Node, reason: str, victims: Node) -> str:
    """The message to a victim, in Kueue's words; `its` and `victims` are the nodes of both queues."""
    job = f", JobUID: {by.fact.job_uid}" if by.fact is not None and by.fact.job_uid else ""
    return (
        f"Preempted to accommodate a workload (UID: {by.uid}{job})"
        f" due to {HUMAN[reason]}; preemptor path: {_path(its)};"
        f" preemptee path: {_path(victims)}"
    )


def _path(node: Node) -> str:
    return "/" + "/".join(n.name for n in (*reversed(node.ancestors), node))
