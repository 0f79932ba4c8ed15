"""What the provisioner needs from a host: `Hosts`, kept by `SshHosts` and `FakeHosts`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.provisioner.allocation.ledger import HostAccess
from services.provisioner.config.systems import System


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTarget:
    """A host, and the user of a TaskRun on it."""

    host: str
    address: str
    access: HostAccess
    user: str = ""
    """Unique to the TaskRun. Empty if the action concerns the host itself."""

    system: System = System.LINUX


class HostError(Exception):
    """An action on a host failed. The message never quotes a key."""

    def __init__(self, host: str, action: str, reason: str, *, entered: bool = False) -> None:
        """`entered`: whether the action may have begun on the host, so that it left something there."""
        super().__init__(f"{host}: cannot {action}: {reason}")
        self.reason = reason
        self.entered = entered


class HostUnreachableError(HostError):
    """The host does not answer, does not accept the login yet, or a command failed. A retry may succeed."""


class HostRefusedError(HostError):
    """The host's key is wrong, or no credentials are configured. A retry cannot succeed."""


class Hosts(Protocol):
    """Actions on hosts. Every call can be repeated. Each raises `HostError`."""

    async def prepare(self, target: HostTarget, *, public_key: str, expires_at: datetime) -> None:
        """Make the user, accept `public_key` and no other key until `expires_at`, set limits."""

    async def read_key(self, target: HostTarget) -> bytes:
        """The private key that the machine's image made for its only user (Windows, macOS)."""

    async def maintain(
        self, target: HostTarget, *, keep: Sequence[str], idle_seconds: int, update: bool
    ) -> str:
        """Remove build users that are idle for `idle_seconds`, except `keep`; `update` the packages.

        Returns a summary for the log.
        """

    async def clean(self, target: HostTarget) -> None:
        """Remove the user with its files and processes. Does nothing if there is no such user."""
