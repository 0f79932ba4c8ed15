"""What still goes out, and in which order, when the bus does not take something at first."""

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
    """``u1@5`` is the life u1 at version 5, ``u1@6 gone`` its end."""
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
    "of one life only the latest state waits": (["u1@1", "u1@2", "u1@3"], ["u1@3"]),
    "an end takes the place of what led to it": (["u1@1", "u1@2 gone"], ["u1@2 gone"]),
    "an end goes before a new life": (["u1@2 gone", "u2@3"], ["u1@2 gone", "u2@3"]),
    "lives that nobody knew of leave no trace": (
        ["u1@2 gone", "u2@3", "u2@4 gone", "u3@5", "u3@6 gone", "u4@7"],
        ["u1@2 gone", "u4@7"],
    ),
    "at last everything may be gone": (
        ["u1@2 gone", "u2@3", "u2@4 gone"],
        ["u1@2 gone", "u2@4 gone"],
    ),
}


@pytest.mark.parametrize(("put", "left"), COALESCED.values(), ids=COALESCED.keys())
def test_coalesced_messages(put: list[str], left: list[str]) -> None:
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
    "it is said when there is room": ("u1@1", [], ["u1@1"]),
    "a newer state of the same life takes its place": ("u1@1", ["u1@2"], ["u1@2"]),
    "its end takes its place": ("u1@1", ["u1@2 gone"], ["u1@2 gone"]),
    "an end that was refused still goes before the new life": (
        "u1@2 gone",
        ["u2@3"],
        ["u1@2 gone", "u2@3"],
    ),
    "a state that was refused gives way to its end, and that goes before the new life": (
        "u1@1",
        ["u1@2 gone", "u2@3"],
        ["u1@2 gone", "u2@3"],
    ),
    "an end that was refused goes before the last of many lives": (
        "u1@2 gone",
        ["u2@3", "u2@4 gone", "u3@5"],
        ["u1@2 gone", "u3@5"],
    ),
}


@pytest.mark.parametrize(("first", "then", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_messages_on_log_after_bus_refused_the_first(
    first: str, then: list[str], said: list[str]
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
        assert loop.run_until_complete(run()) is False, "flushed before it was said"
        stored = server.stream("OBSERVED").messages
        observed = [Observed.decode(stored[sequence].data) for sequence in sorted(stored)]
        assert [text_of(one) for one in observed] == said
    finally:
        loop.dispose()
