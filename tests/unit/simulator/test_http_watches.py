"""Watches over HTTP."""

import asyncio

import aiohttp

from services.simulator.app import Simulator
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.simulator.builders import config_map
from tests.unit.simulator.http_client import MAPS, Client


async def test_watch_starts_with_existing_objects_and_continues(client: Client) -> None:
    await client.send("POST", MAPS, config_map("a"))
    watching = asyncio.create_task(client.lines(f"{MAPS}?watch=1&timeoutSeconds=1"))
    await asyncio.sleep(0.2)
    await client.send("POST", MAPS, config_map("b"))
    await client.send("DELETE", f"{MAPS}/a")

    assert await watching == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


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
        watching = asyncio.create_task(Client(simulator, session).lines(f"{MAPS}?watch=1"))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await simulator.stop()
            assert await watching == []
