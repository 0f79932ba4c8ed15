"""What the provisioner needs from whoever has machines, in the provisioner's own words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

__all__ = [
    "Order",
    "Provider",
    "ProviderBusyError",
    "ProviderError",
    "ProviderRefusedError",
    "Vm",
    "VmState",
]


class VmState(StrEnum):
    """The states that we act on. A provider maps its dozen onto these."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """It will never run; it must be terminated all the same."""

    GONE = "gone"
    """Terminated: it costs nothing and counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A machine that is wanted."""

    name: str
    """Ours, and unique: whoever orders the same name twice gets one machine."""

    owner: str
    """Cluster for whose TaskRuns it is. Installations that share an account must differ in it."""

    platform: str
    tag: str
    """The platform's instance tag: people find and bill machines by it."""

    tags: Mapping[str, str]
    """All that the machine must carry, `tag` included."""

    parameters: Mapping[str, str]
    """`dynamic.<platform>.…` of the host configuration; the provider validates its own keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """A machine as last seen. Never trusted for longer than one decision."""

    name: str
    state: VmState
    address: str = ""
    """Empty until it can be reached."""

    launched_at: datetime | None = None
    """None where the provider does not say."""


class ProviderError(Exception):
    """It went wrong and nobody knows why: worth another try, not many. It may yet have happened."""

    def __init__(self, provider: str, action: str, name: str, reason: str) -> None:
        super().__init__(f"{provider}: cannot {action} {name}: {reason}")
        self.reason = reason


class ProviderBusyError(ProviderError):
    """Not now: throttled, out of capacity. Asking again later will help."""


class ProviderRefusedError(ProviderError):
    """Never: asking again will not help (no such image, no permission)."""


class Provider(Protocol):
    """One account of one cloud. Every call is idempotent in the name."""

    async def launch(self, order: Order) -> None:
        """Ask for the machine. Does nothing if that name is there already, or was."""

    async def find(self, name: str) -> Vm | None:
        """What the provider knows now; None if it knows no such name."""

    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """Every machine that is not gone and was ordered for `owner`; nobody else's, ever."""

    async def terminate(self, name: str) -> None:
        """Ask for its end. Does nothing if it is gone or never was. `find` tells when it is done."""

    async def close(self) -> None:
        """Let go of connections. Nothing is asked after it."""
