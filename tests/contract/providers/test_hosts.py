"""The contract that `FakeHosts` and `SshHosts` keep."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncssh
import pytest

from services.provisioner.allocation.ledger import HostAccess
from services.provisioner.hosts.fake import FakeFleet, FakeHosts
from services.provisioner.hosts.port import (
    HostRefusedError,
    Hosts,
    HostTarget,
    HostUnreachableError,
)
from services.provisioner.hosts.ssh import SshHosts
from tests.unit.provisioner.ssh_host import USER, ssh_host

LATER = datetime.now(UTC) + timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHarness:
    hosts: Hosts
    target: HostTarget
    users: Callable[[], dict[str, str]]
    """User to its accepted key."""

    stranger: Callable[[], HostTarget]
    """The same host with a wrong host key."""

    away: Callable[[], HostTarget]
    """The same host without an answer."""


@asynccontextmanager
async def fake(folder: Path) -> AsyncIterator[HostHarness]:
    del folder
    fleet = FakeFleet(call_seconds=0)
    access = HostAccess(user="root", secret="keys")
    target = HostTarget(host="power-1", address="10.0.0.1", access=access, user=USER)

    def refusing() -> HostTarget:
        fleet.refusing.add(target.host)
        return target

    def silent() -> HostTarget:
        fleet.silent.add(target.host)
        return target

    yield HostHarness(
        hosts=FakeHosts(fleet),
        target=target,
        users=lambda: dict(fleet.on("power-1")),
        stranger=refusing,
        away=silent,
    )


@asynccontextmanager
async def static(folder: Path) -> AsyncIterator[HostHarness]:
    async with ssh_host(folder) as host:
        target = host.target()

        def users() -> dict[str, str]:
            names = sorted(path.name for path in host.home.iterdir())
            return {name: host.authorized(name).partition(" ")[2].strip() for name in names}

        other = public_key()
        yield HostHarness(
            hosts=SshHosts(host.secrets),
            target=target,
            users=users,
            stranger=lambda: replace(target, access=replace(target.access, host_keys=(other,))),
            away=lambda: replace(target, access=replace(target.access, port=1)),
        )


@pytest.fixture(params=[fake, static])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HostHarness]:
    async with request.param(tmp_path) as harness:
        yield harness


def public_key() -> str:
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key()
    return str(key.decode().strip())


async def test_preparing_twice_leaves_one_user_with_last_key(harness: HostHarness) -> None:
    first, last = public_key(), public_key()
    for key in (first, last):
        await harness.hosts.prepare(harness.target, public_key=key, expires_at=LATER)
    assert harness.users() == {USER: last}


async def test_cleaning_removes_user_and_can_be_repeated(harness: HostHarness) -> None:
    await harness.hosts.clean(harness.target)
    await harness.hosts.prepare(harness.target, public_key=public_key(), expires_at=LATER)
    await harness.hosts.clean(harness.target)
    await harness.hosts.clean(harness.target)
    assert harness.users() == {}


async def test_host_with_wrong_key_is_refused(harness: HostHarness) -> None:
    with pytest.raises(HostRefusedError):
        await harness.hosts.prepare(harness.stranger(), public_key=public_key(), expires_at=LATER)
    assert harness.users() == {}


async def test_silent_host_is_unreachable(harness: HostHarness) -> None:
    with pytest.raises(HostUnreachableError):
        await harness.hosts.prepare(harness.away(), public_key=public_key(), expires_at=LATER)
