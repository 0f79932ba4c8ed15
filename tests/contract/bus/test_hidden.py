"""Over both buses: a message that nobody can read hides no object from whoever begins to read."""

import asyncio

from shared.bus.follow import follow, follow_entries, recall, recall_entries, stored_entries
from shared.bus.port import Bus, Entry
from shared.contracts.messages.observed import Observed
from shared.testing.waiting import PATIENCE_SECONDS
from tests.contract.bus.stage import Stage


class Garbage(Observed):
    """Under the subject of an object, and no observation."""

    @property
    def message_id(self) -> str | None:
        return None

    def encode(self) -> bytes:
        return b'{"what": "ever"'


def seen(name: str, version: str, kind: type[Observed] = Observed) -> Observed:
    return kind(
        cluster="hub", group="batch", version="v1", plural="jobs", kind="Job",
        namespace="team", name=name, uid=f"u-{name}", resource_version=version,
    )  # fmt: skip


async def recalled(bus: Bus) -> tuple[dict[str, str], list[int]]:
    """Version of each object, by name, that whoever begins to read ends with; what cannot be read.

    A view follows its log a moment later, so that an earlier version may be read on the way.
    """
    found, unreadable = dict[str, str](), list[int]()

    def on_observed(message: Observed, _entry: Entry) -> None:
        found[message.name] = message.resource_version

    async with asyncio.timeout(PATIENCE_SECONDS):
        await recall(
            bus,
            {Observed: on_observed},
            on_unreadable=lambda entry: unreadable.append(entry.sequence),
        )
    return found, unreadable


async def test_last_state_that_can_be_read_is_found_behind_garbage(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for message in (
        *(seen("a", "1"), seen("b", "1"), seen("a", "2")),
        *(seen("a", "", Garbage), seen("a", "", Garbage), seen("never", "", Garbage)),
    ):
        last = await bus.publish(message)

    assert await recalled(bus) == ({"a": "2", "b": "1"}, [last - 1, last])


async def test_later_state_is_what_counts(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for message in (seen("a", "1"), seen("a", "", Garbage), seen("a", "2")):
        await bus.publish(message)

    assert await recalled(bus) == ({"a": "2"}, [])


async def test_reader_of_entries_gets_what_nobody_can_read_and_nothing_earlier(
    bus_factory: Stage,
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for message in (seen("a", "1"), seen("b", "1"), seen("a", "", Garbage)):
        last = await bus.publish(message)
    found, followed = dict[str, int](), dict[str, int]()
    ends: asyncio.Queue[int] = asyncio.Queue()

    def on_found(entry: Entry) -> None:
        found[entry.subject] = entry.sequence

    def on_followed(entry: Entry) -> None:
        followed[entry.subject] = entry.sequence

    async with asyncio.timeout(PATIENCE_SECONDS):
        end = await recall_entries(bus, Observed.stream, on_entry=on_found)
        following = asyncio.create_task(
            follow_entries(bus, Observed.stream, on_entry=on_followed, on_caught_up=ends.put_nowait)
        )
        assert (end, await ends.get()) == (last, last)
        following.cancel()
        stored = [
            entry.sequence async for entry in stored_entries(bus, Observed.stream, start=last - 1)
        ]

    assert found == followed == {seen("a", "1").subject: last, seen("b", "1").subject: last - 1}
    assert stored == [last - 1, last]


async def test_reader_that_has_caught_up_skips_garbage(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(seen("a", "1"))
    found: list[str] = []
    began, done = asyncio.Event(), asyncio.Event()

    def on_observed(message: Observed, _entry: Entry) -> None:
        found.append(message.resource_version)
        if message.resource_version == "2":
            done.set()

    following = asyncio.create_task(follow(bus, {Observed: on_observed}, on_caught_up=began.set))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await began.wait()
        await bus.publish(seen("a", "", Garbage))
        await bus.publish(seen("a", "2"))
        await done.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    assert found == ["1", "2"]
