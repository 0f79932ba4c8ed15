"""Examines queues, flavors, checks and classes: references to missing objects, and inactive objects."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.ctl.doctor.findings import Finding
from services.ctl.get.snapshot import Json, ObjectKey, Snapshot
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import QUEUE
from shared.contracts.kube.queue_specs import check_names, flavor_names
from shared.contracts.reasons import TOO_LARGE
from shared.runtime.suggestions import did_you_mean

KINDS: Final = (
    kinds.CLUSTER_QUEUE,
    kinds.LOCAL_QUEUE,
    kinds.COHORT,
    kinds.RESOURCE_FLAVOR,
    kinds.ADMISSION_CHECK,
    kinds.MULTIKUEUE_CLUSTER,
    kinds.WORKLOAD_PRIORITY_CLASS,
    kinds.PRIORITY_CLASS,
    kinds.NODE,
)
"""The kinds that must be read for this."""

NAMES_SHOWN: Final = 3


def configuration(snapshot: Snapshot) -> list[Finding]:
    """Findings in objects that operators and users wrote."""
    checks: tuple[Callable[[Snapshot], Iterator[Finding]], ...] = (
        _cluster_queues,
        _references,
        _local_queues,
        _stray_workloads,
        _priority_classes,
        _inadmissible,
        _too_large,
        _spokes,
    )
    return [finding for check in checks for finding in check(snapshot)]


def _existing(snapshot: Snapshot, kind: Kind, cluster: str) -> set[str]:
    read = {ident.name for ident in snapshot.of(kind) if ident.cluster == cluster}
    large = {
        ident.name for ident in snapshot.too_large.get(kind.detail, {}) if ident.cluster == cluster
    }
    return read | large


def _cluster_queues(snapshot: Snapshot) -> Iterator[Finding]:
    """Inactive ClusterQueues, whether stopped or broken."""
    for ident, obj in sorted(snapshot.of(kinds.CLUSTER_QUEUE).items()):
        status = snapshot.queues.get(ident)
        stop = spec_of(obj).get("stopPolicy") or "None"
        if stop != "None":
            yield Finding(
                where=f"ClusterQueue {ident.name}",
                problem=f"is stopped (stopPolicy {stop})",
                advice=f"if that is over: `sluice resume clusterqueue {ident.name}`",
                wrong=False,
            )
        elif status is not None and not status.get("active"):
            yield Finding(
                where=f"ClusterQueue {ident.name}",
                problem=f"is inactive: {status.get('reason')}: {status.get('message')}",
                advice=_remedy(str(status.get("reason"))),
            )


def _remedy(reason: str) -> str:
    """What makes an inactive queue active again. The engine is imported where there is one."""
    from services.quota.engine.views.remedies import remedy_of_inactive  # noqa: PLC0415

    return remedy_of_inactive(reason)


def _references(snapshot: Snapshot) -> Iterator[Finding]:
    """Flavors and checks that a ClusterQueue names and that do not exist."""
    for ident, obj in sorted(snapshot.of(kinds.CLUSTER_QUEUE).items()):
        spec = spec_of(obj)
        named = {
            kinds.RESOURCE_FLAVOR: flavor_names(spec),
            kinds.ADMISSION_CHECK: check_names(spec),
        }
        for kind, names in named.items():
            there = _existing(snapshot, kind, ident.cluster)
            missing = sorted(set(names) - there)
            if missing:
                advice = f"create the {kind.kind}, or take it out of the queue"
                yield Finding(
                    where=f"ClusterQueue {ident.name}",
                    problem=f"names {kind.kind} {', '.join(missing)}, which is not there",
                    advice=_with_guess(advice, missing[0], there),
                )


def _local_queues(snapshot: Snapshot) -> Iterator[Finding]:
    for ident, obj in sorted(snapshot.of(kinds.LOCAL_QUEUE).items()):
        spec = spec_of(obj)
        title, target = (
            f"LocalQueue {ident.namespace}/{ident.name}",
            str(spec.get("clusterQueue") or ""),
        )
        there = _existing(snapshot, kinds.CLUSTER_QUEUE, ident.cluster)
        if target not in there:
            advice = "create the ClusterQueue, or correct spec.clusterQueue"
            yield Finding(
                where=title,
                problem=f"points to ClusterQueue {target or '(none)'}, which is not there",
                advice=_with_guess(advice, target, there),
            )
        if (stop := spec.get("stopPolicy") or "None") != "None":
            yield Finding(
                where=title,
                problem=f"is stopped (stopPolicy {stop})",
                advice=f"if that is over: `sluice resume localqueue {ident.name} -n {ident.namespace}`",
                wrong=False,
            )


def _stray_workloads(snapshot: Snapshot) -> Iterator[Finding]:
    """Workloads that name a missing LocalQueue."""
    strays: dict[ObjectKey, list[str]] = {}
    for ident, state in _waiting(snapshot):
        queue = ObjectKey(ident.cluster, ident.namespace, str(state.get("queue") or ""))
        if queue not in snapshot.of(kinds.LOCAL_QUEUE):
            strays.setdefault(queue, []).append(ident.name)
    for (cluster, namespace, name), names in sorted(strays.items()):
        there = [i.name for i in snapshot.of(kinds.LOCAL_QUEUE) if i[:2] == (cluster, namespace)]
        yield Finding(
            where=f"LocalQueue {namespace}/{name or '(none)'}",
            problem=f"is not there, but is named by the queue label of {_shortened(names)}",
            advice=_with_guess(f"create it, or correct the jobs' label {QUEUE}", name, there),
            wrong=False,
        )


def _priority_classes(snapshot: Snapshot) -> Iterator[Finding]:
    missing: dict[tuple[str, str, str], list[str]] = {}
    for ident, state in _waiting(snapshot):
        name = state.get("priority_class")
        if not name:
            continue
        source = str(state.get("priority_class_source"))
        kind = kinds.PRIORITY_CLASS if "scheduling" in source else kinds.WORKLOAD_PRIORITY_CLASS
        there = _existing(snapshot, kind, ident.cluster)
        if name not in there:
            advice = _with_guess(f"create the {kind.kind}, or correct the jobs", str(name), there)
            users = missing.setdefault((kind.kind, str(name), advice), [])
            users.append(f"{ident.namespace}/{ident.name}")
    for (kind_name, name, advice), users in sorted(missing.items()):
        yield Finding(
            where=f"{kind_name} {name}",
            problem=f"is not there, but {_shortened(users)} name it",
            advice=advice,
            wrong=False,
        )


def _inadmissible(snapshot: Snapshot) -> Iterator[Finding]:
    reasons: dict[str, list[str]] = {}
    for ident, state in _waiting(snapshot):
        if state.get("inadmissible"):
            reasons.setdefault(str(state["inadmissible"]), []).append(
                f"{ident.namespace}/{ident.name}"
            )
    for reason, names in sorted(reasons.items()):
        yield Finding(
            where=_shortened(names),
            problem=f"can never be admitted: {reason}",
            advice="correct the job, or what the message names",
            wrong=False,
        )


def _too_large(snapshot: Snapshot) -> Iterator[Finding]:
    """Workloads that ask for more than their queue can ever have."""
    for ident, _ in _waiting(snapshot):
        admission = snapshot.admission_of(ident)
        if admission.get("state") == "waiting" and admission.get("reason") in TOO_LARGE:
            yield Finding(
                where=f"workload {ident.namespace}/{ident.name}",
                problem=f"can never be admitted: {admission.get('message')}",
                advice="let the job ask for less, or raise the quota of its queue "
                f"({admission.get('cluster_queue') or snapshot.cluster_queue_of(ident)})",
                wrong=False,
            )


def _spokes(snapshot: Snapshot) -> Iterator[Finding]:
    for ident in sorted(snapshot.of(kinds.MULTIKUEUE_CLUSTER)):
        if ident.name not in snapshot.synced:
            yield Finding(
                where=f"spoke {ident.name}",
                problem="no watcher has listed it: nothing is dispatched there",
                advice=f"run a watcher and a patcher with SLUICE_CLUSTER={ident.name}",
            )
            continue
        state = snapshot.spokes.get(ident)
        if state is not None and not state.get("active"):
            yield Finding(
                where=f"spoke {ident.name}",
                problem=f"is not used: {state.get('reason')}: {state.get('message')}",
                advice="correct what the message names; `sluice spokes` shows what it was given",
            )


def _with_guess(advice: str, wanted: str, there: Iterable[str]) -> str:
    """The advice, and the closest name that there is."""
    guess = did_you_mean(wanted, there)
    return f"{advice}: {guess}" if guess else advice


def _waiting(snapshot: Snapshot) -> Iterator[tuple[ObjectKey, Json]]:
    for ident, state in sorted(snapshot.workloads.items()):
        if state.get("phase") == "waiting":
            yield ident, state


def _shortened(names: list[str]) -> str:
    """``a, b, c and 2 more``."""
    text = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text
