"""A slot as it is given to a TaskRun, and the result that follows from it. Pure."""

from collections.abc import Mapping

from services.provisioner.allocation.ledger import HostAccess, HostSlot, SlotState
from services.provisioner.allocation.messages import failure_note
from services.provisioner.allocation.results import Placed, Preparing
from services.provisioner.naming import build_user_name
from services.provisioner.task_runs.requests import HostRequest

__all__ = ["new_slot", "result_of"]


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
