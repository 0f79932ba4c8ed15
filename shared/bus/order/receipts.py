"""The result of one publish, and whether anybody has asked for it."""

import asyncio
from collections.abc import Generator
from typing import Any


class Receipt(asyncio.Future[int]):
    """The result of one publish; it knows whether anybody has asked for it."""

    seen = False

    def __await__(self) -> Generator[Any, None, int]:
        self.seen = True
        return super().__await__()

    def result(self) -> int:
        """Return the sequence in the log, or raise."""
        self.seen = True
        return super().result()

    def exception(self) -> BaseException | None:
        """Return its result."""
        self.seen = True
        return super().exception()

    def unseen(self) -> BaseException | None:
        """Return the error, if no caller has awaited it yet."""
        return None if self.seen or self.cancelled() else super().exception()


def failed(error: Exception) -> Receipt:
    """Return the failed result of a message that cannot be published. It may stay unread."""
    done = Receipt(loop=asyncio.get_running_loop())
    done.set_exception(error)
    done.unseen()  # Reading the exception keeps asyncio from logging it.
    return done


def stored_at(done: asyncio.Future[int]) -> int | None:
    """Return the sequence of a successful publish, without marking its result as awaited."""
    if done.cancelled():
        return None
    seen = isinstance(done, Receipt) and done.seen
    sequence = None if done.exception() is not None else done.result()
    if isinstance(done, Receipt):
        done.seen = seen
    return sequence
