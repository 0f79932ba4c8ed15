"""Fake hosts in memory, with failures on request. For simulations and tests."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.provisioner.hosts.port import HostRefusedError, HostTarget, HostUnreachableError


@dataclass(slots=True, kw_only=True)
class FakeFleet:
    """The hosts and their users. They outlive a crash of the provisioner."""

    call_seconds: float = 0.3
    users: dict[str, dict[str, str]] = field(default_factory=dict)
    """Host to user to the public key that the host accepts for it."""

    refusing: set[str] = field(default_factory=set)
    """Hosts whose host key is wrong."""

    host_keys: dict[str, str] = field(default_factory=dict)
    """Host to its key. A login that does not accept it is refused. Without entry each login is accepted."""

    broken: set[str] = field(default_factory=set)
    """Hosts on which a preparation fails after it made the user, and a cleaning before it removed it."""

    silent: set[str] = field(default_factory=set)
    """Hosts that do not answer."""

    touched: dict[tuple[str, str], float] = field(default_factory=dict)
    """Host and user to the time of creation, in the loop's time."""

    visits: list[str] = field(default_factory=list)
    """Hosts that were maintained, in order."""

    hanging: set[str] = field(default_factory=set)
    """Hosts that accept a connection and never answer."""

    def on(self, host: str) -> dict[str, str]:
        """The users of one host."""
        return self.users.setdefault(host, {})


class FakeHosts:
    """`services.provisioner.hosts.port.Hosts` on a `FakeFleet`."""

    def __init__(self, fleet: FakeFleet) -> None:
        self._fleet = fleet

    async def prepare(self, target: HostTarget, *, public_key: str, expires_at: datetime) -> None:
        """Make the user, or change its key."""
        del expires_at  # There is no login.
        await self._enter(target, "prepare")
        self._fleet.on(target.host)[target.user] = public_key
        self._fleet.touched[target.host, target.user] = asyncio.get_running_loop().time()
        self._fail_if_broken(target, "prepare")

    async def read_key(self, target: HostTarget) -> bytes:
        """A key that is derived from the host's name. It opens nothing."""
        await self._enter(target, "read the key")
        seed = hashlib.sha256(target.host.encode()).digest()
        key = Ed25519PrivateKey.from_private_bytes(seed)
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )

    async def maintain(
        self, target: HostTarget, *, keep: Sequence[str], idle_seconds: int, update: bool
    ) -> str:
        """Remove idle users."""
        del update
        await self._enter(target, "maintain")
        self._fleet.visits.append(target.host)
        before = asyncio.get_running_loop().time() - idle_seconds
        users = self._fleet.on(target.host)
        old = [u for u in users if u not in keep and self._fleet.touched[target.host, u] < before]
        for user in old:
            del users[user]
        return f"users removed: {len(old)}"

    async def clean(self, target: HostTarget) -> None:
        """Remove the user."""
        await self._enter(target, "clean")
        self._fail_if_broken(target, "clean")
        self._fleet.on(target.host).pop(target.user, None)

    async def _enter(self, target: HostTarget, action: str) -> None:
        await asyncio.sleep(self._fleet.call_seconds)
        if target.host in self._fleet.hanging:
            await asyncio.Event().wait()
        key = self._fleet.host_keys.get(target.host)
        if target.host in self._fleet.refusing or not {key} <= {None, *target.access.host_keys}:
            raise HostRefusedError(
                target.host, action, "its host key is not one of the accepted keys"
            )
        if target.host in self._fleet.silent:
            raise HostUnreachableError(target.host, action, "no answer")

    def _fail_if_broken(self, target: HostTarget, action: str) -> None:
        if target.host in self._fleet.broken:
            raise HostUnreachableError(target.host, action, "no space left", entered=True)
