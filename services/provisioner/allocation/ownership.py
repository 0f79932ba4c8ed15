"""Which TaskRuns belong to a run that quota admitted, and what the others may have. Pure.

A tenant writes `ownerReferences`. So a TaskRun belongs to the PipelineRun that it names only if quota has
admitted a workload of that uid in that namespace: quota admits what the watcher saw exist.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from services.provisioner.allocation.ledger import AllocationLedger, is_reserved
from services.provisioner.allocation.results import Failed, Result, Waiting
from services.provisioner.task_runs.requests import HostRequest
from shared.contracts.messages.admissions import Admission


class RunAdmissions:
    """The workloads of one cluster that hold quota, by the uid of their run."""

    def __init__(self) -> None:
        self._by_workload: dict[tuple[str, str], Admission] = {}
        self._by_uid: dict[tuple[str, str], Admission] = {}

    def observe(self, admission: Admission) -> None:
        """Record a decision of quota."""
        ref = (admission.namespace, admission.name)
        before = self._by_workload.pop(ref, None)
        if before is not None:
            self._by_uid.pop((before.namespace, before.uid), None)
        if admission.state in {"reserved", "admitted"}:
            self._by_workload[ref] = admission
            self._by_uid[admission.namespace, admission.uid] = admission

    def workload_of(self, namespace: str, uid: str) -> str:
        """The Workload of the run `uid` if it is admitted; else empty."""
        found = self._by_uid.get((namespace, uid))
        return found.name if found is not None and found.state == "admitted" else ""

    def is_reserved(self, namespace: str, uid: str) -> bool:
        """Whether the run `uid` has quota and waits for its checks."""
        found = self._by_uid.get((namespace, uid))
        return found is not None and found.state == "reserved"


def holders(ledgers: Iterable[AllocationLedger]) -> dict[str, str]:
    """Uids of the TaskRuns that have a slot or a machine, also while it ends, and their namespaces."""
    found: dict[str, str] = {}
    for ledger in ledgers:
        for slot in ledger.slots.values():
            # `<uid>@<host>` while a host is cleaned that the TaskRun has left.
            found[slot.uid.partition("@")[0]] = slot.namespace
        for machine in ledger.machines.values():
            if not machine.shared:
                found[machine.holder] = machine.task_run.partition(":")[0]
    return {uid: namespace for uid, namespace in found.items() if not is_reserved(uid)}


def budgets(
    requests: Iterable[HostRequest], *, most: int, holding: Mapping[str, str], owned: frozenset[str]
) -> dict[str, int]:
    """How many more hosts the direct TaskRuns among `requests` may get, by namespace.

    `holding`: see `holders`. `owned`: those of them that belong to an admitted run. Empty without limit.
    """
    if not most:
        return {}
    used = Counter(namespace for uid, namespace in holding.items() if uid not in owned)
    namespaces = {request.namespace for request in requests if not request.workload}
    return {namespace: most - used[namespace] for namespace in namespaces}


def refused_results(
    requests: Iterable[HostRequest],
    *,
    refused: bool,
    runs: RunAdmissions,
    holding: Mapping[str, str],
) -> dict[str, Result]:
    """Results of the `requests` that get nothing new in this round, by uid.

    `refused`: whether only TaskRuns of admitted runs get hosts.
    """
    results: dict[str, Result] = {}
    for request in requests:
        if request.workload or request.uid in holding:
            continue
        if request.run_uid and runs.is_reserved(request.namespace, request.run_uid):
            # A slot may be reserved for it: it must not get another one.
            results[request.uid] = Waiting(message="the PipelineRun is not admitted yet")
        elif refused:
            results[request.uid] = _unadmitted(request)
    return results


def _unadmitted(request: HostRequest) -> Result:
    if request.run_uid:
        return Waiting(message="the PipelineRun that owns the TaskRun is not admitted")
    return Failed(
        message="Error allocating host: metadata.ownerReferences: the TaskRun belongs to no admitted "
        "PipelineRun, and this installation gives hosts to no others "
        "(SLUICE_TASK_RUNS_NEED_ADMITTED_RUN): start it by a PipelineRun that has a queue"
    )
