"""The record of one platform: who sits where, and which machines there are."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

__all__ = ["Book", "Machine", "MachineState", "Seat", "machine_name"]

MachineState = Literal["launching", "running", "terminating"]

_NAME_DIGITS: Final = 16
_TAG_LENGTH_MAX: Final = 45
"""With a dash and the digits it stays below the 63 characters of a DNS label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A TaskRun's place on a host."""

    uid: str
    namespace: str
    name: str
    host: str
    """A static host or a machine."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, recorded from before it is ordered until the provider has confirmed its end."""

    name: str
    provider: str
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


def machine_name(*, cluster: str, uid: str, attempt: int, tag: str) -> str:
    """The same for the same TaskRun and attempt, so that ordering twice gives one machine."""
    digest = hashlib.sha256(f"{cluster}/{uid}/{attempt}".encode()).hexdigest()[:_NAME_DIGITS]
    return f"{tag[:_TAG_LENGTH_MAX] or 'sluicegate'}-{digest}"
