"""The reflector against servers that misbehave: no gap, nothing twice, no hot loop, no hang."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.kube.client import HttpKube
from shared.kube.config import plain
from shared.testing.waiting import eventually
from tests.contract.kubernetes.faults import (
    LIST_FAULTS,
    WATCH_FAULTS,
    WIDGET,
    Fault,
    FaultyServer,
    faulty_server,
)
from tests.contract.kubernetes.follower import Follower, uid_of

REPEATS = 3
"""How often in a row a server misbehaves before it is well again."""

HOUR_SECONDS = 3600.0

TRIES_MAX = 2
"""The client tries once more by itself after a reset, and asks for the whole list where its pages expire."""


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    async with faulty_server() as server:
        for number in range(3):
            await server.put(f"old-{number}")
        yield server


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.reflector.FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr("shared.kube.reflector.MOST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr("shared.kube.reflector.UNSERVED_RECHECK_SECONDS", 0.02)
    monkeypatch.setattr("shared.kube.reflector.GONE_AFTER_SECONDS", 0.2)


def following(server: FaultyServer) -> Follower:
    # The silence of a dead peer is three hundred seconds in production.
    return Follower(HttpKube(plain(server.url), page_items=2, silence_seconds=1.0), WIDGET)


def agrees(follower: Follower, server: FaultyServer) -> bool:
    return follower.view == {name: uid_of(obj) for name, obj in server.objects.items()}


async def seen(follower: Follower, server: FaultyServer) -> None:
    async def there() -> bool:
        return agrees(follower, server)

    await eventually(there)


async def churn(server: FaultyServer) -> None:
    """Every kind of change, also a life that nobody sees and a name that comes back."""
    await server.put("new")
    await asyncio.sleep(0.01)
    await server.delete("old-0")
    await server.put("old-1")
    await server.put("brief")
    await server.delete("brief")
    await asyncio.sleep(0.01)
    await server.delete("old-2")
    await server.put("old-2")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("fault", WATCH_FAULTS.values(), ids=WATCH_FAULTS.keys())
async def test_each_change_is_delivered_once_when_a_watch_misbehaves(
    server: FaultyServer, fault: Fault
) -> None:
    server.watch_faults.extend([fault] * REPEATS)
    follower = following(server)
    await seen(follower, server)

    async def misbehaved() -> bool:
        return not server.watch_faults or server.watches > 0

    await eventually(misbehaved)
    await churn(server)
    await seen(follower, server)
    await server.put("last")
    await seen(follower, server)
    await follower.close()
    assert set(follower.told.values()) <= {1}
    assert server.watches <= REPEATS + 2
    assert server.lists <= 2 * (REPEATS + 1), "each list has two pages"


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("fault", LIST_FAULTS.values(), ids=LIST_FAULTS.keys())
async def test_list_succeeds_after_server_errors(server: FaultyServer, fault: Fault) -> None:
    server.list_faults.extend([fault] * REPEATS)
    follower = following(server)
    await seen(follower, server)
    await churn(server)
    await seen(follower, server)
    await follower.close()
    assert follower.unserved == []
    assert set(follower.told.values()) <= {1}


@pytest.mark.usefixtures("fast")
async def test_list_with_expiring_pages_is_requested_as_a_whole(server: FaultyServer) -> None:
    async def first_page(server: FaultyServer, request: object) -> object:
        answer = await server.list(request)  # type: ignore[arg-type]
        server.list_faults.append(LIST_FAULTS["answers 410"])
        return answer

    server.list_faults.append(first_page)  # type: ignore[arg-type]
    follower = following(server)
    await seen(follower, server)
    await follower.close()
    assert (follower.lists, server.lists) == (1, 3)


@pytest.mark.usefixtures("fast")
async def test_object_deleted_while_versions_expired_is_gone_after_the_next_list(
    server: FaultyServer,
) -> None:
    server.watch_faults.append(WATCH_FAULTS["falls silent after an event, connection open"])
    follower = following(server)
    await seen(follower, server)
    await server.put("new")
    await seen(follower, server)  # By the event after which the watch falls silent.
    await server.delete("old-0")
    server.forget()
    await server.put("newer")
    await seen(follower, server)
    await follower.close()
    assert (follower.lists, server.watches) == (2, 3)


@pytest.mark.usefixtures("fast")
async def test_later_installed_kind_is_listed_and_removed_kind_is_reported_when_certain(
    server: FaultyServer,
) -> None:
    server.served = False
    follower = following(server)

    async def told() -> bool:
        return follower.unserved == [False, True]

    await eventually(told)
    server.served = True
    await seen(follower, server)
    assert follower.reflector.trouble is None
    server.served = False
    server.always = WATCH_FAULTS["closes at once"]

    async def told_again() -> bool:
        return follower.unserved == [False, True, False, True]

    await eventually(told_again)
    await follower.close()


async def test_server_faults_cause_no_hot_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once. Whoever waits after a fault does not try again within the hour.

    The waits of production are those of the reflector's own tests, in virtual time.
    """
    monkeypatch.setattr("shared.kube.reflector.FIRST_WAIT_SECONDS", HOUR_SECONDS)
    monkeypatch.setattr("shared.kube.reflector.MOST_WAIT_SECONDS", HOUR_SECONDS)

    async def tries(name: str, fault: Fault, *, lists: bool) -> tuple[str, int]:
        async with faulty_server() as server:
            await server.put("a")
            if lists:
                server.always = fault
            else:
                server.watch_faults.extend([fault] * 1000)
            follower = following(server)
            await eventually(lambda: server.lists if lists else server.watches)
            for number in range(10):
                await asyncio.sleep(0.1)
                await server.put(f"more-{number}")
            await follower.close()
            assert follower.lists == (not lists)
            return name, server.lists if lists else server.watches

    counts = await asyncio.gather(
        *(tries(f"watch {name}", fault, lists=False) for name, fault in WATCH_FAULTS.items()),
        *(tries(f"list {name}", fault, lists=True) for name, fault in LIST_FAULTS.items()),
    )
    assert {name: count for name, count in counts if count > TRIES_MAX} == {}
