"""What the provisioner needs from a host that it has a place on, in the provisioner's own words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.provisioner.allocation.ledger import Access
from services.provisioner.config.systems import System

__all__ = ["HostError", "HostRefusedError", "HostUnreachableError", "Hosts", "Place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A host, and a TaskRun's user on it."""

    host: str
    address: str
    access: Access
    user: str = ""
    """Unique to the TaskRun: making it twice makes one. Empty: the host itself is meant."""

    system: System = System.LINUX


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

    async def take_key(self, place: Place) -> bytes:
        """The private key that a machine made for its only user (Windows, macOS)."""

    async def keep_up(
        self, place: Place, *, keep: Sequence[str], idle_seconds: int, update: bool
    ) -> str:
        """Remove our users that are idle for so long, those to `keep` excepted; `update` the system.

        Returns what was done, in words.
        """

    async def clean(self, place: Place) -> None:
        """Remove the user with all that it has and runs. Does nothing if there is none."""
