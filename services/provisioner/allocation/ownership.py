"""Which TaskRuns belong to a run that quota admitted, and what the others may have. Pure.

A tenant writes `ownerReferences`. So a TaskRun belongs to the PipelineRun that it names only if quota has
admitted a workload of that uid in that namespace, and if the run lists the TaskRun as one that it made.
What such TaskRuns have beyond what their run was admitted with counts as what others have.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from services.provisioner.allocation.ledger import AllocationLedger, is_reserved
from services.provisioner.allocation.results import Failed, Result, Waiting
from services.provisioner.allocation.slots import HostLimits
from services.provisioner.task_runs.requests import HostRequest, run_key
from shared.contracts.kube.names import slot_resource
from shared.contracts.kube.quantities import QuantityError, amount
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.hosts import HostState

log = structlog.get_logger(__name__)

UNLISTED: Waiting = Waiting(message="the PipelineRun does not list the TaskRun yet")
"""Result of a TaskRun that names an admitted run, while Tekton may not have written the run's status."""


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
        if admission.state in HOLDING:
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

    def holds(self, run: str) -> bool:
        """Whether a run has quota. `run`: see `run_key`."""
        return self._admission(run) is not None

    def slots(self, run: str, platform: str) -> int:
        """How many hosts of `platform` a run was admitted with; 0 for one that has no quota (any more)."""
        admission = self._admission(run)
        return 0 if admission is None else reserved_slots(admission).get(slot_resource(platform), 0)

    def _admission(self, run: str) -> Admission | None:
        namespace, _, workload = run.partition(":")
        return self._by_workload.get((namespace, workload))


def reserved_slots(admission: Admission) -> dict[str, int]:
    """Resource to the reserved amount, for all resources: any of them could be a platform's."""
    slots: dict[str, int] = {}
    for pod_set in admission.pod_sets:
        for resource, text in pod_set.usage.items():
            try:
                slots[resource] = slots.get(resource, 0) + amount(resource, text)
            except QuantityError:
                log.warning(
                    "skipping a reserved amount that cannot be read",
                    resource=resource,
                    quantity=text,
                )
    return slots


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """Who has slots and machines, also those that end."""

    holding: frozenset[str]
    """Uids of the TaskRuns that have one."""

    direct: Counter[str]
    """Namespace to the hosts of TaskRuns that belong to no run."""

    of_runs: Counter[tuple[str, str]]
    """Platform and run to the hosts of the run's TaskRuns, and those that are reserved for it."""

    returned: Counter[tuple[str, str]]
    """Platform and run to the slots that the run gave back to quota."""

    def beyond(self, runs: RunAdmissions) -> Counter[str]:
        """Namespace to the hosts that runs have beyond what they hold quota for."""
        found: Counter[str] = Counter()
        for (platform, run), hosts in self.of_runs.items():
            unquoted = hosts - self.left_of(runs, platform, run)
            found[run.partition(":")[0]] += max(0, min(hosts, unquoted))
        return found

    def left_of(self, runs: RunAdmissions, platform: str, run: str) -> int:
        """How many hosts of `platform` a run may have at a time: it has no quota for what it gave back."""
        return max(0, runs.slots(run, platform) - self.returned[platform, run])


def host_use(ledgers: Iterable[AllocationLedger], workload_of: Callable[[str], str]) -> HostUse:
    """Count the hosts in `ledgers`. `workload_of`: uid of a TaskRun to its Workload, empty for none."""
    holding: set[str] = set()
    direct: Counter[str] = Counter()
    of_runs: Counter[tuple[str, str]] = Counter()
    returned: Counter[tuple[str, str]] = Counter()
    for ledger in ledgers:
        for uid, (namespace, name) in _holders(ledger).items():
            workload = name if is_reserved(uid) else workload_of(uid)
            if workload:
                of_runs[ledger.platform, run_key(namespace, workload)] += 1
            else:
                direct[namespace] += 1
            if not is_reserved(uid):
                holding.add(uid)
        returned.update((ledger.platform, run) for run in ledger.returned.values())
    return HostUse(holding=frozenset(holding), direct=direct, of_runs=of_runs, returned=returned)


def _holders(ledger: AllocationLedger) -> dict[str, tuple[str, str]]:
    """Uids that have a slot or a machine, also while it ends, and namespace and name of whose they are."""
    found: dict[str, tuple[str, str]] = {}
    for machine in ledger.machines.values():
        if not machine.shared:
            namespace, _, name = machine.task_run.partition(":")
            found[machine.holder] = (namespace, name)
    for slot in ledger.slots.values():
        # `<uid>@<host>` while a host is cleaned that the TaskRun has left.
        found[slot.uid.partition("@")[0]] = (slot.namespace, slot.name)
    return found


def host_limits(
    platform: str,
    requests: Iterable[HostRequest],
    *,
    most: int,
    use: HostUse,
    runs: RunAdmissions,
) -> HostLimits:
    """How many more hosts those who ask for `platform` may get. `most`: see `HostLimits.direct`.

    A run's TaskRuns have as many as it was admitted with, less what it gave back. What they have beyond
    that counts as what TaskRuns of no run have.
    """
    if not most:
        return HostLimits()
    beyond = use.beyond(runs)
    left, of_runs = {}, {}
    for request in requests:
        namespace = request.namespace
        left[namespace] = most - use.direct[namespace] - beyond[namespace]
        if request.workload:
            run = request.run
            had = use.of_runs[platform, run]
            of_runs[run] = max(0, use.left_of(runs, platform, run) - had)
    return HostLimits(direct=left, runs=of_runs, holding=use.holding)


def is_short(requests: Iterable[HostRequest], limits: HostLimits) -> bool:
    """Whether some of the `requests` may wait for others of their namespace to give a host back."""
    wanted = Counter(one.run for one in requests)
    beyond: Counter[str] = Counter()
    for run, count in wanted.items():
        beyond[run.partition(":")[0]] += max(0, count - limits.runs.get(run, 0))
    return any(beyond[namespace] > left for namespace, left in limits.direct.items())


def with_returned(
    ledger: AllocationLedger,
    ended: Iterable[HostState],
    *,
    use: HostUse,
    runs: RunAdmissions,
    building: Counter[str],
) -> AllocationLedger:
    """Record which of the TaskRuns that `ended` give their slot back to quota.

    A run gives one back only if it holds quota for more than its other TaskRuns have: the end of one that
    it had beyond its quota gives nothing back. `ended`: those that hold nothing any more. `building`: run
    to its TaskRuns that build in their own pods.
    """
    returned = {uid: run for uid, run in ledger.returned.items() if runs.holds(run)}
    for state in ended:
        run = run_key(state.namespace, state.workload)
        if not state.workload or state.uid in returned:
            continue
        used = use.of_runs[ledger.platform, run] + building[run]
        if used + Counter(returned.values())[run] < runs.slots(run, ledger.platform):
            returned[state.uid] = run
    return ledger if returned == ledger.returned else replace(ledger, returned=returned)


def refused_results(
    requests: Iterable[HostRequest],
    *,
    refused: bool,
    runs: RunAdmissions,
    holding: frozenset[str],
) -> dict[str, Result]:
    """Results of the `requests` that get nothing new in this round, by uid.

    `refused`: whether only TaskRuns of admitted runs get hosts. `holding`: uids of those that have one.
    """
    results: dict[str, Result] = {}
    for request in requests:
        if request.workload or request.uid in holding:
            continue
        if request.run_uid and runs.is_reserved(request.namespace, request.run_uid):
            # A slot may be reserved for it: it must not get another one.
            results[request.uid] = Waiting(message="the PipelineRun is not admitted yet")
        elif refused:
            results[request.uid] = _unadmitted(request, runs)
    return results


def _unadmitted(request: HostRequest, runs: RunAdmissions) -> Result:
    if request.run_uid and runs.workload_of(request.namespace, request.run_uid):
        return Waiting(
            message="the PipelineRun that owns the TaskRun does not list it among those that it made "
            "(status.childReferences)"
        )
    if request.run_uid:
        return Waiting(message="the PipelineRun that owns the TaskRun is not admitted")
    return Failed(
        message="Error allocating host: metadata.ownerReferences: the TaskRun belongs to no admitted "
        "PipelineRun, and this installation gives hosts to no others "
        "(SLUICE_TASK_RUNS_NEED_ADMITTED_RUN): start it by a PipelineRun that has a queue"
    )
