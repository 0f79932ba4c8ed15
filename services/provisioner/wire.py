"""Between the domain and the bus: ledgers to `PlatformState` and back, results to `HostState`."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, assert_never

from services.provisioner.allocation.ledger import AllocationLedger, HostAccess, HostSlot, Machine
from services.provisioner.allocation.results import (
    Failed,
    Launching,
    Placed,
    Preparing,
    Result,
    Waiting,
)
from services.provisioner.config.platforms import is_platform
from services.provisioner.naming import legacy_user_name
from services.provisioner.task_runs.requests import HostRequest
from services.provisioner.task_runs.ssh_secret import (
    LOCALHOST,
    error_secret,
    local_secret,
    remote_secret,
)
from shared.contracts.kube.names import slot_resource
from shared.contracts.messages import hosts
from shared.contracts.messages.hosts import HostState, PlatformOffer, PlatformState
from shared.contracts.multi_platform import AWS_ADDRESSES


def to_ledger(state: PlatformState) -> AllocationLedger:
    """The ledger that `state` records."""
    return AllocationLedger(
        cluster=state.cluster,
        platform=state.platform,
        slots={slot.uid: _to_slot(slot) for slot in state.seats},
        machines={machine.name: Machine(**dict(machine)) for machine in state.machines},
        attempts=dict(state.attempts),
        refusals=dict(state.refusals),
        failed_hosts={
            uid: {host: state.failure_reasons.get(uid, {}).get(host, "") for host in names}
            for uid, names in state.failed_hosts.items()
        },
        returned=dict(state.returned),
    )


def _to_slot(slot: hosts.HostSlot) -> HostSlot:
    fields: dict[str, Any] = dict(slot)
    if not slot.user:
        # The record is of a version that derived the user from the name: that user is on the host.
        fields["user"] = legacy_user_name(namespace=slot.namespace, name=slot.name)
    if slot.access is not None:
        access = {**dict(slot.access), "host_keys": tuple(slot.access.host_keys)}
        fields["access"] = HostAccess(**access)
    return HostSlot(**fields)


def to_platform_state(ledger: AllocationLedger, *, now: datetime) -> PlatformState:
    """The record of `ledger`, as it is published."""
    return PlatformState(
        cluster=ledger.cluster,
        platform=ledger.platform,
        seats=[hosts.HostSlot.model_validate(asdict(slot)) for slot in ledger.slots.values()],
        machines=[hosts.Machine(**asdict(machine)) for machine in ledger.machines.values()],
        attempts=dict(ledger.attempts),
        refusals=dict(ledger.refusals),
        failed_hosts={uid: list(names) for uid, names in ledger.failed_hosts.items()},
        failure_reasons={uid: dict(names) for uid, names in ledger.failed_hosts.items()},
        returned=dict(ledger.returned),
        at=now,
    )


def to_host_state(
    request: HostRequest,
    result: Result,
    *,
    cluster: str,
    provider: str,
    failed_hosts: Sequence[str] = (),
    ordered_at: datetime | None = None,
    now: datetime,
) -> HostState:
    """What is published about the TaskRun of `request`."""
    return HostState(
        cluster=cluster,
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        platform=request.platform,
        provider=provider,
        failed_hosts=list(failed_hosts),
        asked_at=request.created_at,
        ordered_at=ordered_at,
        workload=request.workload,
        slots=_slots(request, provider) if request.workload else {},
        at=now,
        traceparent=request.traceparent,
        **_fields_of(request, result),
    )


def _fields_of(request: HostRequest, result: Result) -> dict[str, Any]:
    """The fields of a `HostState` that depend on the result."""
    match result:
        case Waiting(message=message):
            return {"state": "waiting", "message": message}
        case Launching(host=host):
            return {"state": "launching", "host": host}
        case Preparing(host=host, address=address, note=note):
            message = f"preparing host {host}" + (f", because {note}" if note else "")
            return {"state": "launching", "host": host, "address": address, "message": message}
        case Placed(host=host, address=address, user=user, sealed=sealed):
            secret = _placed_secret(request, host=host, address=address, user=user)
            placed = {"state": "ready", "host": host, "address": address, "secret": secret}
            return {**placed, "sealed": sealed or None}
        case Failed(message=message):
            shown = request.platform if is_platform(request.platform) else ""
            secret = error_secret(message=message, platform=shown)
            return {"state": "failed", "message": message, "secret": secret}
        case _:
            assert_never(result)


def _placed_secret(request: HostRequest, *, host: str, address: str, user: str) -> dict[str, str]:
    if host == LOCALHOST:
        return local_secret()
    return remote_secret(request.platform, user=user, address=address)


def _slots(request: HostRequest, provider: str) -> dict[str, str]:
    """The resources that the shipped rules ask for a build on that platform."""
    slots = {slot_resource(request.platform): "1"}
    return {**slots, AWS_ADDRESSES: "1"} if provider == "aws" else slots


def ordered_at(ledger: AllocationLedger, result: Result) -> datetime | None:
    """When the machine of that result was ordered; None without one."""
    match result:
        case Launching(host=host) | Preparing(host=host) | Placed(host=host):
            machine = ledger.machines.get(host)
            return machine.launched_at if machine is not None else None
        case _:
            return None


def visible(state: HostState) -> tuple[object, ...]:
    """The fields whose change is published."""
    return (
        state.uid,
        state.state,
        state.host,
        state.address,
        state.message,
        state.secret,
        state.sealed,
        state.workload,
    )


def to_released(state: HostState, *, returned: bool, now: datetime) -> HostState:
    """`state` after its TaskRun gave everything back. `returned`: also its slot, to quota."""
    return HostState(
        **{
            **dict(state),
            "state": "released",
            "slots": state.slots if returned else {},
            "secret": None,
            "sealed": None,
            "message": "",
            "at": now,
        }
    )


def content(offer: PlatformOffer) -> tuple[object, ...]:
    """The fields of an offer whose change is published."""
    return (offer.cluster, offer.configured, offer.platforms, offer.problems)
