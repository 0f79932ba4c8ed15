"""A wall clock that jumps for some processes only: they run with libfaketime.

The library answers for the C library when a process asks for the time; it reads the offset from a file each
time. The monotonic clock stays as it is, by which Python's event loop and locks count seconds: no jump of a
machine's clock changes that one. A program that is linked statically never loads it, as nats-server.
"""

import os
from pathlib import Path
from typing import Final

LIBRARY_VARIABLE: Final = "FAKETIME_LIB"
"""Names the library where it is in none of the usual places."""

NAMES: Final = ("libfaketimeMT.so.1", "libfaketime.so.1")
"""The first is the one for programs with threads."""

PLACES: Final = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
RIGHT: Final = 0.0
"""Seconds by which a right clock is off."""

NO_LIBRARY: Final = (
    f"no libfaketime (Debian's package faketime; {LIBRARY_VARIABLE} names another file)"
)
NOT_REACHED: Final = "nats-server is linked statically: libfaketime does not reach it"
"""Why a clock cannot be moved."""


def library(places: tuple[str, ...] = PLACES) -> Path | None:
    """The file of libfaketime: what `FAKETIME_LIB` names, or else the usual one. None if it is not here."""
    if named := os.environ.get(LIBRARY_VARIABLE):
        return Path(named) if Path(named).is_file() else None
    root = Path("/")
    found = (
        file for name in NAMES for place in places for file in root.glob(f"{place[1:]}/{name}")
    )
    return next(found, None)


class Clock:
    """The wall clock of one process, as a file says it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(RIGHT)

    def set(self, seconds: float) -> None:
        """Let the clock be off by so many seconds from now on: ahead, or behind if it is negative."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{seconds:+.3f}\n")
        beside.replace(self._file)  # Nobody reads half of it.

    def environment(self, libfaketime: Path) -> dict[str, str]:
        """The variables with which a process runs by this clock."""
        return {
            "LD_PRELOAD": str(libfaketime),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # Its name of today, and the one before.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # A jump changes no times of files.
            "NO_FAKE_STAT": "1",
        }
