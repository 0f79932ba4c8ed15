"""A host for tests: a real SSH server that runs the real script with fake commands (`useradd` and others).

Users are files below `etc/users`, with what their account expires by. The keys in the `authorized_keys` of a
user that has not expired are accepted.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh

from services.provisioner.allocation.ledger import HostAccess
from services.provisioner.config.credentials import Secrets
from services.provisioner.hosts.port import HostTarget

USER = "u-0123456789abcdef0123456789ab"
BUILD_UID = os.getuid() or 1000
"""Number of every user. The host's commands for processes and files find by it what a build left."""

_STUBS = {
    "useradd": 'for user; do :; done; mkdir "$SLUICEGATE_HOME/$user"; : >"$SLUICEGATE_ETC/users/$user"',
    "usermod": 'echo "usermod $*" >>"$SLUICEGATE_ETC/calls"; printf %s "$2" >"$SLUICEGATE_ETC/users/$3"',
    "userdel": 'for user; do :; done; rm "$SLUICEGATE_ETC/users/$user"; '
    'echo "userdel $*" >>"$SLUICEGATE_ETC/calls"',
    "id": 'for user; do :; done; [ -e "$SLUICEGATE_ETC/users/$user" ] && echo "$BUILD_UID"',
    "ps": 'set -- $(cat "$SLUICEGATE_ETC/processes"); for one; do '
    '/bin/ps -o pid= -o stat= -p "$one" | while read -r id state; do '
    'echo "$id $BUILD_UID $BUILD_UID $state"; done; done',
    "getent": 'echo "$2:x:1000:1000::$SLUICEGATE_HOME/$2:/bin/bash"',
    "chown": "exit 0",
    "systemctl": 'echo "systemctl $*" >>"$SLUICEGATE_ETC/calls"',
    "loginctl": 'echo "loginctl $*" >>"$SLUICEGATE_ETC/calls"',
    "sudo": 'shift; exec "$@"',
    "cat": 'case ${1:-} in /Users/*) exec /bin/cat "$SLUICEGATE_HOME$1" ;; *) exec /bin/cat "$@" ;; esac',
    "powershell": 'printf "%s\\n" "$*" >>"$SLUICEGATE_ETC/calls"; '
    'sed "s/$/\r/" "$SLUICEGATE_HOME/Users/admin/konflux-builder"',
    "dnf": 'echo "dnf $*" >>"$SLUICEGATE_ETC/calls"; exit "${DNF_STATUS:-0}"',
}


class SshHost:
    """One host, and the folder of secrets with which the provisioner logs in."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.etc = folder / "etc"
        self.shared = folder / "shared"
        self.secrets = Secrets(folder / "secrets")
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.master = asyncssh.generate_private_key("ssh-ed25519")
        self.port = 0
        self.hangs = False
        self.commands: list[str] = []
        self.talk: Callable[[Any], Awaitable[None]] | None = None
        """Answers a command in place of the real script."""

        self._bin = folder / "bin"
        secret = folder / "secrets" / "power-ssh"
        for path in (self.home, self.etc / "users", self.shared, self._bin, secret):
            path.mkdir(parents=True)
        (self.etc / "processes").touch()
        for name, body in _STUBS.items():
            (self._bin / name).write_text(f"#!/bin/sh\n{body}\n")
            (self._bin / name).chmod(0o755)
        (secret / "id_rsa").write_bytes(self.master.export_private_key())

    @property
    def host_key(self) -> str:
        return str(self.key.export_public_key().decode().strip())

    def target(
        self, *, pinned: bool = True, sudo: str = "", secret: str = "power-ssh"
    ) -> HostTarget:
        return HostTarget(
            host="power-1",
            address="127.0.0.1",
            access=HostAccess(
                user="admin",
                port=self.port,
                secret=secret,
                host_keys=(self.host_key,) if pinned else (),
                sudo_commands=sudo,
            ),
            user=USER,
        )

    def authorized(self, user: str) -> str:
        account = self.etc / "users" / user
        if not account.exists() or account.read_text():
            return ""
        path = self.home / user / ".ssh" / "authorized_keys"
        return path.read_text() if path.exists() else ""

    async def log_in(self, user: str, private_key: bytes) -> str:
        """Log in and return the name of the user."""
        known = asyncssh.import_known_hosts(f"[127.0.0.1]:{self.port} {self.host_key}\n")
        async with asyncssh.connect(
            "127.0.0.1", self.port, username=user, known_hosts=known, config=None, agent_path=None,
            client_keys=[asyncssh.import_private_key(private_key)], preferred_auth="publickey",
        ) as connection:  # fmt: skip
            result = await connection.run("echo $WHO", check=True)
        return str(result.stdout).strip()

    async def answer(self, process: Any) -> None:
        self.commands.append(process.command)
        if self.hangs:
            await asyncio.sleep(3600)
        if self.talk is not None:
            await self.talk(process)
            return
        child = await asyncio.create_subprocess_shell(
            process.command,
            env={
                "PATH": f"{self._bin}:{os.environ['PATH']}",
                "SLUICEGATE_HOME": str(self.home),
                "SLUICEGATE_ETC": str(self.etc),
                "SLUICEGATE_SHARED": str(self.shared),
                "BUILD_UID": str(BUILD_UID),
                "WHO": process.get_extra_info("username"),
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        given = await process.stdin.read() if "sh -s" in process.command else ""
        out, err = await child.communicate(given.encode())
        process.stdout.write(out.decode())
        process.stderr.write(err.decode())
        process.exit(child.returncode or 0)


class _HostServer(asyncssh.SSHServer):
    def __init__(self, host: SshHost) -> None:
        self._host = host

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: Any) -> bool:
        if username == "admin":
            return bool(key == self._host.master.convert_to_public())
        shown = key.export_public_key().decode().split()[1]
        return shown in self._host.authorized(username)


@asynccontextmanager
async def ssh_host(folder: Path, *, compression: str = "none") -> AsyncIterator[SshHost]:
    host = SshHost(folder)
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[host.key], process_factory=host.answer,
        server_factory=lambda: _HostServer(host), compression_algs=[compression],
    )  # fmt: skip
    host.port = server.get_port()
    try:
        yield host
    finally:
        server.close()
        await server.wait_closed()


def key_pair() -> tuple[bytes, str]:
    """A new private key, and its public half as one line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key(), key.export_public_key().decode().strip()
