"""A slot as it is given to a TaskRun, and the result that follows from it. Pure."""

from collections.abc import Mapping

from services.provisioner.allocation.ledger import HostAccess, HostSlot, SlotState
from services.provisioner.allocation.messages import failure_note, namespace_limited
from services.provisioner.allocation.results import Placed, Preparing, Waiting
from services.provisioner.naming import build_user_name
from services.provisioner.task_runs.requests import HostRequest


class Budgets:
    """How many hosts the TaskRuns of no admitted run may still get in one round, by namespace."""

    def __init__(self, left: Mapping[str, int] | None = None) -> None:
        """`left`: a namespace without an entry may have any number."""
        self._left = dict(left or {})

    def use(self, request: HostRequest) -> Waiting | None:
        """Count a host for `request`. Returns what to tell it if its namespace may have no more."""
        namespace = request.namespace
        if request.workload or namespace not in self._left:
            return None
        if self._left[namespace] <= 0:
            return Waiting(message=namespace_limited(namespace))
        self._left[namespace] -= 1
        return None


def new_slot(
    request: HostRequest, *, host: str, address: str, access: HostAccess | None
) -> HostSlot:
    """The slot of `request` on `host`, which nobody has entered for it. `access` None: nobody will."""
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
