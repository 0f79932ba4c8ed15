"""Who looks, and until when."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from services.console.idle_tracker import IdleTracker
from shared.testing.world.loop import VirtualLoop

IDLE_SECONDS = 100.0


async def when(wait: Callable[[], Awaitable[None]], *, most: float = 1e6) -> float | None:
    """At which second it returns; None: not for as long as `most`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(most):
            await wait()
        return asyncio.get_running_loop().time()
    return None


def play(scene: Callable[[], Awaitable[None]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(asyncio.ensure_future(scene(), loop=loop))
    finally:
        loop.dispose()


def test_tracker_is_in_use_from_the_first_question() -> None:
    async def scene() -> None:
        idle_tracker = IdleTracker(IDLE_SECONDS)
        assert await when(idle_tracker.wait_until_used, most=500.0) is None
        asyncio.get_running_loop().call_later(10.0, idle_tracker.touch)
        assert await when(idle_tracker.wait_until_used) == 510.0

    play(scene)


def test_tracker_is_idle_after_the_whole_time_without_question() -> None:
    async def scene() -> None:
        idle_tracker = IdleTracker(IDLE_SECONDS)
        idle_tracker.touch()
        asyncio.get_running_loop().call_later(60.0, idle_tracker.touch)
        assert await when(idle_tracker.wait_until_idle) == 160.0
        assert await when(idle_tracker.wait_until_used, most=500.0) is None

    play(scene)


def test_question_between_idle_and_next_wait_is_not_lost() -> None:
    async def scene() -> None:
        idle_tracker = IdleTracker(IDLE_SECONDS)
        idle_tracker.touch()
        await idle_tracker.wait_until_idle()
        idle_tracker.touch()
        assert await when(idle_tracker.wait_until_used) == 100.0

    play(scene)


def test_tracker_without_idle_time_is_always_in_use() -> None:
    async def scene() -> None:
        idle_tracker = IdleTracker(0)
        assert await when(idle_tracker.wait_until_used) == 0.0
        assert await when(idle_tracker.wait_until_idle, most=1e6) is None

    play(scene)
