"""Implements `Hosts` over SSH with the script `host.sh`.

The host's key is always verified, against the keys of the host configuration (`host.<name>.host-key`)
and the `known_hosts` of the host's secret. For machines, whose address is not known beforehand, a
pattern or a `@cert-authority` line in `known_hosts` serves. Without any key there is no login.
"""

import shlex
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

import asyncssh

from services.provisioner.allocation.ledger import HostAccess
from services.provisioner.config.credentials import SecretError, Secrets
from services.provisioner.config.systems import System
from services.provisioner.hosts.port import HostRefusedError, HostTarget, HostUnreachableError

CONNECT_SECONDS: Final = 20.0
COMMAND_SECONDS: Final = 40.0
OUTPUT_MAX: Final = 300
"""Characters of a script's output that are quoted."""

PRIVATE_KEYS: Final = ("id_rsa", "ssh-privatekey")
_SSH_PORT: Final = 22


class SshHosts:
    """`services.provisioner.hosts.port.Hosts` over SSH."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._script = files("services.provisioner.hosts").joinpath("host.sh").read_text()

    async def prepare(self, target: HostTarget, *, public_key: str, expires_at: datetime) -> None:
        """Make the user if it does not exist, and replace its key."""
        # In seconds: sshd reads `expiry-time` in the host's time zone, which the script knows.
        expiry = str(int(expires_at.timestamp()))
        await self._run(target, "prepare", public_key, expiry, target.access.sudo_commands)

    async def clean(self, target: HostTarget) -> None:
        """Remove the user."""
        await self._run(target, "clean")

    async def read_key(self, target: HostTarget) -> bytes:
        """Read the private key from the home of the image's user."""
        if target.system is System.WINDOWS:
            path = rf"C:\Users\{target.access.user}\{target.user}"
            command = f'powershell -NoProfile -Command "Get-Content -Raw {path}"'
        else:
            command = f"cat {shlex.quote(f'/Users/{target.access.user}/{target.user}')}"
        text = (await self._do(target, "read the key", command)).replace("\r\n", "\n")
        try:
            asyncssh.import_private_key(text)
        except asyncssh.KeyImportError as error:
            # The image may still be writing the file. Its content is not quoted.
            raise HostUnreachableError(
                target.host, "read the key", "it is not complete yet"
            ) from error
        return text.encode()

    async def maintain(
        self, target: HostTarget, *, keep: Sequence[str], idle_seconds: int, update: bool
    ) -> str:
        """Remove idle users, and update packages."""
        arguments = [" ".join(keep), str(idle_seconds // 60), "yes" if update else "no"]
        output = await self._run(target, "maintain", *arguments, seconds=None)
        return output.strip()[-OUTPUT_MAX:]

    async def _run(
        self,
        target: HostTarget,
        action: str,
        *arguments: str,
        seconds: float | None = COMMAND_SECONDS,
    ) -> str:
        words = [action, target.user or "-", *arguments]
        command = "sh -s -- " + " ".join(shlex.quote(word) for word in words)
        if target.access.user != "root":
            command = f"sudo -n {command}"
        return await self._do(target, action, command, script=self._script, seconds=seconds)

    async def _do(
        self,
        target: HostTarget,
        action: str,
        command: str,
        *,
        script: str = "",
        seconds: float | None = COMMAND_SECONDS,
    ) -> str:
        """Run a command; return its output. `seconds` None: the caller has a time-out."""
        options = self._options(target, action)
        entered = False
        try:
            async with asyncssh.connect(**options) as connection:
                entered = True
                result = await connection.run(command, input=script, timeout=seconds)
        except asyncssh.HostKeyNotVerifiable as error:
            reason = "its host key is not one of the accepted keys"
            raise HostRefusedError(target.host, action, reason) from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"[:OUTPUT_MAX]
            raise HostUnreachableError(target.host, action, reason, entered=entered) from error
        if result.exit_status != 0:
            errors = str(result.stderr or "").strip()[-OUTPUT_MAX:]
            reason = f"the script ended with {result.exit_status}: {errors}"
            raise HostUnreachableError(target.host, action, reason, entered=True)
        return str(result.stdout or "")

    def _options(self, target: HostTarget, action: str) -> dict[str, Any]:
        access = target.access
        try:
            key = asyncssh.import_private_key(self._secrets.read(access.secret, *PRIVATE_KEYS))
        except SecretError as error:
            raise HostRefusedError(target.host, action, str(error)) from error
        except asyncssh.KeyImportError as error:
            reason = f"the key in secret '{access.secret}' cannot be read"
            raise HostRefusedError(target.host, action, reason) from error
        return {
            "host": target.address,
            "port": access.port,
            "username": access.user,
            "client_keys": [key],
            "known_hosts": self._known_hosts(target, action),
            "preferred_auth": "publickey",
            "agent_path": None,
            "config": None,
            "connect_timeout": CONNECT_SECONDS,
            "login_timeout": CONNECT_SECONDS,
        }

    def _known_hosts(self, target: HostTarget, action: str) -> asyncssh.SSHKnownHosts:
        """The accepted keys. Never empty: asyncssh would then accept any key."""
        access = target.access
        listed = self._secrets.find(access.secret, "known_hosts")
        lines = [f"{_pattern(target.address, access)} {key}" for key in access.host_keys]
        text = "\n".join([*lines, listed.decode() if listed else ""])
        try:
            known = asyncssh.import_known_hosts(text)
        except (ValueError, asyncssh.Error) as error:
            reason = f"its known hosts cannot be read: {error}"
            raise HostRefusedError(target.host, action, reason) from error
        if not any(known.match(target.address, target.address, access.port)[:2]):
            reason = (
                f"no key is known for {target.address}: pin one with host.{target.host}.host-key or "
                f"in known_hosts of secret '{access.secret}'"
            )
            raise HostRefusedError(target.host, action, reason)
        return known


def _pattern(address: str, access: HostAccess) -> str:
    return address if access.port == _SSH_PORT else f"[{address}]:{access.port}"
