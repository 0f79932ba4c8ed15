"""Names in fields of queues and workloads that no object has, with what was probably meant.

Each is told as field, value and guess: ``spec.clusterQueue: 'tean-a': there is no such ClusterQueue; did
you mean 'team-a'?``. Without `guesses` no other object's name is told: not everybody may know them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from services.quota.forecast.snapshot import Snapshot
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.contracts.messages.workloads import WorkloadState
from shared.runtime.suggestions import one_of


def missing_in_queue(
    snapshot: Snapshot, cluster: str, title: str, *, guesses: bool
) -> Iterator[str]:
    """An object that a queue names and that does not exist; `title`: its kind and name."""
    kind_name, _, name = title.partition(" ")
    if kind_name == kinds.CLUSTER_QUEUE.kind:
        for path, kind, value in _named_by_cluster_queue(
            _spec(snapshot, kinds.CLUSTER_QUEUE, cluster, name)
        ):
            yield from _missing(path, value, kind, _names(snapshot, kind, cluster), guesses)
    else:
        spec = _spec(snapshot, kinds.LOCAL_QUEUE, cluster, name)
        there = _names(snapshot, kinds.CLUSTER_QUEUE, cluster)
        target = str(spec.get("clusterQueue") or "")
        yield from _missing("spec.clusterQueue", target, kinds.CLUSTER_QUEUE, there, guesses)


def missing_in_workload(snapshot: Snapshot, state: WorkloadState, *, guesses: bool) -> str:
    """What keeps a workload from being known to a queue; empty if its names are right."""
    namespace = state.namespace
    queues = {
        each.name: each
        for each in snapshot.of(kinds.LOCAL_QUEUE, state.cluster)
        if each.namespace == namespace
    }
    where = f"label {QUEUE}: {state.queue!r}: "
    if state.queue not in queues:
        guess = one_of(state.queue, queues)
        return f"{where}namespace {namespace} has no such LocalQueue; {guess}"
    title = f"LocalQueue {namespace}/{state.queue}"
    for missing in missing_in_queue(snapshot, state.cluster, title, guesses=guesses):
        return f"{title}: {missing}"
    return _missing_class(snapshot, state, guesses)


def _missing_class(snapshot: Snapshot, state: WorkloadState, guesses: bool) -> str:
    unresolved, name = state.unresolved or "", state.priority_class
    for kind, path in (
        (kinds.WORKLOAD_PRIORITY_CLASS, f"label {PRIORITY_CLASS_LABEL}"),
        (kinds.PRIORITY_CLASS, "priorityClassName of the pods"),
    ):
        if name and unresolved.startswith(f"{kind.kind} "):
            there = _names(snapshot, kind, state.cluster)
            return next(_missing(path, name, kind, there, guesses), "")
    return ""


def _named_by_cluster_queue(spec: Mapping[str, Any]) -> Iterator[tuple[str, Kind, str]]:
    """Path, kind and name of each object that a ClusterQueue needs."""
    for group_number, group in enumerate(spec.get("resourceGroups") or []):
        for number, flavor in enumerate(group.get("flavors") or []):
            path = f"spec.resourceGroups[{group_number}].flavors[{number}].name"
            yield path, kinds.RESOURCE_FLAVOR, str(flavor.get("name"))
    for number, name in enumerate(spec.get("admissionChecks") or []):
        yield f"spec.admissionChecks[{number}]", kinds.ADMISSION_CHECK, str(name)
    strategy = spec.get("admissionChecksStrategy") or {}
    for number, rule in enumerate(strategy.get("admissionChecks") or []):
        path = f"spec.admissionChecksStrategy.admissionChecks[{number}].name"
        yield path, kinds.ADMISSION_CHECK, str(rule.get("name"))


def _spec(snapshot: Snapshot, kind: Kind, cluster: str, title: str) -> Mapping[str, Any]:
    """The spec of NAME or NAMESPACE/NAME; empty if there is none."""
    for each in snapshot.of(kind, cluster):
        if title in {each.name, f"{each.namespace}/{each.name}"}:
            return spec_of(each.object or {})
    return {}


def _names(snapshot: Snapshot, kind: Kind, cluster: str) -> set[str]:
    return {each.name for each in snapshot.of(kind, cluster)}


def _missing(path: str, value: str, kind: Kind, there: set[str], guesses: bool) -> Iterator[str]:
    if value not in there:
        problem = f"{path}: {value!r}: there is no such {kind.kind}"
        yield f"{problem}; {one_of(value, there)}" if guesses else problem
