"""Compares a decision of quota with the queues and flavors of its cluster (ADR 73).

Only a contradiction counts. The cache may be behind: what it lacks is asked of the API server, and what that
lacks proves nothing. Quota may be behind, too, so a contradicted decision waits until one of them has caught
up, or a newer decision comes.
"""

from collections.abc import Iterator

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.refusals import DecisionRule
from services.patcher.cluster.writer import Writer
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, Kind
from shared.contracts.kube.queue_specs import flavor_names
from shared.contracts.messages.admissions import GRANTED, Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef

log = structlog.get_logger(__name__)


class DecisionCheck:
    """Keeps decisions from being carried out while the cluster contradicts them."""

    def __init__(self, cache: ObjectCache, writer: Writer) -> None:
        self._cache = cache
        self._writer = writer
        self._reported: dict[WorkloadRef, tuple[int, int]] = {}
        """Term and number of the contradicted decisions, each of which is said once."""

    async def check(self, admission: Admission, state: WorkloadState) -> None:
        """Raise `LaterError` if the cluster contradicts the decision, `KubeError` if it cannot be asked."""
        why = None
        if _gives_quota(admission, state):
            local_queue = await self._queue(LOCAL_QUEUE, state.namespace, state.queue)
            cluster_queue = await self._queue(CLUSTER_QUEUE, None, admission.cluster_queue)
            why = next(_contradictions(admission, state, local_queue, cluster_queue), None)
        if why is None:
            self._reported.pop(state.ref, None)
            return
        decision = (admission.term, admission.number)
        if self._reported.get(state.ref) != decision:
            self._reported[state.ref] = decision
            DecisionRule.CONTRADICTION.count()
            log.error("the cluster contradicts a decision", workload=state.ref.path, error=why)
        raise LaterError(DecisionRule.CONTRADICTION.says(problem=why))

    async def _queue(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        """Return a queue; None if no name is given, or it does not exist."""
        if not name:
            return None
        return self._cache.object(kind, namespace, name) or await self._writer.get(
            kind, namespace, name
        )

    def forget(self, state: WorkloadState) -> None:
        """Forget a workload that has ended."""
        self._reported.pop(state.ref, None)


def _gives_quota(admission: Admission, state: WorkloadState) -> bool:
    """Return whether the decision lets something begin.

    A job that runs may have other pods than it was admitted with: it is not compared.
    """
    gives = admission.state in GRANTED
    return gives and not admission.unplanned and state.held


def _contradictions(
    admission: Admission, state: WorkloadState, local_queue: Body | None, cluster_queue: Body | None
) -> Iterator[str]:
    leads_to = spec_of(local_queue).get("clusterQueue")
    if leads_to and leads_to != admission.cluster_queue:
        yield (
            f"cluster_queue: {admission.cluster_queue!r}: LocalQueue {state.namespace}/{state.queue} "
            f"leads to {leads_to!r}"
        )
    offered = None if cluster_queue is None else set(flavor_names(spec_of(cluster_queue)))
    sizes = {pod_set.name: pod_set.count for pod_set in state.pod_sets}
    for assigned in admission.pod_sets:
        if sizes and assigned.name not in sizes:
            yield f"pod_sets: {assigned.name!r}: the workload has no such pod set"
        elif not 0 <= assigned.count <= max(sizes.get(assigned.name, assigned.count), 0):
            yield f"pod_sets[{assigned.name}].count: {assigned.count}: the workload has fewer pods"
        unknown = set() if offered is None else set(assigned.flavors.values()) - offered
        if unknown:
            yield (
                f"pod_sets[{assigned.name}].flavors: {', '.join(sorted(unknown))}: ClusterQueue "
                f"{admission.cluster_queue} does not have it"
            )
