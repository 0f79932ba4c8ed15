"""Implements `Hosts` over SSH with the script `host.sh`.

The host's key is always verified, against the keys of the host configuration (`host.<name>.host-key`)
and the `known_hosts` of the host's secret. For machines, whose address is not known beforehand, a
pattern or a `@cert-authority` line in `known_hosts` serves. Without any key there is no login.

A host may be in the hands of what was built on it. It is told no more than the script and its arguments, and
is read up to a bound.
"""

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress
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
OUTPUT_BYTES_MAX: Final = 256 << 10
"""Of what a command prints, and again of its errors: many hosts may answer at once. A key is far smaller."""

WINDOW_BYTES: Final = 64 << 10
"""What a host may send before any of it is read."""

QUOTED_MAX: Final = 300
"""Characters of a script's output that are quoted."""

_UNCOMPRESSED: Final = ("none",)
"""A few compressed bytes could grow to any size."""

PRIVATE_KEYS: Final = ("id_rsa", "ssh-privatekey")
_SSH_PORT: Final = 22


class _EndlessOutputError(Exception):
    """A command printed more than its bound."""


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
        return output.strip()[-QUOTED_MAX:]

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
                async with asyncio.timeout(seconds):
                    status, output, errors = await _run_bounded(connection, command, script)
        except asyncssh.HostKeyNotVerifiable as error:
            reason = "its host key is not one of the accepted keys"
            raise HostRefusedError(target.host, action, reason) from error
        except _EndlessOutputError as error:
            reason = f"it printed more than {OUTPUT_BYTES_MAX} bytes"
            raise HostUnreachableError(target.host, action, reason, entered=True) from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"[:QUOTED_MAX]
            raise HostUnreachableError(target.host, action, reason, entered=entered) from error
        if status != 0:
            reason = f"the script ended with {status}: {errors.strip()[-QUOTED_MAX:]}"
            raise HostUnreachableError(target.host, action, reason, entered=True)
        return output

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
            "compression_algs": _UNCOMPRESSED,
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


async def _run_bounded(
    connection: asyncssh.SSHClientConnection, command: str, script: str
) -> tuple[int | None, str, str]:
    """Returns the command's status, output and errors. Raises `_EndlessOutputError`."""
    try:
        process = await connection.create_process(command, encoding=None, window=WINDOW_BYTES)
        # A command may end before it has read all: its status says what became of it.
        with suppress(BrokenPipeError):
            process.stdin.write(script.encode())
            process.stdin.write_eof()
        output, errors = await asyncio.gather(_read(process.stdout), _read(process.stderr))
        await process.wait_closed()
    except BaseException:
        # Whoever does not end its output may not answer that the connection ends, either.
        connection.abort()
        raise
    return process.exit_status, output, errors


async def _read(stream: asyncssh.SSHReader[bytes]) -> str:
    found = bytearray()
    while data := await stream.read(WINDOW_BYTES):
        found += data
        if len(found) > OUTPUT_BYTES_MAX:
            raise _EndlessOutputError
    return found.decode(errors="replace")


def _pattern(address: str, access: HostAccess) -> str:
    return address if access.port == _SSH_PORT else f"[{address}]:{access.port}"
