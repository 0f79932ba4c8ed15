"""A cancellation that is never lost."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancellable() -> Iterator[None]:
    """Around a call of nats-py that waits: who is cancelled meanwhile ends, answer or not.

    nats-py waits by `asyncio.wait_for`, which in Python 3.11 returns the result if that came in the
    moment of the cancellation (gh-86296). The task would go on, and who cancelled it wait forever.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:  # Also where the answer is a refusal, after which who asked would only try again.
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


def end_if_cancelled() -> None:
    """Raise `CancelledError` in a task that was cancelled and goes on.

    For what nats-py calls between two tries: a refused connection that comes with a cancellation loses it,
    and nats-py would try again forever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
