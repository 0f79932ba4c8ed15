"""Hosts that are only pretended: who is on them, and bad days. For worlds and tests."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.provisioner.hosts.port import HostRefusedError, HostUnreachableError, Place

__all__ = ["FakeFleet", "FakeHosts"]


@dataclass(slots=True, kw_only=True)
class FakeFleet:
    """What outlives those who enter: the hosts, and their users."""

    call_seconds: float = 0.3
    users: dict[str, dict[str, str]] = field(default_factory=dict)
    """Host to user to the public key that it lets in."""

    refusing: set[str] = field(default_factory=set)
    """Hosts with another key than they should have."""

    silent: set[str] = field(default_factory=set)
    """Hosts that do not answer."""

    touched: dict[tuple[str, str], float] = field(default_factory=dict)
    """Host and user to when it was made, in the loop's time."""

    visits: list[str] = field(default_factory=list)
    """Hosts that were kept up, in the order of the visits."""

    hanging: set[str] = field(default_factory=set)
    """Hosts that take a connection, and then say nothing for ever."""

    def on(self, host: str) -> dict[str, str]:
        """The users of one host."""
        return self.users.setdefault(host, {})


class FakeHosts:
    """Keeps `services.provisioner.hosts.port.Hosts` over a pretended fleet."""

    def __init__(self, fleet: FakeFleet) -> None:
        self._fleet = fleet

    async def prepare(self, place: Place, *, public_key: str, expires_at: datetime) -> None:
        """Make the user, or change its key."""
        del expires_at  # Nobody logs in.
        await self._enter(place, "prepare")
        self._fleet.on(place.host)[place.user] = public_key
        self._fleet.touched[place.host, place.user] = asyncio.get_running_loop().time()

    async def take_key(self, place: Place) -> bytes:
        """A key of the machine's own: nobody logs in with it."""
        await self._enter(place, "take the key")
        seed = hashlib.sha256(place.host.encode()).digest()
        key = Ed25519PrivateKey.from_private_bytes(seed)
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )

    async def keep_up(
        self, place: Place, *, keep: Sequence[str], idle_seconds: int, update: bool
    ) -> str:
        """Remove users that are idle for so long."""
        del update
        await self._enter(place, "keep_up")
        self._fleet.visits.append(place.host)
        before = asyncio.get_running_loop().time() - idle_seconds
        users = self._fleet.on(place.host)
        old = [u for u in users if u not in keep and self._fleet.touched[place.host, u] < before]
        for user in old:
            del users[user]
        return f"users removed: {len(old)}"

    async def clean(self, place: Place) -> None:
        """Remove the user."""
        await self._enter(place, "clean")
        self._fleet.on(place.host).pop(place.user, None)

    async def _enter(self, place: Place, action: str) -> None:
        await asyncio.sleep(self._fleet.call_seconds)
        if place.host in self._fleet.hanging:
            await asyncio.Event().wait()
        if place.host in self._fleet.refusing:
            raise HostRefusedError(place.host, action, "its key is none of those that it may have")
        if place.host in self._fleet.silent:
            raise HostUnreachableError(place.host, action, "no answer")
