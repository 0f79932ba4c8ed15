"""Inputs of a round of allocation besides TaskRuns, and its results."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.provisioner.allocation.ledger import AllocationLedger, Machine

# --- in: what a provider reports of a machine --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUp:
    """The machine runs and has an address."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBroken:
    """The machine will never run. Another one may."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """The provider refuses the order. A retry cannot succeed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGone:
    """The provider confirms that the machine does not exist (any more)."""


MachineObservation = MachineUp | MachineBroken | LaunchRefused | MachineGone

# --- in: what was done on a host for a slot ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPrepared:
    """The user exists on the host, and the key is sealed for the patcher."""

    sealed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUnusable:
    """The host cannot be prepared for this TaskRun. Another one may."""

    reason: str
    entered: bool = True
    """False if it is certain that nobody logged in to the host: no user is to be removed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCleaned:
    """The user is removed, so the slot is free."""

    given_up: bool = False
    """True if the user could not be removed. Its key expires by itself."""


HostReport = HostPrepared | HostUnusable | HostCleaned

# --- out: the result for one TaskRun -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """No host is free yet."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """A machine is ordered for the TaskRun."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """The TaskRun has a slot, and its user is being made on the host."""

    host: str
    address: str
    note: str = ""
    """Which hosts failed before, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The TaskRun has a slot and may build."""

    host: str
    address: str
    """Empty if the TaskRun builds in its own pod."""

    user: str = ""
    """The Linux user of the TaskRun."""

    sealed: str = ""
    """Part of the TaskRun's secret that only the patcher can open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The TaskRun gets no host. The message goes into the `error` key of its secret."""

    message: str


Result = Waiting | Launching | Preparing | Placed | Failed


# --- out: what changed in the ledger, for logs and metrics -------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOrdered:
    """A machine is to be ordered. Its record is written before the provider is called."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEnding:
    """A machine is to be terminated."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReleased:
    """A slot is free again."""

    uid: str
    host: str


LedgerEvent = MachineOrdered | MachineEnding | SlotReleased


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOutcome:
    """The end of a round."""

    ledger: AllocationLedger
    """The very object that came in, if nothing changed."""

    results: Mapping[str, Result]
    """By TaskRun uid, for every request of the round that is not settled."""

    events: tuple[LedgerEvent, ...]
