"""Watches over HTTP."""

import asyncio
from contextlib import aclosing

import aiohttp

from services.simulator.app import Simulator
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.simulator.builders import config_map
from tests.unit.simulator.http_client import MAPS, Client, event_of


async def test_watch_starts_with_existing_objects_and_continues(client: Client) -> None:
    await client.send("POST", MAPS, config_map("a"))
    async with aclosing(client.watch(f"{MAPS}?watch=1")) as lines:
        seen = [event_of(await anext(lines))]
        await client.send("POST", MAPS, config_map("b"))
        await client.send("DELETE", f"{MAPS}/a")
        seen += [event_of(await anext(lines)) for _ in range(2)]

    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_watch_resumes_after_a_version(client: Client) -> None:
    first = await client.send("POST", MAPS, config_map("a"))
    version = first.body["metadata"]["resourceVersion"]
    await client.send("POST", MAPS, config_map("b"))

    path = f"{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1"
    assert await client.lines(path) == [("ADDED", "b")]


async def test_watch_from_a_compacted_version_gets_410_in_the_stream(client: Client) -> None:
    await client.send("POST", MAPS, config_map("a"))
    await client.send("POST", MAPS, config_map("b"))
    client.simulator.api.store.forget_events()

    lines = [line async for line in client.watch(f"{MAPS}?watch=1&resourceVersion=1")]

    assert [line["type"] for line in lines] == ["ERROR"]
    assert lines[0]["object"]["code"] == 410
    assert lines[0]["object"]["reason"] == "Expired"


async def test_bookmarks_mark_the_end_of_existing_objects_and_of_the_watch(client: Client) -> None:
    await client.send("POST", MAPS, config_map("a"))
    query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&timeoutSeconds=1"

    lines = [line async for line in client.watch(f"{MAPS}?{query}")]

    assert [line["type"] for line in lines] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert lines[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    version = lines[2]["object"]["metadata"]["resourceVersion"]
    assert version == str(client.simulator.api.store.version)


async def test_open_watches_do_not_keep_a_simulator_from_stopping() -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    async with aiohttp.ClientSession() as session:
        client = Client(simulator, session)
        await client.send("POST", MAPS, config_map("a"))
        lines = client.watch(f"{MAPS}?watch=1")
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(lines):
            assert event_of(await anext(lines)) == ("ADDED", "a")
            await simulator.stop()
            assert [line async for line in lines] == []
