"""What is held, decided and there, read from logs and clusters."""

from collections.abc import Container, Iterable
from typing import Final

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.registry import Obj
from shared.bus.headers import TYPE
from shared.bus.port import Entry
from shared.contracts.kube.conditions import FINISHED, SUCCEEDED, is_true
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.hosts import PlatformState
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.spokes import HubStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef

HOLDING: Final = ("reserved", "admitted", "evicted")
ENDS: Final = ("Complete", SUCCEEDED, FINISHED)
MADE_BY_THE_CLUSTER: Final = ("Event", "Pod")

Held = dict[WorkloadRef, tuple[object, ...]]
"""Workload to what it holds: uid, state, ClusterQueue, spoke, and each pod set with its flavors and use."""


def decisions(entries: Iterable[Entry]) -> list[Admission]:
    """Return the decisions among the messages of a log."""
    return [one.read(Admission) for one in entries if one.headers.get(TYPE) == Admission.type]


def states(made: Iterable[Admission]) -> dict[WorkloadRef, str]:
    """Return the state that the last decision gives each workload."""
    return {one.ref: one.state for one in made}


def held(made: Iterable[Admission]) -> Held:
    """Return what the last decisions give."""
    last = {one.ref: one for one in made}
    return {ref: _holding(one) for ref, one in last.items() if one.state in HOLDING}


def _holding(one: Admission) -> tuple[object, ...]:
    pods = [(pod.name, pod.count, pod.flavors, pod.usage) for pod in one.pod_sets]
    return one.uid, one.state, one.cluster_queue, one.spoke, pods


def usage(entries: Iterable[Entry]) -> dict[str, tuple[object, ...]]:
    """Return what the last status of each queue counts, by subject."""
    read = [one.read(QueueStatus) for one in entries if one.headers.get(TYPE) == QueueStatus.type]
    return {
        one.subject: (one.pending, one.reserving, one.admitted, one.reservation, one.usage)
        for one in read
    }


def workloads(
    entries: Iterable[Entry], *, without: Container[str] = ("gone",)
) -> dict[WorkloadRef, str]:
    """Return the uid of each workload whose last state has none of these phases."""
    read = [
        one.read(WorkloadState) for one in entries if one.headers.get(TYPE) == WorkloadState.type
    ]
    last = {one.ref: one for one in read}
    return {ref: one.uid for ref, one in last.items() if one.phase not in without}


def places(dispatches: Iterable[Entry], hosts: Iterable[Entry]) -> dict[str, object]:
    """Return the spoke of each workload and the TaskRuns on each host, by subject."""
    found: dict[str, object] = {}
    for one in dispatches:
        if one.headers.get(TYPE) == HubStatus.type:
            found[one.subject] = one.read(HubStatus).spoke
    for one in hosts:
        if one.headers.get(TYPE) == PlatformState.type:
            found[one.subject] = [(seat.uid, seat.host) for seat in one.read(PlatformState).seats]
    return found


def identities(objects: Iterable[Obj]) -> set[tuple[str, str, str, str]]:
    """Return kind, namespace, name and uid of what users and services made."""
    return {
        (one["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])
        for one in objects
        if one["kind"] not in MADE_BY_THE_CLUSTER
        for meta in (one["metadata"],)
    }


def objects_in(api: Api) -> list[Obj]:
    """Return all objects of a cluster."""
    return [one.obj for kind in api.kinds for one in api.store.objects(kind)]


def unended(objects: Iterable[Obj]) -> list[Obj]:
    """Return the objects that have not finished."""
    return [one for one in objects if not any(is_true(one, name) for name in ENDS)]
