"""Between the wire and the domain: books to messages and back, verdicts to what a TaskRun is told."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from services.provisioner.allocation.ledger import Access, Book, Machine, Seat
from services.provisioner.allocation.results import (
    Failed,
    Launching,
    Placed,
    Preparing,
    Verdict,
    Waiting,
)
from services.provisioner.config.host_config import MachineSpec
from services.provisioner.config.platforms import is_platform
from services.provisioner.providers.port import Order
from services.provisioner.task_runs.requests import Request
from services.provisioner.task_runs.ssh_secret import (
    LOCALHOST,
    error_secret,
    local_secret,
    remote_secret,
)
from shared.contracts.kube.names import slot_resource
from shared.contracts.messages import effects
from shared.contracts.messages.effects import HostState, PlatformState

__all__ = ["to_book", "to_host_state", "to_order", "to_platform_state", "to_released"]


def to_book(state: PlatformState) -> Book:
    """The record as it was last written."""
    return Book(
        cluster=state.cluster,
        platform=state.platform,
        seats={
            seat.uid: Seat(
                uid=seat.uid,
                namespace=seat.namespace,
                name=seat.name,
                host=seat.host,
                address=seat.address,
                state=seat.state,
                access=_to_access(seat.access),
                sealed=seat.sealed,
            )
            for seat in state.seats
        },
        machines={
            machine.name: Machine(
                name=machine.name,
                provider=machine.provider,
                tag=machine.tag,
                state=machine.state,
                shared=machine.shared,
                holder=machine.holder,
                task_run=machine.task_run,
                address=machine.address,
                launched_at=machine.launched_at,
                deadline=machine.deadline,
            )
            for machine in state.machines
        },
        attempts=dict(state.attempts),
        refusals=dict(state.refusals),
        failed_hosts={uid: tuple(hosts) for uid, hosts in state.failed_hosts.items()},
    )


def _to_access(access: effects.HostAccess | None) -> Access | None:
    if access is None:
        return None
    return Access(
        user=access.user,
        port=access.port,
        secret=access.secret,
        host_keys=tuple(access.host_keys),
        sudo_commands=access.sudo_commands,
    )


def _from_access(access: Access | None) -> effects.HostAccess | None:
    if access is None:
        return None
    return effects.HostAccess(
        user=access.user,
        port=access.port,
        secret=access.secret,
        host_keys=list(access.host_keys),
        sudo_commands=access.sudo_commands,
    )


def to_platform_state(book: Book, *, now: datetime) -> PlatformState:
    """The record to write."""
    return PlatformState(
        cluster=book.cluster,
        platform=book.platform,
        seats=[
            effects.Seat(
                uid=seat.uid,
                namespace=seat.namespace,
                name=seat.name,
                host=seat.host,
                address=seat.address,
                state=seat.state,
                access=_from_access(seat.access),
                sealed=seat.sealed,
            )
            for seat in book.seats.values()
        ],
        machines=[
            effects.Machine(
                name=machine.name,
                provider=machine.provider,
                tag=machine.tag,
                state=machine.state,
                shared=machine.shared,
                holder=machine.holder,
                task_run=machine.task_run,
                address=machine.address,
                launched_at=machine.launched_at,
                deadline=machine.deadline,
            )
            for machine in book.machines.values()
        ],
        attempts=dict(book.attempts),
        refusals=dict(book.refusals),
        failed_hosts={uid: list(hosts) for uid, hosts in book.failed_hosts.items()},
        at=now,
    )


def to_host_state(
    request: Request,
    verdict: Verdict,
    *,
    cluster: str,
    provider: str,
    failed_hosts: Sequence[str] = (),
    ordered_at: datetime | None = None,
    now: datetime,
) -> HostState:
    """What `request` is told."""
    state = HostState(
        cluster=cluster,
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        platform=request.platform,
        state="waiting",
        provider=provider,
        failed_hosts=list(failed_hosts),
        asked_at=request.created_at,
        ordered_at=ordered_at,
        workload=request.workload,
        slots=_slots(request, provider) if request.workload else {},
        at=now,
        traceparent=request.traceparent,
    )
    match verdict:
        case Waiting(message=message):
            return state.model_copy(update={"message": message})
        case Launching(host=host):
            return state.model_copy(update={"state": "launching", "host": host})
        case Preparing(host=host, address=address):
            known = {"state": "launching", "host": host, "address": address}
            return state.model_copy(update={**known, "message": f"preparing host {host}"})
        case Placed(host=host, address=address, sealed=sealed):
            secret = (
                local_secret()
                if host == LOCALHOST
                else remote_secret(
                    request.platform,
                    namespace=request.namespace,
                    name=request.name,
                    address=address,
                )
            )
            placed = {"state": "ready", "host": host, "address": address, "secret": secret}
            return state.model_copy(update={**placed, "sealed": sealed or None})
        case Failed(message=message):
            shown = request.platform if is_platform(request.platform) else ""
            secret = error_secret(message=message, platform=shown)
            failed = {"state": "failed", "message": message, "secret": secret}
            return state.model_copy(update=failed)
        case _:
            assert_never(verdict)


def _slots(request: Request, provider: str) -> dict[str, str]:
    """What the shipped rules ask for a build on that platform."""
    slots = {slot_resource(request.platform): "1"}
    return {**slots, "aws-ip": "1"} if provider == "aws" else slots


def to_released(said: HostState, *, now: datetime) -> HostState:
    """The end of what was said about a TaskRun: nothing is held for it any more."""
    ended = {"state": "released", "secret": None, "sealed": None, "message": "", "at": now}
    return said.model_copy(update=ended)


def to_order(machine: Machine, spec: MachineSpec, *, platform: str, cluster: str) -> Order:
    """What to ask a provider for. Our own tags win over those of the configuration."""
    tags = {
        **dict(spec.extra_tags),
        "MultiPlatformManaged": "true",
        "multi-platform-instance": machine.tag,
        "Name": machine.name,
        "taskRunID": machine.task_run,
        "sluicegate-cluster": cluster,
    }
    return Order(
        name=machine.name,
        owner=cluster,
        platform=platform,
        tag=machine.tag,
        tags=tags,
        parameters=dict(spec.parameters),
    )
