"""Users on hosts, over a real SSH connection and with the real script."""

import asyncio
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncssh
import pytest

from services.provisioner.config.systems import System
from services.provisioner.hosts.port import HostRefusedError, HostUnreachableError
from services.provisioner.hosts.ssh import SshHosts
from tests.unit.provisioner.ssh_host import USER, SshHost, key_pair

LATER = datetime.now(UTC) + timedelta(hours=1)


async def test_prepared_host_accepts_key_and_cleaned_host_does_not(host: SshHost) -> None:
    private, public = key_pair()
    hosts = SshHosts(host.secrets)

    await hosts.prepare(host.target(), public_key=public, expires_at=LATER)

    assert await host.log_in(USER, private) == USER
    expiry = LATER.astimezone().strftime("%Y%m%d%H%M%S")
    assert host.authorized(USER).startswith(f'expiry-time="{expiry}" ssh-ed25519 ')
    assert "nofile" in (host.etc / "security/limits.d" / f"{USER}.conf").read_text()
    assert "MemoryMax=90%" in (host.etc / "calls").read_text()

    await hosts.clean(host.target())

    with pytest.raises(asyncssh.PermissionDenied):
        await host.log_in(USER, private)
    assert list(host.home.iterdir()) == []
    assert list((host.etc / "security/limits.d").iterdir()) == []
    calls = (host.etc / "calls").read_text()
    assert f"userdel --force {USER}" in calls, "its home alone is not the user"
    assert "--remove" not in calls, "the tools of old systems follow links there"


async def test_repeated_preparation_leaves_only_last_key(host: SshHost) -> None:
    hosts = SshHosts(host.secrets)
    (old, old_public), (new, new_public) = key_pair(), key_pair()

    for public in (old_public, new_public, new_public):
        await hosts.prepare(host.target(), public_key=public, expires_at=LATER)
    assert await host.log_in(USER, new) == USER
    with pytest.raises(asyncssh.PermissionDenied):
        await host.log_in(USER, old)

    await hosts.clean(host.target())
    await hosts.clean(host.target())


async def test_sudo_commands_are_granted_and_revoked(host: SshHost) -> None:
    hosts = SshHosts(host.secrets)
    target = host.target(sudo="/usr/bin/podman, /usr/bin/rm -rf /x")

    await hosts.prepare(target, public_key=key_pair()[1], expires_at=LATER)
    sudoers = host.etc / "sudoers.d" / USER
    assert (
        sudoers.read_text() == f"{USER} ALL=(ALL) NOPASSWD: /usr/bin/podman, /usr/bin/rm -rf /x\n"
    )

    await hosts.prepare(host.target(), public_key=key_pair()[1], expires_at=LATER)
    assert not sudoers.exists(), "a user that stayed from an earlier time keeps no rights of then"
    await hosts.prepare(target, public_key=key_pair()[1], expires_at=LATER)
    await hosts.clean(target)
    assert not sudoers.exists()


async def test_host_with_wrong_key_is_not_entered(host: SshHost) -> None:
    target = host.target()
    other = key_pair()[1]
    target = replace(target, access=replace(target.access, host_keys=(other,)))

    with pytest.raises(HostRefusedError, match="its host key is not one of the accepted keys"):
        await SshHosts(host.secrets).prepare(target, public_key=key_pair()[1], expires_at=LATER)
    assert host.commands == []


async def test_host_without_known_key_is_not_entered(host: SshHost) -> None:
    with pytest.raises(HostRefusedError, match=r"pin one with host\.power-1\.host-key"):
        await SshHosts(host.secrets).clean(host.target(pinned=False))
    assert host.commands == []


async def test_known_hosts_pattern_of_secret_is_accepted(host: SshHost, tmp_path: Path) -> None:
    (tmp_path / "secrets/power-ssh/known_hosts").write_text(f"[127.0.0.*]:* {host.host_key}\n")

    await SshHosts(host.secrets).clean(host.target(pinned=False))

    assert len(host.commands) == 1


async def test_missing_ssh_secret_is_refused_with_upstream_message(
    host: SshHost,
) -> None:
    with pytest.raises(HostRefusedError, match="failed to get SSH secret, system may not be"):
        await SshHosts(host.secrets).clean(host.target(secret="missing"))


async def test_hanging_or_missing_host_is_unreachable(host: SshHost) -> None:
    host.hangs = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await SshHosts(host.secrets).clean(host.target())

    gone = host.target()
    gone = replace(gone, access=replace(gone.access, port=1, host_keys=gone.access.host_keys))
    with pytest.raises(HostUnreachableError):
        await SshHosts(host.secrets).clean(gone)


async def test_output_of_failed_script_is_quoted(host: SshHost) -> None:
    target = replace(host.target(), user="root")
    with pytest.raises(HostUnreachableError, match="ended with 64: not a user of ours: root"):
        await SshHosts(host.secrets).clean(target)


@pytest.mark.parametrize("system", [System.MACOS, System.WINDOWS])
async def test_key_of_image_user_is_read_once_complete(host: SshHost, system: System) -> None:
    private, _ = key_pair()
    target = replace(host.target(), user="konflux-builder", system=system)
    with pytest.raises(HostUnreachableError):
        await SshHosts(host.secrets).read_key(target)
    path = host.home / "Users/admin/konflux-builder"
    path.parent.mkdir(parents=True)
    path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nhalf of")
    with pytest.raises(HostUnreachableError, match="it is not complete yet") as told:
        await SshHosts(host.secrets).read_key(target)
    assert "half of" not in str(told.value), "what was read is not quoted"

    path.write_bytes(private)
    assert await SshHosts(host.secrets).read_key(target) == private
    if system is System.WINDOWS:
        calls = (host.etc / "calls").read_text()
        assert r"Get-Content -Raw C:\Users\admin\konflux-builder" in calls


async def test_maintenance_removes_idle_build_users_and_updates_packages(host: SshHost) -> None:
    day, hours = 86_400, 12 * 3_600
    idle, busy, fresh = ("u-" + digit * 28 for digit in "abc")
    for name, age in (
        (idle, 2 * day),
        (busy, 2 * day),
        (fresh, hours),
        ("u-nobody", 9 * day),
        ("alice", 9 * day),
    ):
        (host.home / name).mkdir()
        then = time.time() - age
        os.utime(host.home / name, (then, then))

    said = await SshHosts(host.secrets).maintain(
        replace(host.target(), user=""), keep=[busy], idle_seconds=day, update=True
    )

    assert said == "users removed: 1, updated: yes"
    left = sorted(path.name for path in host.home.iterdir())
    assert left == sorted(["alice", busy, fresh, "u-nobody"])
    assert "dnf -q -y update" in (host.etc / "calls").read_text()


async def test_maintenance_without_update_leaves_packages_alone(host: SshHost) -> None:
    target = replace(host.target(), user="")
    said = await SshHosts(host.secrets).maintain(target, keep=[], idle_seconds=60, update=False)
    assert said == "users removed: 0, updated: no"


@pytest.mark.parametrize("failing", ["update", "upgrade"])
async def test_failed_step_of_apt_is_reported(host: SshHost, failing: str) -> None:
    commands = host.etc.parent / "bin"
    for tool in ("dnf", "yum", "zypper"):
        (commands / tool).unlink(missing_ok=True)
    (commands / "apt-get").write_text(
        f'#!/bin/sh\ncase " $* " in *" {failing} "*) echo "no mirrors left" >&2; exit 100 ;; esac\n'
    )
    (commands / "apt-get").chmod(0o755)
    target = replace(host.target(), user="")
    with pytest.raises(HostUnreachableError, match="ended with 100: no mirrors left"):
        await SshHosts(host.secrets).maintain(target, keep=[], idle_seconds=60, update=True)


async def test_idle_user_that_is_not_removed_is_not_counted(host: SshHost) -> None:
    user = "u-" + "a" * 28
    (host.home / user).mkdir()
    then = time.time() - 9 * 86_400
    os.utime(host.home / user, (then, then))
    failing = 'case " $* " in *sudoers.d*) exit 1 ;; esac\nexec /bin/rm "$@"'
    (host.etc.parent / "bin" / "rm").write_text(f"#!/bin/sh\n{failing}\n")
    (host.etc.parent / "bin" / "rm").chmod(0o755)
    target = replace(host.target(), user="")
    said = await SshHosts(host.secrets).maintain(target, keep=[], idle_seconds=60, update=False)
    assert said == "users removed: 0, updated: no"
    assert (host.home / user).exists(), "the first step failed, so no later one ran"


async def test_user_without_home_changes_no_folder_of_host(host: SshHost) -> None:
    (host.etc.parent / "bin" / "getent").write_text("#!/bin/sh\nexit 2\n")
    hosts = SshHosts(host.secrets)
    with pytest.raises(HostUnreachableError, match=f"ended with 1: {USER} has no home"):
        await hosts.prepare(host.target(), public_key=key_pair()[1], expires_at=LATER)
    with pytest.raises(HostUnreachableError, match=f"ended with 1: {USER} has no home"):
        await hosts.clean(host.target())


async def test_failed_package_update_is_reported(host: SshHost) -> None:
    (host.etc.parent / "bin" / "dnf").write_text("#!/bin/sh\necho 'no mirrors left' >&2\nexit 1\n")
    target = replace(host.target(), user="")
    with pytest.raises(HostUnreachableError, match="ended with 1: no mirrors left"):
        await SshHosts(host.secrets).maintain(target, keep=[], idle_seconds=60, update=True)
