"""How often a reader without a consumer listens anew, and what wakes it, counted in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from nats.aio.msg import Msg

from shared.bus.nats.direct.hints import FIRST_PAUSE_SECONDS, HEARD_MAX, Hints
from shared.testing.world.loop import run_virtual

SUBJECT = "sluice.workload.>"


class Server:
    """Hands what is stored to the subscription that listens, until that has brought its share."""

    def __init__(self) -> None:
        self.subscribed = 0
        self._left = 0
        self._callback: Callable[[Msg], Awaitable[None]] | None = None

    async def subscribe(self, _subject: str, *, cb: Callable[[Msg], Awaitable[None]]) -> "Server":
        self.subscribed += 1
        self._callback = cb
        return self

    async def unsubscribe(self, limit: int = 0) -> None:
        self._left = limit

    async def store(self, sequence: int) -> None:
        if self._callback is not None and self._left > 0:
            self._left -= 1
            headers = {"Nats-Sequence": str(sequence)}
            client = cast("Any", None)
            await self._callback(Msg(_client=client, subject="", data=b"", headers=headers))


def test_subscription_lasts_for_many_hints() -> None:
    async def story() -> list[int]:
        server = Server()
        hints, counts = Hints(cast("Any", server), (SUBJECT,)), []
        for sequence in range(1, 2 * HEARD_MAX + 1):
            await hints.listen()
            storing = asyncio.create_task(server.store(sequence))
            assert await hints.wait(delivered=sequence - 1)
            await storing
            counts.append(server.subscribed)
        return counts

    assert run_virtual(story()) == [1] * HEARD_MAX + [2] * HEARD_MAX


def test_hint_about_a_message_already_delivered_wakes_no_reader() -> None:
    async def story() -> float:
        server = Server()
        hints = Hints(cast("Any", server), (SUBJECT,))
        await hints.listen()
        await server.store(1)
        began = asyncio.get_running_loop().time()
        assert not await hints.wait(delivered=1)
        return asyncio.get_running_loop().time() - began

    assert run_virtual(story()) >= FIRST_PAUSE_SECONDS


def test_log_that_begins_anew_is_looked_at_however_much_it_has_by_then() -> None:
    async def story() -> list[bool]:
        server = Server()
        hints = Hints(cast("Any", server), (SUBJECT,))
        await hints.listen()
        waiting = asyncio.create_task(hints.wait(delivered=5))
        await asyncio.sleep(0)
        for sequence in range(1, 9):
            await server.store(sequence)
        first = await waiting
        return [first, await hints.wait(delivered=5)]

    assert run_virtual(story()) == [False, True]


def test_closed_reader_does_not_wait() -> None:
    async def story() -> float:
        hints = Hints(cast("Any", Server()), (SUBJECT,), stopped=lambda: True)
        await hints.listen()
        hints.came.set()
        began = asyncio.get_running_loop().time()
        await hints.wait(delivered=0)
        return asyncio.get_running_loop().time() - began

    assert run_virtual(story()) < FIRST_PAUSE_SECONDS
