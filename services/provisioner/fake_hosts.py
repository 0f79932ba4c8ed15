"""Hosts that are only pretended: who is on them, and bad days. For worlds and tests."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from services.provisioner.hosts import HostRefusedError, HostUnreachableError, Place

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

    def on(self, host: str) -> dict[str, str]:
        """The users of one host."""
        return self.users.setdefault(host, {})


class FakeHosts:
    """Keeps `services.provisioner.hosts.Hosts` over a pretended fleet."""

    def __init__(self, fleet: FakeFleet) -> None:
        self._fleet = fleet

    async def prepare(self, place: Place, *, public_key: str, expires_at: datetime) -> None:
        """Make the user, or change its key."""
        del expires_at  # Nobody logs in.
        await self._enter(place, "prepare")
        self._fleet.on(place.host)[place.user] = public_key

    async def clean(self, place: Place) -> None:
        """Remove the user."""
        await self._enter(place, "clean")
        self._fleet.on(place.host).pop(place.user, None)

    async def _enter(self, place: Place, action: str) -> None:
        await asyncio.sleep(self._fleet.call_seconds)
        if place.host in self._fleet.refusing:
            raise HostRefusedError(place.host, action, "its key is none of those that it may have")
        if place.host in self._fleet.silent:
            raise HostUnreachableError(place.host, action, "no answer")
