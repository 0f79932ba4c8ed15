"""What every way onto a host promises: pretended, and over SSH to a real server."""

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
class Stage:
    hosts: Hosts
    target: HostTarget
    users: Callable[[], dict[str, str]]
    """User to the key that it lets in."""

    stranger: Callable[[], HostTarget]
    """The same host, with another key than it should have."""

    away: Callable[[], HostTarget]
    """The same host, not answering."""


@asynccontextmanager
async def fake(folder: Path) -> AsyncIterator[Stage]:
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

    yield Stage(
        hosts=FakeHosts(fleet),
        target=target,
        users=lambda: dict(fleet.on("power-1")),
        stranger=refusing,
        away=silent,
    )


@asynccontextmanager
async def static(folder: Path) -> AsyncIterator[Stage]:
    async with ssh_host(folder) as host:
        target = host.target()

        def users() -> dict[str, str]:
            names = sorted(path.name for path in host.home.iterdir())
            return {name: host.authorized(name).partition(" ")[2].strip() for name in names}

        other = public_key()
        yield Stage(
            hosts=SshHosts(host.secrets),
            target=target,
            users=users,
            stranger=lambda: replace(target, access=replace(target.access, host_keys=(other,))),
            away=lambda: replace(target, access=replace(target.access, port=1)),
        )


@pytest.fixture(params=[fake, static])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with request.param(tmp_path) as stage:
        yield stage


def public_key() -> str:
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key()
    return str(key.decode().strip())


async def test_preparing_twice_leaves_one_user_with_the_last_key(stage: Stage) -> None:
    first, last = public_key(), public_key()
    for key in (first, last):
        await stage.hosts.prepare(stage.target, public_key=key, expires_at=LATER)
    assert stage.users() == {USER: last}


async def test_cleaning_removes_the_user_and_may_be_repeated(stage: Stage) -> None:
    await stage.hosts.clean(stage.target)
    await stage.hosts.prepare(stage.target, public_key=public_key(), expires_at=LATER)
    await stage.hosts.clean(stage.target)
    await stage.hosts.clean(stage.target)
    assert stage.users() == {}


async def test_a_host_that_is_not_the_one_is_refused_for_good(stage: Stage) -> None:
    with pytest.raises(HostRefusedError):
        await stage.hosts.prepare(stage.stranger(), public_key=public_key(), expires_at=LATER)
    assert stage.users() == {}


async def test_a_host_that_is_away_may_be_tried_again(stage: Stage) -> None:
    with pytest.raises(HostUnreachableError):
        await stage.hosts.prepare(stage.away(), public_key=public_key(), expires_at=LATER)
