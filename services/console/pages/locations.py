"""Where work runs: flavors, spokes, and the build machines of each platform."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from services.console.pages.documents import (
    FlavorDetail,
    MachineDetail,
    PlatformDetail,
    Slot,
    SpokeDetail,
)
from shared.bus.follow import recall_entries, skip_undecodable
from shared.bus.port import Bus, Entry
from shared.contracts.kube.bodies import spec_of
from shared.contracts.messages.base import Message
from shared.contracts.messages.hosts import PlatformState
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import SpokeState
from shared.contracts.subjects import subject_filter

M = TypeVar("M", bound=Message)


def flavor_detail(observed: Observed) -> FlavorDetail:
    """A ResourceFlavor: the nodes that it means."""
    spec = spec_of(observed.object)
    taints = spec.get("nodeTaints") or []
    return FlavorDetail(
        cluster=observed.cluster,
        name=observed.name,
        node_labels={str(k): str(v) for k, v in (spec.get("nodeLabels") or {}).items()},
        node_taints=[
            f"{each.get('key')}={each.get('value') or ''}:{each.get('effect')}" for each in taints
        ],
        topology=spec.get("topologyName"),
    )


async def spokes(bus: Bus, configured: list[Observed]) -> list[SpokeDetail]:
    """Each of the MultiKueueClusters, with what the dispatcher knows of it."""
    states = {
        (each.cluster, each.spoke): each
        for each in await _view(bus, SpokeState, subject_filter("spoke"))
    }
    found = []
    for each in configured:
        state = states.get((each.cluster, each.name))
        detail = SpokeDetail(cluster=each.cluster, name=each.name)
        if state is not None:
            detail = SpokeDetail(
                cluster=each.cluster,
                name=each.name,
                active=state.active,
                reason=state.reason,
                message=state.message,
                offered=state.counts.offered,
                chosen=state.counts.chosen,
                withdrawing=state.counts.withdrawing,
                latency_seconds=state.latency_seconds,
                failures=state.failures,
                free=state.free,
                at=state.at,
            )
        found.append(detail)
    return found


async def platforms(bus: Bus, *, shows: Callable[[str], bool]) -> list[PlatformDetail]:
    """The machines and slots of each platform. `shows`: whether the user may see a namespace."""
    found = []
    for state in await _view(bus, PlatformState, subject_filter("platform")):
        slots = [
            Slot(
                host=slot.host,
                state=slot.state,
                namespace=slot.namespace if shows(slot.namespace) else None,
                task_run=slot.name if shows(slot.namespace) else None,
            )
            for slot in state.seats
        ]
        machines = [
            MachineDetail(
                name=each.name,
                provider=each.provider,
                state=each.state,
                shared=each.shared,
                launched_at=each.launched_at,
            )
            for each in state.machines
        ]
        found.append(
            PlatformDetail(
                cluster=state.cluster,
                platform=state.platform,
                slots=slots,
                machines=machines,
                refused=len(state.refusals),
                at=state.at,
            )
        )
    return sorted(found, key=lambda one: (one.cluster, one.platform))


async def _view(bus: Bus, kind: type[M], filter_: str) -> list[M]:
    """The latest message of each subject that the filter selects."""
    found: list[M] = []

    def keep(_stream: str, entry: Entry) -> None:
        found.append(entry.read(kind))

    on_entry = partial(skip_undecodable, keep, kind.stream)
    await recall_entries(bus, kind.stream, [filter_], on_entry=on_entry)
    return found
