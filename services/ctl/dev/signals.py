"""Signals that end a command."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress

from shared.runtime.command import Exit


async def until_signalled(work: Coroutine[None, None, int], *, terminated: int) -> int:
    """Run `work`. SIGINT and SIGTERM cancel it, so that it cleans up.

    Returns its result, `Exit.INTERRUPTED` after SIGINT, `terminated` after SIGTERM.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    ends = {signal.SIGINT: int(Exit.INTERRUPTED), signal.SIGTERM: terminated}
    came: list[signal.Signals] = []

    def cancel(number: signal.Signals) -> None:
        came.append(number)
        task.cancel()

    for number in ends:
        loop.add_signal_handler(number, cancel, number)
    with suppress(asyncio.CancelledError):
        return await task
    return ends[came[0]] if came else terminated
