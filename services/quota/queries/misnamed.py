"""Which name a workload's owner must correct before a ClusterQueue takes it."""

from typing import Final

from services.quota.engine.model.state import Shard
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.contracts.messages.workloads import WorkloadState
from shared.runtime.suggestions import did_you_mean

_OF_MISSING_CLASSES: Final = {
    "WorkloadPriorityClass": f"create it, or correct the job's label {PRIORITY_CLASS_LABEL}",
    "PriorityClass": "create it, or correct spec.priorityClassName of the job's pods",
}
"""By the first word of `WorkloadState.unresolved`."""


def correction(shard: Shard, state: WorkloadState) -> str:
    """The field that names what is not there, and what to do; empty if nothing is known to be missing.

    Names of LocalQueues of the workload's own namespace are guessed, names of ClusterQueues are not:
    whoever may ask about this workload need not know them.
    """
    if state.unresolved is not None:
        return _OF_MISSING_CLASSES.get(state.unresolved.split(" ")[0], "")
    name = f"{state.namespace}/{state.queue}"
    local_queue = shard.local_queues.get(name)
    if local_queue is None or local_queue.fact is None:
        return _correct_the_label(shard, state)
    if local_queue.fact.cluster_queue not in shard.queues:
        return f"create the ClusterQueue, or correct spec.clusterQueue of LocalQueue {name}"
    return ""


def _correct_the_label(shard: Shard, state: WorkloadState) -> str:
    if not state.queue:
        return f"name a LocalQueue in the job's label {QUEUE}"
    there = (
        each.key.partition("/")[2]
        for each in shard.local_queues.values()
        if each.fact is not None and each.key.startswith(f"{state.namespace}/")
    )
    guess = did_you_mean(state.queue, there)
    advice = f"create the LocalQueue, or correct the job's label {QUEUE}"
    return f"{advice}: {guess}" if guess else advice
