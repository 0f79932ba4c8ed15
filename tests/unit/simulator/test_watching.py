"""Watches and lists of the store: order, selection, expired versions, pages."""

import pytest

from services.simulator.cluster.api import Api
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.listing import Lists
from services.simulator.cluster.storage.watching import Watch
from tests.unit.simulator.builders import api, config_map, kind
from tests.unit.simulator.requests import MAPS, create, delete, merge, owned


def watch(cluster: Api, since: int, labels: dict[str, str] | None = None) -> Watch:
    wanted = labels

    def selects(obj: Obj) -> bool:
        return bool(obj["metadata"].get("labels") == wanted)

    return Watch(
        cluster.store,
        kind(cluster, "configmaps"),
        since=since,
        selector=None if labels is None else selects,
    )


def said(events: Watch) -> list[tuple[str, str]]:
    return [(type_, event.stored.name) for type_, event in events.drain()]


async def test_watch_delivers_changes_after_its_version() -> None:
    cluster = api()
    stored = await create(cluster, MAPS, config_map("before"))
    await create(cluster, MAPS, config_map("a"))
    events = watch(cluster, stored.version)
    await merge(cluster, MAPS, "a", {"data": {"k": "w"}})
    await delete(cluster, MAPS, "a")

    assert said(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert said(events) == []


async def test_object_enters_and_leaves_a_selection() -> None:
    cluster = api()
    await create(cluster, MAPS, config_map("a"))
    events = watch(cluster, cluster.store.version, {"in": "yes"})
    for labels in ({"in": "yes"}, {"in": "no"}, {"in": "yes"}):
        await merge(cluster, MAPS, "a", {"metadata": {"labels": labels}})
    await delete(cluster, MAPS, "a")

    seen = events.drain()
    assert [type_ for type_, _ in seen] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    shown = [event.stored.obj["metadata"]["labels"]["in"] for _, event in seen]
    assert shown == ["yes"] * 4, "what leaves is shown as it was when it last matched"
    versions = [int(event.stored.obj["metadata"]["resourceVersion"]) for _, event in seen]
    assert versions == sorted(set(versions))


async def test_compacted_version_cannot_be_watched_from() -> None:
    cluster = api(history_max=3)
    first = await create(cluster, MAPS, config_map("a0"))
    for number in range(1, 4):
        await create(cluster, MAPS, config_map(f"a{number}"))
    assert len(said(watch(cluster, first.version))) == 3
    await create(cluster, MAPS, config_map("a4"))

    with pytest.raises(ApiError, match="too old resource version") as refused:
        watch(cluster, first.version)

    assert (refused.value.code, refused.value.reason) == (410, "Expired")


async def test_compacted_and_future_versions_cannot_be_watched_from() -> None:
    cluster = api()
    stored = await create(cluster, MAPS, config_map("a"))
    await create(cluster, MAPS, config_map("b"))
    cluster.store.forget_events()

    for version in (stored.version, cluster.store.version + 1):
        with pytest.raises(ApiError) as refused:
            watch(cluster, version)
        assert refused.value.code == 410
    assert said(watch(cluster, cluster.store.version)) == []


async def test_all_watchers_get_changes_in_the_same_order() -> None:
    cluster = api()
    first, second = watch(cluster, 5), watch(cluster, 5)
    owner = await create(cluster, MAPS, config_map("owner"))
    await create(cluster, MAPS, owned("child", owner))
    await delete(cluster, MAPS, "owner")

    heard = [event.version for _, event in first.drain()]
    assert heard == sorted(heard)
    assert heard == [event.version for _, event in second.drain()]


async def test_slow_watcher_loses_its_watch_after_the_delivered_events() -> None:
    cluster = api()
    maps = kind(cluster, "configmaps")
    events = Watch(cluster.store, maps, since=cluster.store.version, buffer_max=2)
    rung: list[bool] = []
    events.on_ready = lambda: rung.append(events.overflowed)
    for number in range(4):
        await create(cluster, MAPS, config_map(f"a{number}"))

    assert rung == [False, False, True], "it is told of the end, and then of nothing"
    assert said(events) == [("ADDED", "a0"), ("ADDED", "a1")]


async def test_pages_show_one_version_of_the_list() -> None:
    cluster = api()
    for number in range(5):
        await create(cluster, MAPS, config_map(f"a{number}"))
    lists, maps = Lists(cluster.store), kind(cluster, "configmaps")

    first = lists.page(maps, None, None, limit=2)
    await delete(cluster, MAPS, "a3")
    await create(cluster, MAPS, config_map("a9"))
    second = lists.page(maps, None, None, limit=2, token=first.next_token)
    third = lists.page(maps, None, None, limit=2, token=second.next_token)

    names = [stored.name for page in (first, second, third) for stored in page.items]
    assert names == ["a0", "a1", "a2", "a3", "a4"]
    assert first.version == second.version == third.version
    assert (first.remaining, third.next_token) == (3, "")


@pytest.mark.parametrize(("token", "code"), [("garbage", 400), ("eyJsaXN0Ijo5OX0=", 410)])
def test_invalid_continue_token_is_refused(token: str, code: int) -> None:
    cluster = api()

    with pytest.raises(ApiError) as refused:
        Lists(cluster.store).page(kind(cluster, "configmaps"), None, None, token=token)

    assert refused.value.code == code
