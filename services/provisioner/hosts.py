"""What the provisioner needs from a host that it has a place on, in the provisioner's own words."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.provisioner.book import Access

__all__ = ["HostError", "HostRefusedError", "HostUnreachableError", "Hosts", "Place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A TaskRun's user on a host."""

    host: str
    address: str
    access: Access
    user: str
    """Unique to the TaskRun: making it twice makes one."""


class HostError(Exception):
    """It went wrong on a host. Never quotes a key."""

    def __init__(self, host: str, action: str, reason: str) -> None:
        super().__init__(f"{host}: cannot {action}: {reason}")
        self.reason = reason


class HostUnreachableError(HostError):
    """Not now: it does not answer, does not know us yet, or a command failed. Worth another try."""


class HostRefusedError(HostError):
    """Never: it is not the host that it should be, or nobody told us how to enter it."""


class Hosts(Protocol):
    """Hosts as they are entered: over SSH, or pretended in worlds. Every call may be repeated."""

    async def prepare(self, place: Place, *, public_key: str, expires_at: datetime) -> None:
        """Make the user, let `public_key` in until `expires_at` and no other key, set its limits."""

    async def clean(self, place: Place) -> None:
        """Remove the user with all that it has and runs. Does nothing if there is none."""
