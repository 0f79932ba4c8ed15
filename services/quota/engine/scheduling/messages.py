"""What a round says: why a head was not taken, and for whom a victim goes."""

from typing import Final

from services.quota.engine.model.state import Node, Workload

__all__ = ["CIRCLE", "OVERLAP", "OVERTAKEN", "OWNERS_FIRST", "UNREADY", "preempted"]

HUMAN: Final = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}
OVERLAP: Final = "Workload has overlapping preemption targets with another workload"
OVERTAKEN: Final = "Workload no longer fits after processing another workload"
OWNERS_FIRST: Final = "Workloads that borrow less are admitted first"
CIRCLE: Final = (
    "Preempting again would go round in a circle: it was tried with the same workloads holding"
    " quota, and they got it back"
)
UNREADY: Final = "waiting for all admitted workloads to be in PodsReady condition"


def preempted(by: Workload, its: Node, reason: str, victims: Node) -> str:
    """What a victim is told; `its` and `victims` are the nodes of both queues. Kueue's words."""
    return (
        f"Preempted to accommodate a workload (UID: {by.uid}, JobUID: UNKNOWN)"
        f" due to {HUMAN[reason]}; preemptor path: {_path(its)};"
        f" preemptee path: {_path(victims)}"
    )


def _path(node: Node) -> str:
    return "/" + "/".join(n.name for n in (*reversed(node.ancestors), node))
