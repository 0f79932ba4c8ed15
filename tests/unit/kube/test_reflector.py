"""Hours of a reflector in virtual time, against a cluster that is told what to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import JOB, Kind, Object
from shared.kube.port import (
    ExpiredError,
    Kube,
    KubeError,
    Listing,
    NotFoundError,
    Patch,
    ThrottledError,
    UnavailableError,
    WatchEvent,
)
from shared.kube.reflector import Changed, Listed, Reflection, Reflector, Unserved
from shared.testing.world.loop import VirtualLoop

HOUR = 3600.0


def job(version: int) -> Object:
    return {
        "metadata": {"namespace": "n", "name": "j", "uid": "u", "resourceVersion": str(version)}
    }


class Cluster(Kube):
    """Keeps as much of `Kube` as a reflector uses; the tests put in what it does."""

    def __init__(self) -> None:
        self.is_served = True
        self.on_list: Callable[[], Awaitable[None]] = self.nothing
        self.on_watch: Callable[[str], AsyncIterator[WatchEvent]] = self.quiet
        self.lists: list[float] = []
        self.watches: list[float] = []

    async def nothing(self) -> None: ...

    async def quiet(self, version: str) -> AsyncIterator[WatchEvent]:
        await asyncio.sleep(290)
        bookmark = as_body({"metadata": {"resourceVersion": version}})
        yield WatchEvent(type="BOOKMARK", object=bookmark)

    @override
    async def served(self) -> frozenset[tuple[str, str, str]]:
        return frozenset({(JOB.group, JOB.version, JOB.plural)}) if self.is_served else frozenset()

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        self.lists.append(asyncio.get_running_loop().time())
        if not self.is_served:
            raise NotFoundError("no such kind", status=404)
        await self.on_list()
        return Listing(items=[], resource_version="10")

    @override
    def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        self.watches.append(asyncio.get_running_loop().time())
        return self.on_watch(resource_version)

    @override
    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        raise AssertionError

    @override
    async def create(self, kind: Kind, obj: Object) -> Object:
        raise AssertionError

    @override
    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Object:
        raise AssertionError

    @override
    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        dependants_first: bool = False,
    ) -> None:
        raise AssertionError

    @override
    async def close(self) -> None: ...


def reflected(
    cluster: Cluster, *, seconds: float, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> list[tuple[float, Reflection]]:
    """What a reflector says within `seconds`, and when."""
    loop = VirtualLoop()
    said: list[tuple[float, Reflection]] = []
    reflector = Reflector(kube=cluster, kind=JOB, random=Random(1))

    async def follow() -> None:
        async for reflection in reflector.run():
            at = loop.time()
            said.append((at, reflection))

    async def run() -> None:
        tasks = [asyncio.create_task(follow())]
        if meanwhile is not None:
            tasks.append(asyncio.create_task(_wrapped(meanwhile)))
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    loop.run_until_complete(run())
    loop.dispose()
    return said


async def _wrapped(meanwhile: Callable[[], Awaitable[None]]) -> None:
    await meanwhile()


def raising(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


def breaking(error: Exception) -> Callable[[str], AsyncIterator[WatchEvent]]:
    async def watch(version: str) -> AsyncIterator[WatchEvent]:
        raise error
        yield  # A generator that gives nothing.

    return watch


def test_quiet_cluster_is_listed_once_and_watched_again_as_each_watch_ends() -> None:
    cluster = Cluster()
    said = reflected(cluster, seconds=HOUR)
    assert [type(reflection) for _, reflection in said] == [Listed]
    assert len(cluster.lists) == 1
    assert 12 <= len(cluster.watches) <= 13


OUTAGES: dict[str, KubeError] = {
    "is down": UnavailableError("down"),
    "has forgotten": ExpiredError("old", status=410),
    "throttles": ThrottledError("slow", retry_after_seconds=0.0),
}


@pytest.mark.parametrize("error", OUTAGES.values(), ids=OUTAGES.keys())
def test_watching_a_closing_server_for_an_hour_takes_few_requests(error: KubeError) -> None:
    cluster = Cluster()
    cluster.on_watch = breaking(error)
    reflected(cluster, seconds=HOUR)
    # From half a second the wait doubles up to thirty, spread over its upper half.
    assert 100 <= len(cluster.watches) <= 250
    assert len(cluster.lists) <= len(cluster.watches) + 1


def test_failing_lists_for_an_hour_take_few_requests() -> None:
    cluster = Cluster()
    cluster.on_list = raising(UnavailableError("down"))
    assert reflected(cluster, seconds=HOUR) == []
    assert 100 <= len(cluster.lists) <= 250


def test_retry_after_of_the_server_is_respected() -> None:
    cluster = Cluster()
    cluster.on_list = raising(ThrottledError("slow", retry_after_seconds=120))
    reflected(cluster, seconds=HOUR)
    gaps = [b - a for a, b in pairwise(cluster.lists)]
    assert min(gaps) >= 120


def test_retry_after_of_a_day_is_capped_at_five_minutes() -> None:
    cluster = Cluster()
    cluster.on_list = raising(ThrottledError("slow", retry_after_seconds=86_400))
    reflected(cluster, seconds=HOUR)
    assert 10 <= len(cluster.lists) <= 13


def test_back_off_resets_after_an_outage() -> None:
    cluster = Cluster()
    cluster.on_list = raising(UnavailableError("down"))

    async def meanwhile() -> None:
        await asyncio.sleep(600)
        cluster.on_list = cluster.nothing
        await asyncio.sleep(60)
        cluster.on_watch = steady_then_broken

    async def steady_then_broken(version: str) -> AsyncIterator[WatchEvent]:
        await asyncio.sleep(60)
        yield WatchEvent(type="MODIFIED", object=job(int(version) + 1))
        raise UnavailableError("reset")

    said = reflected(cluster, seconds=HOUR, meanwhile=meanwhile)
    assert len(cluster.lists) > 10
    changes = [at for at, reflection in said if isinstance(reflection, Changed)]
    gaps = [b - a for a, b in pairwise(changes)]
    assert max(gaps) <= 61


def test_silent_watch_is_followed_by_a_list() -> None:
    """As a real API server does that is asked for a version that it never had."""
    cluster = Cluster()

    async def mute(version: str) -> AsyncIterator[WatchEvent]:
        await asyncio.sleep(290)
        nothing: list[WatchEvent] = []
        for event in nothing:
            yield event

    cluster.on_watch = mute
    said = reflected(cluster, seconds=HOUR)
    assert 5 <= len(cluster.lists) <= 8
    assert all(isinstance(reflection, Listed) for _, reflection in said)


def test_unserved_kind_is_reported_at_once_and_again_when_certain() -> None:
    cluster = Cluster()
    cluster.is_served = False
    said = reflected(cluster, seconds=HOUR)
    assert [reflection for _, reflection in said] == [
        Unserved(certain=False),
        Unserved(certain=True),
    ]
    assert said[0][0] == 0
    assert 60 <= said[1][0] <= 80
    assert 190 <= len(cluster.lists) <= 320


def test_kind_that_is_installed_is_listed_within_seconds() -> None:
    cluster = Cluster()
    cluster.is_served = False

    async def meanwhile() -> None:
        await asyncio.sleep(1000)
        cluster.is_served = True

    said = reflected(cluster, seconds=HOUR, meanwhile=meanwhile)
    listed: list[Any] = [at for at, reflection in said if isinstance(reflection, Listed)]
    assert 1000 <= listed[0] <= 1020


def test_list_that_is_not_found_while_discovery_knows_the_kind_is_an_outage() -> None:
    cluster = Cluster()
    cluster.on_list = raising(NotFoundError("starting", status=404))
    assert reflected(cluster, seconds=HOUR) == []


def test_short_absence_of_a_kind_does_not_end_its_objects() -> None:
    cluster = Cluster()
    cluster.on_watch = breaking(NotFoundError("starting", status=404))

    async def meanwhile() -> None:
        await asyncio.sleep(10)
        cluster.is_served = False
        await asyncio.sleep(40)
        cluster.is_served = True
        cluster.on_watch = cluster.quiet

    said = reflected(cluster, seconds=600, meanwhile=meanwhile)
    assert Unserved(certain=True) not in [reflection for _, reflection in said]
    assert isinstance(said[-1][1], Listed)


def test_same_seed_gives_the_same_run() -> None:
    def run() -> list[float]:
        cluster = Cluster()
        cluster.on_watch = breaking(UnavailableError("down"))
        reflected(cluster, seconds=HOUR)
        return cluster.watches + cluster.lists

    assert run() == run()
