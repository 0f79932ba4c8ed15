"""The allocation ledger of one platform: which TaskRun has which host, and which machines exist."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

MachineState = Literal["launching", "running", "terminating"]

SlotState = Literal["held", "preparing", "ready", "cleaning"]
"""`held`: reserved for a run, until its TaskRun exists. `preparing`: its user is being made. `cleaning`:
its user is being removed, so the slot is not free yet."""

RESERVED_PREFIX: Final = "slot:"
"""Begins the uid of a slot that is reserved for a run. No uid of a TaskRun begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccess:
    """How to log in to a host. Kept with the slot, since the configuration may change later."""

    user: str
    port: int = 22
    secret: str
    """Name of the secret with the private key and the hosts' public keys."""

    host_keys: tuple[str, ...] = ()
    sudo_commands: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSlot:
    """The slot of one TaskRun on one host."""

    uid: str
    """Of the TaskRun. `<uid>@<host>` while a host is cleaned whose TaskRun moved to another one."""

    namespace: str
    name: str
    host: str
    """Name of a static host or of a machine."""

    address: str
    user: str = ""
    """The Linux user that is made for the TaskRun. Windows and macOS have one of their image instead."""

    state: SlotState = "ready"
    access: HostAccess | None = None
    """None if nobody logs in to the host."""

    sealed: str = ""
    """Part of the TaskRun's secret that only the patcher can open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, recorded from before it is ordered until the provider confirms that it is gone."""

    name: str
    provider: str
    """Type and account, as `MachineSpec.account` writes them."""

    tag: str
    state: MachineState
    shared: bool
    """True for a machine of a pool."""

    holder: str
    """Uid of the TaskRun that it was ordered for."""

    task_run: str
    """`<namespace>:<name>` of that TaskRun."""

    address: str = ""
    launched_at: datetime
    deadline: datetime
    """A machine without an address at this time is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationLedger:
    """All slots and machines of one platform. It outlives the platform's configuration."""

    cluster: str
    platform: str
    slots: Mapping[str, HostSlot] = field(default_factory=dict)
    """By uid of the slot."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    """By name."""

    attempts: Mapping[str, int] = field(default_factory=dict)
    """TaskRun uid to the number of machines that were ordered for it."""

    refusals: Mapping[str, str] = field(default_factory=dict)
    """TaskRun uid to the reason why it gets no host. Kept until the TaskRun ends."""

    failed_hosts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """TaskRun uid to the hosts that could not be prepared for it, in order, and the reason of each."""

    returned: Mapping[str, str] = field(default_factory=dict)
    """Uid of a TaskRun that has ended to the run whose slot it gave back, `<namespace>:<workload>`. Kept
    until the run has no quota: it may have no other host for that slot."""


def is_same_user(slot: HostSlot, other: HostSlot) -> bool:
    """Whether both slots have one user on one host. A host may have several names for its address."""
    if slot.user != other.user:
        return False
    return slot.host == other.host or _ssh_address(slot) == _ssh_address(other)


def _ssh_address(slot: HostSlot) -> tuple[str, int]:
    return (slot.address, slot.access.port if slot.access is not None else 0)


def is_reserved(uid: str) -> bool:
    """Whether `uid` names a slot that is reserved for a run, and no TaskRun."""
    return uid.startswith(RESERVED_PREFIX)
