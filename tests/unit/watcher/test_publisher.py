"""What is published, and in which order, after the bus refused a message."""

import asyncio
from contextlib import suppress

import pytest

from services.watcher.publisher import ObservedPublisher, coalesced
from shared.bus.port import PublishFuture, StreamFullError
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed
from shared.testing.world.loop import VirtualLoop
from shared.testing.world.memory_bus import MemoryBus, MemoryServer


def state(text: str) -> Observed:
    """``u1@5`` is uid u1 at version 5, ``u1@6 gone`` its tombstone."""
    identity, _, gone = text.partition(" ")
    uid, _, version = identity.partition("@")
    return Observed(
        cluster="hub",
        group="batch",
        version="v1",
        plural="jobs",
        kind="Job",
        namespace="n",
        name="j",
        uid=uid,
        resource_version=version,
        deleted=gone == "gone",
    )


def text_of(one: Observed) -> str:
    return f"{one.uid}@{one.resource_version}{' gone' if one.deleted else ''}"


COALESCED = {
    "only the latest state of a uid is queued": (["u1@1", "u1@2", "u1@3"], ["u1@3"]),
    "tombstone replaces earlier states": (["u1@1", "u1@2 gone"], ["u1@2 gone"]),
    "tombstone comes before new uid": (["u1@2 gone", "u2@3"], ["u1@2 gone", "u2@3"]),
    "objects that never were on the log leave no messages": (
        ["u1@2 gone", "u2@3", "u2@4 gone", "u3@5", "u3@6 gone", "u4@7"],
        ["u1@2 gone", "u4@7"],
    ),
    "only tombstones remain": (
        ["u1@2 gone", "u2@3", "u2@4 gone"],
        ["u1@2 gone", "u2@4 gone"],
    ),
}


@pytest.mark.parametrize(("put", "left"), COALESCED.values(), ids=COALESCED.keys())
def test_newer_message_replaces_older_ones_of_its_uid(put: list[str], left: list[str]) -> None:
    waiting: list[Observed] = []
    for text in put:
        waiting = coalesced(waiting, state(text))
    assert [text_of(one) for one in waiting] == left


class Full(MemoryBus):
    """Refuses, a second late, while it is full."""

    full = False

    def publish(
        self, message: Message, *, expect_last: int | None = None, expect_subject: int | None = None
    ) -> PublishFuture:
        if self.full:
            return asyncio.ensure_future(self._refuse())
        return super().publish(message, expect_last=expect_last, expect_subject=expect_subject)

    async def _refuse(self) -> int:
        await asyncio.sleep(1)
        raise StreamFullError("full")


REFUSED = {
    "published when there is room": ("u1@1", [], ["u1@1"]),
    "newer state of the same uid replaces it": ("u1@1", ["u1@2"], ["u1@2"]),
    "tombstone replaces it": ("u1@1", ["u1@2 gone"], ["u1@2 gone"]),
    "refused tombstone comes before new uid": (
        "u1@2 gone",
        ["u2@3"],
        ["u1@2 gone", "u2@3"],
    ),
    "tombstone replaces refused state and comes before new uid": (
        "u1@1",
        ["u1@2 gone", "u2@3"],
        ["u1@2 gone", "u2@3"],
    ),
    "refused tombstone comes before the last of many uids": (
        "u1@2 gone",
        ["u2@3", "u2@4 gone", "u3@5"],
        ["u1@2 gone", "u3@5"],
    ),
}


@pytest.mark.parametrize(("first", "then", "published"), REFUSED.values(), ids=REFUSED.keys())
def test_messages_on_log_after_bus_refused_the_first(
    first: str, then: list[str], published: list[str]
) -> None:
    loop = VirtualLoop()
    server = MemoryServer()

    async def run() -> bool:
        bus = Full(server, instance="watcher")
        await bus.start()
        publisher = ObservedPublisher(bus)
        running = asyncio.create_task(publisher.run())
        bus.full = True
        publisher.put(state(first))
        await asyncio.sleep(0.5)
        for text in then:
            publisher.put(state(text))
        flushing = asyncio.create_task(publisher.flush())
        await asyncio.sleep(10)
        early = flushing.done()
        bus.full = False
        await flushing
        assert publisher.waiting == 0
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await bus.stop()
        return early

    try:
        assert loop.run_until_complete(run()) is False, "flushed before it was published"
        stored = server.stream("OBSERVED").messages
        observed = [Observed.decode(stored[sequence].data) for sequence in sorted(stored)]
        assert [text_of(one) for one in observed] == published
    finally:
        loop.dispose()
