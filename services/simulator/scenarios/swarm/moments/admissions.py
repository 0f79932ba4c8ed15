"""Tells when a Workload becomes admitted, or evicted: the moment before its job is released, or stopped."""

from collections.abc import Callable

from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event
from services.simulator.scenarios.system import System
from shared.contracts.kube.conditions import ADMITTED, EVICTED, is_true
from shared.contracts.kube.kinds import WORKLOAD
from shared.testing.world.world import World


def follow_admissions(
    system: System, act: Callable[[Obj], None], *, is_free: Callable[[], bool] = lambda: True
) -> None:
    """Call `act` with each Workload that has become admitted, once for each admission.

    What changes while `is_free` says no is not looked at.
    """
    _follow(system, ADMITTED, act, is_free)


def follow_evictions(system: System, act: Callable[[Obj], None]) -> None:
    """Call `act` with each Workload that has become evicted, once for each eviction."""
    _follow(system, EVICTED, act, lambda: True)


def may_act(world: World, until: float) -> bool:
    """Whether faults may happen, and those of the last moment are over: they last until this loop time."""
    return not world.calm and not world.closing and world.loop.time() >= until


def _follow(
    system: System, condition: str, act: Callable[[Obj], None], is_free: Callable[[], bool]
) -> None:
    seen: set[str] = set()

    def on_workload(event: Event) -> None:
        obj = event.stored.obj
        uid = obj["metadata"]["uid"]
        if not is_free():
            return
        if not is_true(obj, condition):
            seen.discard(uid)
        elif uid not in seen:
            seen.add(uid)
            act(obj)

    found = system.api.kinds.find(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural)
    assert found is not None
    system.api.store.subscribe(found, on_workload)
