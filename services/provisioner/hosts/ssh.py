"""Enters hosts over SSH, and makes and removes users there.

The host's key is always verified: against the keys of the host configuration (`host.<name>.host-key`)
and the `known_hosts` of the host's secret, where a pattern or a `@cert-authority` line serves for
machines whose address nobody knows beforehand. A host without either is not entered.
"""

import shlex
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

import asyncssh

from services.provisioner.allocation.ledger import Access
from services.provisioner.config.credentials import SecretError, Secrets
from services.provisioner.config.systems import System
from services.provisioner.hosts.port import HostRefusedError, HostUnreachableError, Place

__all__ = ["SshHosts"]

CONNECT_SECONDS: Final = 20.0
COMMAND_SECONDS: Final = 40.0
SAID_MAX: Final = 300
"""Characters of a script's complaint that are quoted."""

PRIVATE_KEYS: Final = ("id_rsa", "ssh-privatekey")
_SSH_PORT: Final = 22


class SshHosts:
    """Keeps `services.provisioner.hosts.port.Hosts` over SSH."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._script = files("services.provisioner.hosts").joinpath("host.sh").read_text()

    async def prepare(self, place: Place, *, public_key: str, expires_at: datetime) -> None:
        """Make the user and let the key in; both again, where they are there already."""
        # As seconds: `expiry-time` is read in the host's time zone, which only the host knows.
        expiry = str(int(expires_at.timestamp()))
        await self._run(place, "prepare", public_key, expiry, place.access.sudo_commands)

    async def clean(self, place: Place) -> None:
        """Remove the user."""
        await self._run(place, "clean")

    async def take_key(self, place: Place) -> bytes:
        """Read the private key that the machine's image left for its user."""
        if place.system is System.WINDOWS:
            path = rf"C:\Users\{place.access.user}\{place.user}"
            command = f'powershell -NoProfile -Command "Get-Content -Raw {path}"'
        else:
            command = f"cat {shlex.quote(f'/Users/{place.access.user}/{place.user}')}"
        text = (await self._do(place, "take the key", command)).replace("\r\n", "\n")
        try:
            asyncssh.import_private_key(text)
        except asyncssh.KeyImportError as error:
            # The image may still be writing it. What was read is not quoted.
            raise HostUnreachableError(place.host, "take the key", "it is none yet") from error
        return text.encode()

    async def keep_up(
        self, place: Place, *, keep: Sequence[str], idle_seconds: int, update: bool
    ) -> str:
        """Remove idle users, and update."""
        words = [" ".join(keep), str(idle_seconds // 60), "yes" if update else "no"]
        said = await self._run(place, "keep_up", *words, seconds=None)
        return said.strip()[-SAID_MAX:]

    async def _run(
        self, place: Place, action: str, *arguments: str, seconds: float | None = COMMAND_SECONDS
    ) -> str:
        words = [action, place.user or "-", *arguments]
        command = "sh -s -- " + " ".join(shlex.quote(word) for word in words)
        if place.access.user != "root":
            command = f"sudo -n {command}"
        return await self._do(place, action, command, script=self._script, seconds=seconds)

    async def _do(
        self,
        place: Place,
        action: str,
        command: str,
        *,
        script: str = "",
        seconds: float | None = COMMAND_SECONDS,
    ) -> str:
        """Run a command; return what it wrote. `seconds` None: whoever calls has a time-out."""
        options = self._options(place, action)
        try:
            async with asyncssh.connect(**options) as connection:
                result = await connection.run(command, input=script, timeout=seconds)
        except asyncssh.HostKeyNotVerifiable as error:
            reason = "its key is none of those that it may have"
            raise HostRefusedError(place.host, action, reason) from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"[:SAID_MAX]
            raise HostUnreachableError(place.host, action, reason) from error
        if result.exit_status != 0:
            said = str(result.stderr or "").strip()[-SAID_MAX:]
            reason = f"the script ended with {result.exit_status}: {said}"
            raise HostUnreachableError(place.host, action, reason)
        return str(result.stdout or "")

    def _options(self, place: Place, action: str) -> dict[str, Any]:
        access = place.access
        try:
            key = asyncssh.import_private_key(self._secrets.read(access.secret, *PRIVATE_KEYS))
        except SecretError as error:
            raise HostRefusedError(place.host, action, str(error)) from error
        except asyncssh.KeyImportError as error:
            reason = f"the key in secret '{access.secret}' cannot be read"
            raise HostRefusedError(place.host, action, reason) from error
        return {
            "host": place.address,
            "port": access.port,
            "username": access.user,
            "client_keys": [key],
            "known_hosts": self._known_hosts(place, action),
            "preferred_auth": "publickey",
            "agent_path": None,
            "config": None,
            "connect_timeout": CONNECT_SECONDS,
            "login_timeout": CONNECT_SECONDS,
        }

    def _known_hosts(self, place: Place, action: str) -> asyncssh.SSHKnownHosts:
        """Who it may be. Never nobody in particular: that would switch the check off."""
        access = place.access
        listed = self._secrets.find(access.secret, "known_hosts")
        lines = [f"{_pattern(place.address, access)} {key}" for key in access.host_keys]
        text = "\n".join([*lines, listed.decode() if listed else ""])
        try:
            known = asyncssh.import_known_hosts(text)
        except (ValueError, asyncssh.Error) as error:
            reason = f"its known hosts cannot be read: {error}"
            raise HostRefusedError(place.host, action, reason) from error
        if not any(known.match(place.address, place.address, access.port)[:2]):
            reason = (
                f"no key is known for {place.address}: pin one with host.{place.host}.host-key or "
                f"in known_hosts of secret '{access.secret}'"
            )
            raise HostRefusedError(place.host, action, reason)
        return known


def _pattern(address: str, access: Access) -> str:
    return address if access.port == _SSH_PORT else f"[{address}]:{access.port}"
