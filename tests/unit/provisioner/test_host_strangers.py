"""A build that is a stranger to its host: where it sends root, what it leaves behind, how much it says."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import asyncssh
import pytest

from services.provisioner.hosts.port import HostUnreachableError
from services.provisioner.hosts.ssh import OUTPUT_BYTES_MAX, SshHosts
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.provisioner.ssh_host import BUILD_UID, USER, SshHost, key_pair, ssh_host

LATER: Final = datetime.now(UTC) + timedelta(hours=1)
OTHER: Final = "u-" + "f" * 28
"""A build of somebody else on the same host."""


def link_folder(mine: Path, theirs: Path) -> None:
    (mine / ".ssh").rename(mine / ".old")
    (mine / ".ssh").symlink_to(theirs)


def link_file(mine: Path, theirs: Path) -> None:
    (mine / ".ssh/authorized_keys").unlink()
    (mine / ".ssh/authorized_keys").symlink_to(theirs / "authorized_keys")


def link_next_file(mine: Path, theirs: Path) -> None:
    (mine / ".ssh/authorized_keys.new").symlink_to(theirs / "authorized_keys")


def link_deep_inside(mine: Path, theirs: Path) -> None:
    (mine / "a/b c").mkdir(parents=True)
    (mine / "a/b c/\nd").symlink_to(theirs)
    (mine / "a/e").symlink_to(theirs.parent)


def link_where_nothing_is(mine: Path, theirs: Path) -> None:
    (mine / ".ssh").rename(mine / ".old")
    (mine / ".ssh").symlink_to(theirs / "sub")


def put_a_file_there(mine: Path, theirs: Path) -> None:
    (mine / ".ssh").rename(mine / ".old")
    os.link(theirs / "authorized_keys", mine / ".ssh")


WAYS: Final = {
    "its folder of keys is another's": link_folder,
    "its file of keys is another's": link_file,
    "the file that root once wrote is another's": link_next_file,
    "links deep inside": link_deep_inside,
    "its folder of keys would be made in another's": link_where_nothing_is,
    "a hard link to another's keys": put_a_file_there,
}


async def prepare(hosts: SshHosts, host: SshHost) -> None:
    private, public = key_pair()
    await hosts.prepare(host.target(), public_key=public, expires_at=LATER)
    assert await host.log_in(USER, private) == USER


async def clean(hosts: SshHosts, host: SshHost) -> None:
    await hosts.clean(host.target())
    assert [path.name for path in host.home.iterdir()] == [OTHER]


async def maintain(hosts: SshHosts, host: SshHost) -> None:
    os.utime(host.home / USER, (1, 1))
    target = replace(host.target(), user="")
    said = await hosts.maintain(target, keep=[OTHER], idle_seconds=60, update=False)
    assert said == "users removed: 1, updated: no"


def state_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, owner and content of everything below a folder."""
    found = {}
    for path in sorted((folder, *folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_uid, content)
    return found


@pytest.mark.parametrize("lead_astray", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("action", [prepare, clean, maintain])
async def test_paths_made_by_a_build_lead_root_to_no_other_user(
    host: SshHost,
    lead_astray: Callable[[Path, Path], None],
    action: Callable[[SshHosts, SshHost], Awaitable[None]],
) -> None:
    hosts = SshHosts(host.secrets)
    private, public = key_pair()
    await prepare(hosts, host)
    await hosts.prepare(replace(host.target(), user=OTHER), public_key=public, expires_at=LATER)
    before = state_of(host.home / OTHER)
    lead_astray(host.home / USER, host.home / OTHER / ".ssh")

    await action(hosts, host)

    assert state_of(host.home / OTHER) == before
    assert await host.log_in(OTHER, private) == OTHER


async def test_link_in_place_of_a_home_is_not_followed(host: SshHost) -> None:
    hosts = SshHosts(host.secrets)
    (host.home / OTHER).mkdir()
    (host.home / OTHER / "kept").touch()
    (host.home / USER).symlink_to(host.home / OTHER)
    (host.etc / "users" / USER).touch()

    for action in (prepare, clean):
        with pytest.raises(HostUnreachableError, match=f"the home of {USER} is a link"):
            await action(hosts, host)
    os.utime(host.home / OTHER, (1, 1))
    target = replace(host.target(), user="")
    said = await hosts.maintain(target, keep=[OTHER], idle_seconds=60, update=False)

    assert said == "users removed: 0, updated: no"
    assert (host.home / OTHER / "kept").exists()


async def test_cleaning_locks_out_first_and_removes_user_last(host: SshHost) -> None:
    """A login that comes while processes are ended would be one that nobody ends."""
    hosts = SshHosts(host.secrets)
    await prepare(hosts, host)
    await hosts.clean(host.target())
    calls = (host.etc / "calls").read_text().splitlines()
    told = [call.split()[0] for call in calls if USER in call]
    assert told == ["usermod", "loginctl", "loginctl", "userdel"]
    assert f"usermod --expiredate 1 {USER}" in calls


async def test_user_that_was_locked_out_and_not_removed_is_prepared_again(host: SshHost) -> None:
    hosts = SshHosts(host.secrets)
    private, public = key_pair()
    await hosts.prepare(host.target(), public_key=public, expires_at=LATER)
    (host.etc / "users" / USER).write_text("1")
    with pytest.raises(asyncssh.PermissionDenied):
        await host.log_in(USER, private)
    await prepare(hosts, host)


async def test_cleaning_ends_processes_of_user_before_it_removes_files(host: SshHost) -> None:
    hosts = SshHosts(host.secrets)
    await prepare(hosts, host)
    (host.home / USER / "busy").touch()
    builds = [await asyncio.create_subprocess_exec("sleep", "600") for _ in range(3)]
    (host.etc / "processes").write_text(" ".join(str(build.pid) for build in builds))
    try:
        await hosts.clean(host.target())
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [await build.wait() for build in builds] == [-9, -9, -9]
    finally:
        for build in builds:
            if build.returncode is None:
                build.kill()


async def test_nothing_is_removed_while_processes_cannot_be_listed(host: SshHost) -> None:
    hosts = SshHosts(host.secrets)
    await prepare(hosts, host)
    (host.etc.parent / "bin" / "ps").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(HostUnreachableError, match="the script ended with 1"):
        await hosts.clean(host.target())
    assert (host.home / USER).exists()
    assert (host.etc / "users" / USER).read_text() == "1", "and nobody can log in"


async def test_next_user_of_same_number_finds_nothing_of_the_one_before(host: SshHost) -> None:
    """Such as a program that runs as its owner."""
    hosts = SshHosts(host.secrets)
    await prepare(hosts, host)
    folder = host.shared / "left"
    folder.mkdir()
    (folder / "program").touch(mode=0o4755)
    (folder / "link").symlink_to(host.home)
    of_root = host.shared / "of-root"
    of_root.touch()
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, BUILD_UID, -1, follow_symlinks=False)

    await hosts.clean(host.target())

    assert not folder.exists()
    assert host.home.exists()
    assert of_root.exists() or os.getuid() != 0


async def test_new_folder_of_keys_gets_the_label_of_its_place(host: SshHost) -> None:
    """With SELinux a renamed file keeps the label of where it was made, which sshd may not read."""
    commands = host.etc.parent / "bin"
    for name, body in {
        "selinuxenabled": "exit 0",
        "matchpathcon": 'echo "label-of-$2"',
        "chcon": 'echo "chcon $2 $(basename "$3")" >>"$SLUICEGATE_ETC/calls"',
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (commands / name).chmod(0o755)
    await prepare(SshHosts(host.secrets), host)
    calls = (host.etc / "calls").read_text()
    assert f"chcon label-of-{host.home}/{USER}/.ssh .ssh" in calls


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_host_that_prints_without_end_is_refused_at_the_bound(
    host: SshHost, stream: str
) -> None:
    sent = 0

    async def talk(process: asyncssh.SSHServerProcess[str]) -> None:
        nonlocal sent
        block = "x" * 65_536
        writer = getattr(process, stream)
        while sent < 100 * OUTPUT_BYTES_MAX:
            writer.write(block)
            sent += len(block)
            await writer.drain()

    host.talk = talk
    with pytest.raises(
        HostUnreachableError, match=f"power-1: .* more than {OUTPUT_BYTES_MAX} bytes"
    ) as told:
        await SshHosts(host.secrets).clean(host.target())
    assert told.value.entered
    assert sent < 4 * OUTPUT_BYTES_MAX, "the host is not read on"


async def test_output_below_the_bound_is_read_whole_whatever_its_bytes(host: SshHost) -> None:
    async def talk(process: asyncssh.SSHServerProcess[str]) -> None:
        process.stdout.write("users removed: 0\n" + "y" * (OUTPUT_BYTES_MAX - 17))
        process.exit(0)

    host.talk = talk
    target = replace(host.target(), user="")
    said = await SshHosts(host.secrets).maintain(target, keep=[], idle_seconds=60, update=False)
    assert set(said) == {"y"}


async def test_host_that_insists_on_compression_is_refused(tmp_path: Path) -> None:
    """A few compressed bytes grow to any size before they can be counted."""
    async with ssh_host(tmp_path, compression="zlib@openssh.com") as host:
        with pytest.raises(HostUnreachableError, match="No matching compression algorithm"):
            await SshHosts(host.secrets).clean(host.target())
    assert host.commands == []


async def test_idle_home_without_user_is_removed(host: SshHost) -> None:
    """Of a cleaning that ended between the user and its home, in an earlier version."""
    (host.home / OTHER).mkdir()
    then = time.time() - 9 * 86_400
    os.utime(host.home / OTHER, (then, then))
    target = replace(host.target(), user="")
    said = await SshHosts(host.secrets).maintain(target, keep=[], idle_seconds=60, update=False)
    assert said == "users removed: 1, updated: no"
    assert list(host.home.iterdir()) == []
