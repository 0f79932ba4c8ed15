"""A slot as it is given to a TaskRun, and the result that follows from it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from services.provisioner.allocation.ledger import HostAccess, HostSlot, SlotState
from services.provisioner.allocation.messages import failure_note, namespace_limited, run_limited
from services.provisioner.allocation.results import Placed, Preparing, Waiting
from services.provisioner.naming import build_user_name
from services.provisioner.task_runs.requests import HostRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """How many more hosts those who ask for one platform may get in one round."""

    direct: Mapping[str, int] = field(default_factory=dict)
    """Namespace to the hosts that its TaskRuns may get beyond the quota of runs. No entry: any number."""

    runs: Mapping[str, int] = field(default_factory=dict)
    """Run to the hosts that its TaskRuns may get on its quota."""

    holding: frozenset[str] = frozenset()
    """Uids of TaskRuns that have a host already, which may end: they are counted."""


UNLIMITED: Final = HostLimits()


class Budgets:
    """What is left of the limits during one round."""

    def __init__(self, limits: HostLimits) -> None:
        self._direct = dict(limits.direct)
        self._runs = dict(limits.runs)
        self._holding = limits.holding

    def use(self, request: HostRequest) -> Waiting | None:
        """Count a host for `request`. Returns what to tell it if it may have none."""
        namespace = request.namespace
        if request.reserved or (request.workload and request.uid in self._holding):
            return None
        run = request.run
        if request.workload and self._runs.get(run, 0) > 0:
            self._runs[run] -= 1
            return None
        if namespace not in self._direct:
            return None
        if self._direct[namespace] <= 0:
            limited = run_limited if request.workload else namespace_limited
            return Waiting(message=limited(namespace))
        self._direct[namespace] -= 1
        return None


def new_slot(
    request: HostRequest, *, host: str, address: str, access: HostAccess | None
) -> HostSlot:
    """The slot of `request` on `host`, not logged in to yet. `access` None: no login follows."""
    return HostSlot(
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        host=host,
        address=address,
        user=build_user_name(uid=request.uid, host=host),
        access=access,
        state=_first_state(request, access),
    )


def result_of(slot: HostSlot, failed: Mapping[str, str]) -> Placed | Preparing:
    """The result for the TaskRun of `slot`. `failed`: hosts that failed for it before, and why."""
    if slot.state == "preparing":
        return Preparing(host=slot.host, address=slot.address, note=failure_note(failed))
    return Placed(host=slot.host, address=slot.address, user=slot.user, sealed=slot.sealed)


def _first_state(request: HostRequest, access: HostAccess | None) -> SlotState:
    if request.reserved:
        return "held"
    return "ready" if access is None else "preparing"
