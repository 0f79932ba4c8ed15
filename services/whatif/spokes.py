"""The quota that spokes have for a queue of the hub, and the loss of one of them.

The simulation knows only quota: it assumes that admission checks are ready at once. For a queue that
leads to spokes this holds only as far as the queues on the spokes have quota. So its own quota is capped
by theirs.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from services.dispatcher.hub.configuration import MultiKueueConfiguration
from services.quota.forecast import Snapshot
from services.quota.forecast.snapshot import Id
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.quantities import QuantityError, amount, format_amount
from shared.contracts.kube.queue_specs import check_names, flavors_of
from shared.contracts.messages.admissions import HOLDING
from shared.contracts.messages.observed import Observed
from shared.runtime.command import CommandError

Amounts = dict[str, int]
"""Resource to amount, in the units of quota."""


def remove_spoke(before: Snapshot, after: Snapshot, spoke: str) -> list[str]:
    """Remove a spoke from `after`, and cap the quota in both by that of the spokes. Returns notes in words.

    Raises `CommandError` if no MultiKueueCluster has this name.
    """
    hub = _hub_of(before, spoke)
    notes = [f"lost spoke {spoke}: {_requeue(after, hub, spoke)} workloads start again"]
    _cap_quota(before, hub)
    return [*notes, *_cap_quota(after, hub, lost=spoke)]


def _hub_of(snapshot: Snapshot, spoke: str) -> str:
    found = {
        each.name: each.cluster
        for each in snapshot.observed.values()
        if each.plural == kinds.MULTIKUEUE_CLUSTER.plural
    }
    if spoke not in found:
        there = f"there are {', '.join(sorted(found))}" if found else "there are none at all"
        raise CommandError(
            f"--lost-spoke {spoke}", "there is no such MultiKueueCluster", hint=there
        )
    return found[spoke]


def _requeue(snapshot: Snapshot, hub: str, spoke: str) -> int:
    """Requeue the workloads that ran on the spoke, drop the spoke's own; returns how many were requeued."""
    for ident in [ident for ident in snapshot.workloads if ident[0] == spoke]:
        del snapshot.workloads[ident]
        snapshot.admissions.pop(ident, None)
    lost = [*_sent_to(snapshot, hub, spoke)]
    for ident in lost:
        del snapshot.admissions[ident]
        if (state := snapshot.workloads.get(ident)) is not None:
            snapshot.workloads[ident] = state.requeued()
    return len(lost)


def _sent_to(snapshot: Snapshot, hub: str, spoke: str) -> Iterator[Id]:
    for ident, admission in snapshot.admissions.items():
        if ident[0] == hub and admission.spoke == spoke and admission.state in HOLDING:
            yield ident


# What there is room for --------------------------------------------------------------------------------


def _cap_quota(snapshot: Snapshot, hub: str, *, lost: str = "") -> list[str]:
    """Cap each queue of the hub by the quota of its spokes."""
    configuration = MultiKueueConfiguration(cluster=hub)
    for each in snapshot.observed.values():
        if each.cluster == hub:
            configuration.observe(each)
    notes = []
    for queue in [*snapshot.of(kinds.CLUSTER_QUEUE, hub)]:
        spokes = [*_spokes_of(queue, configuration)]
        if not spokes:
            continue
        left = [spoke for spoke in spokes if spoke != lost]
        if silent := [spoke for spoke in left if not _is_known(snapshot, spoke)]:
            notes.append(f"ClusterQueue {queue.name}: what {', '.join(silent)} has is not known")
            continue
        gone_first = [
            flavor
            for flavor in flavors_of(spec_of(queue.object))
            if lost and configuration.required_spoke(str(flavor.get("name"))) == lost
        ]
        spoke_quota = _quota_of_spokes(snapshot, hub, queue.name, left)
        notes += _reduce_quota(
            snapshot, queue, spoke_quota, [str(flavor.get("name")) for flavor in gone_first]
        )
    return notes


def _spokes_of(queue: Observed, configuration: MultiKueueConfiguration) -> Iterator[str]:
    for name in check_names(spec_of(queue.object)):
        if configuration.is_multikueue_check(name):
            yield from configuration.spokes(name).configured


def _is_known(snapshot: Snapshot, spoke: str) -> bool:
    return any(each.cluster == spoke for each in snapshot.observed.values())


def _quota_of_spokes(snapshot: Snapshot, hub: str, queue: str, spokes: Sequence[str]) -> Amounts:
    """The nominal quota of all queues in `spokes` behind LocalQueues of the same name."""
    entrances = {
        (each.namespace, each.name)
        for each in snapshot.of(kinds.LOCAL_QUEUE, hub)
        if spec_of(each.object).get("clusterQueue") == queue
    }
    spoke_quota: Amounts = {}
    for spoke in spokes:
        meant = {
            str(spec_of(each.object).get("clusterQueue"))
            for each in snapshot.of(kinds.LOCAL_QUEUE, spoke)
            if (each.namespace, each.name) in entrances
        }
        for there in snapshot.of(kinds.CLUSTER_QUEUE, spoke):
            for resource, quota in _nominal(there) if there.name in meant else ():
                spoke_quota[resource] = spoke_quota.get(resource, 0) + quota
    return spoke_quota


def _nominal(queue: Observed) -> Iterator[tuple[str, int]]:
    for flavor in flavors_of(spec_of(queue.object)):
        for resource in flavor.get("resources") or []:
            name = str(resource.get("name"))
            yield name, _amount(queue, name, resource)


def _amount(queue: Observed, name: str, resource: dict[str, Any]) -> int:
    try:
        return amount(name, str(resource.get("nominalQuota", "0")))
    except QuantityError as error:
        raise CommandError(f"ClusterQueue {queue.name}", f"{name}: {error}") from error


def _reduce_quota(
    snapshot: Snapshot, queue: Observed, spoke_quota: Amounts, gone_first: list[str]
) -> list[str]:
    """Take the excess from flavors of a lost spoke first, then from the last flavors."""
    had: Amounts = {}
    for resource, quota in _nominal(queue):
        had[resource] = had.get(resource, 0) + quota
    excess = {name: all_ - spoke_quota.get(name, 0) for name, all_ in had.items()}
    excess = {name: much for name, much in excess.items() if much > 0}
    if not excess:
        return []
    less = queue.with_object(deepcopy(queue.object or {}))
    flavors = [*reversed([*flavors_of(spec_of(less.object))])]
    flavors.sort(key=lambda flavor: flavor.get("name") not in gone_first)
    left = dict(excess)
    for flavor in flavors:
        for resource in flavor.get("resources") or []:
            name = str(resource.get("name"))
            quota = _amount(queue, name, resource)
            taken = min(quota, left.get(name, 0))
            left[name] = left.get(name, 0) - taken
            _set(resource, name, quota - taken)
    snapshot.observe(less)
    return [
        f"ClusterQueue {queue.name}: {name} {format_amount(name, had[name])} -> "
        f"{format_amount(name, had[name] - much)}, which is what its spokes have"
        for name, much in excess.items()
    ]


def _set(resource: dict[str, Any], name: str, quota: int) -> None:
    """Set nominal quota; a lending limit must not exceed it."""
    resource["nominalQuota"] = format_amount(name, quota)
    lending: Any = resource.get("lendingLimit")
    if lending is not None and amount(name, str(lending)) > quota:
        resource["lendingLimit"] = resource["nominalQuota"]
