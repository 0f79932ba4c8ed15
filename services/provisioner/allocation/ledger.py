"""The record of one platform: who sits where, and which machines there are."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

__all__ = [
    "KEPT",
    "Access",
    "Book",
    "Machine",
    "MachineState",
    "Seat",
    "SeatState",
    "is_kept",
    "machine_name",
    "owner_mark",
]

MachineState = Literal["launching", "running", "terminating"]

SeatState = Literal["held", "preparing", "ready", "cleaning"]

KEPT: Final = "slot:"
"""With it begins the uid of a place that is kept for a run: no TaskRun's does."""

_OWNER_DIGITS: Final = 6
_NUMBER_DIGITS: Final = 10
_TAG_LENGTH_MAX: Final = 45
"""With a dash and the digits it stays below the 63 characters of a DNS label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to get onto a host, as it was when the place was given: the configuration may change."""

    user: str
    port: int = 22
    secret: str
    host_keys: tuple[str, ...] = ()
    sudo_commands: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A TaskRun's place on a host."""

    uid: str
    """Of the TaskRun; with `@<host>` of one that was given another host, while this one is cleaned."""

    namespace: str
    name: str
    host: str
    """A static host or a machine."""

    address: str
    state: SeatState = "ready"
    access: Access | None = None
    """None: nobody has to go there."""

    sealed: str = ""
    """What its TaskRun's secret holds besides, for the patcher alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, recorded from before it is ordered until the provider has confirmed its end."""

    name: str
    provider: str
    """Type and account, as `MachineSpec.account` writes it."""

    tag: str
    state: MachineState
    shared: bool
    """Of a pool."""

    holder: str
    """Uid of the TaskRun that it was ordered for."""

    task_run: str
    """`<namespace>:<name>` of that TaskRun."""

    address: str = ""
    launched_at: datetime
    deadline: datetime
    """Without an address by then, it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What was decided about one platform. It outlives the platform's configuration."""

    cluster: str
    platform: str
    seats: Mapping[str, Seat] = field(default_factory=dict)
    """By the TaskRun's uid."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    """TaskRun uid to how many machines were ordered for it."""

    refusals: Mapping[str, str] = field(default_factory=dict)
    """TaskRun uid to why it gets no host, until it has ended."""

    failed_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """TaskRun uid to the hosts that could not be prepared for it."""


def is_kept(uid: str) -> bool:
    """Whether that is a place that is kept for a run, and no TaskRun."""
    return uid.startswith(KEPT)


def owner_mark(owner: str) -> str:
    """The digits with which the last part of a machine's name begins: whose it is."""
    return hashlib.sha256(owner.encode()).hexdigest()[:_OWNER_DIGITS]


def machine_name(*, cluster: str, uid: str, attempt: int, tag: str) -> str:
    """The same for the same TaskRun and attempt, so that ordering twice gives one machine.

    Some clouds keep no tags with a machine: there its name must say whose it is.
    """
    number = hashlib.sha256(f"{cluster}/{uid}/{attempt}".encode()).hexdigest()[:_NUMBER_DIGITS]
    return f"{tag[:_TAG_LENGTH_MAX] or 'sluicegate'}-{owner_mark(cluster)}{number}"
