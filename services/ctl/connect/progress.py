"""What a command waits for, on standard error: its answer alone goes to standard output.

In: a sentence, and others as the work goes on. Out: nothing at all if the work is done within a second; else
the sentence, and every few seconds again how long it has taken.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

FIRST_SECONDS = 1.0
"""Who gets an answer within this time does not begin to wonder."""

AGAIN_SECONDS = 5.0

Note = Callable[[str], None]
"""Takes the sentence that holds from now on."""


def tell(text: str, file: TextIO | None = None) -> None:
    """Say on standard error, or in `file`, what a command waits for."""
    print(f"sluice: {text}", file=file or sys.stderr, flush=True)


@contextmanager
def progress(text: str) -> Iterator[Note]:
    """Tell what is waited for while the body works, also where it computes and never awaits.

    Yields what changes `text`. It goes to what is standard error now, wherever the body redirects that.
    """
    began, file, ended = time.monotonic(), sys.stderr, threading.Event()
    doing = [text]

    def note(other: str) -> None:
        doing[0] = other

    def tell_on() -> None:
        pause = FIRST_SECONDS
        while not ended.wait(pause):
            with suppress(OSError, ValueError):  # Nobody reads it, which is no reason to end.
                tell(f"{doing[0]} ({time.monotonic() - began:.0f} s)", file)
            pause = AGAIN_SECONDS

    telling = threading.Thread(target=tell_on, name="progress", daemon=True)
    if file is not None:
        telling.start()
    try:
        yield note
    finally:
        ended.set()
        if telling.is_alive():
            telling.join()
