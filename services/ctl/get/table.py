"""Columns as kubectl prints them, with colours on a terminal."""

import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

NONE: Final = "<none>"
_GAP: Final = 3
_NARROW_GAP: Final = 2
_WIDTH_MAX: Final = 100
"""Lines that would be longer get the narrow gap."""

_RESET: Final = "\x1b[0m"
_COLOURS: Final = {"red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m", "dim": "\x1b[2m"}

_OF_STATUS: Final = {
    "False": "red",
    "Hold": "red",
    "HoldAndDrain": "red",
    "Inactive": "red",
    "EVICTED": "red",
    "FAILED": "red",
    "failed": "red",
    "INADMISSIBLE": "red",
    "PENDING": "yellow",
    "waiting": "yellow",
    "launching": "yellow",
    "QUOTARESERVED": "yellow",
    "ADMITTED": "green",
    "Active": "green",
    "True": "green",
    "running": "green",
    "ready": "green",
    "FINISHED": "dim",
}


def coloured(stream: TextIO | None = None) -> bool:
    """Whether to colour the output: on a terminal, unless NO_COLOR is set (no-color.org)."""
    stream = stream or sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """`text` in one of a few colours."""
    return f"{_COLOURS[colour]}{text}{_RESET}"


class Table:
    """Aligned lines under a header. Widths only grow, so that a watch stays aligned."""

    def __init__(self, header: Sequence[str], *, colours: bool = False) -> None:
        self._header = tuple(header)
        self._widths = [len(title) for title in self._header]
        self._colours = colours
        self._gap = _GAP

    def lines(self, rows: Sequence[Sequence[str]], *, header: bool = True) -> list[str]:
        """The rows as text; no line ends in blanks."""
        shown = [tuple(cell or NONE for cell in row) for row in rows]
        for row in shown:
            for index, cell in enumerate(row):
                self._widths[index] = max(self._widths[index], len(cell))
        wide = sum(self._widths) + _GAP * (len(self._widths) - 1) > _WIDTH_MAX
        self._gap = _NARROW_GAP if wide else self._gap
        titles = [self._line(self._header, plain=True)] if header else []
        return [*titles, *(self._line(row) for row in shown)]

    def _line(self, row: Sequence[str], *, plain: bool = False) -> str:
        cells = []
        for index, cell in enumerate(row):
            last = index == len(row) - 1
            padding = "" if last else " " * (self._widths[index] - len(cell) + self._gap)
            colour = self._colour(index, cell) if self._colours and not plain else None
            cells.append((paint(cell, colour) if colour else cell) + padding)
        return "".join(cells).rstrip()

    def _colour(self, index: int, cell: str) -> str | None:
        """Of a cell that tells how things are. That work has not finished yet is nothing bad."""
        return None if self._header[index] == "FINISHED" else _OF_STATUS.get(cell)
