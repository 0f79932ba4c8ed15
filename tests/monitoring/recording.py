"""What Prometheus would have of some minutes, as text: a series a line, with its values in turn.

The first line says how many seconds lie between two of them; `_` is where a series was not there, as in
`promtool test rules`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "NAME",
    "RECORDED",
    "Labels",
    "Recording",
    "Series",
    "read",
    "series_of",
    "text_of",
    "values_of",
    "write",
]

RECORDED: Final = Path(__file__).parent / "recorded.txt"
ABSENT: Final = "_"
NAME: Final = "__name__"

Labels = frozenset[tuple[str, str]]

_SERIES: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)?(?:\{(.*)\})?$")
_PAIR: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,\s*|$)')
_VALUES: Final = re.compile(r"(_|-?[\d.e+-]+?)([+-][\d.]+)?(?:x(\d+))?$")
_ESCAPED: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels, the name among them, and a value or none for each moment."""

    labels: Labels
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that was scraped."""

    step_seconds: float
    series: tuple[Series, ...]

    def labels_of(self) -> dict[str, set[str]]:
        """Name of a metric to the names of labels that it has."""
        found: dict[str, set[str]] = {}
        for one in self.series:
            labels = dict(one.labels)
            found.setdefault(labels.pop(NAME), set()).update(labels)
        return found


def series_of(text: str) -> Labels:
    """Read the notation of a series: `name{label="value"}`."""
    match = _SERIES.match(text.strip())
    assert match is not None, text
    name, inside = match.groups()
    pairs = [(key, _unescaped(value)) for key, value in _PAIR.findall(inside or "")]
    return frozenset([*pairs, *([(NAME, name)] if name else [])])


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPED.get(found[0], found[0]), value)


def values_of(text: str) -> tuple[float | None, ...]:
    """Read the notation of values: `1 2 _`, `1x3` for 1 and three more, `0+2x3` for 0, 2, 4, 6."""
    found: list[float | None] = []
    for token in text.split():
        match = _VALUES.match(token)
        assert match is not None, token
        start, by, times = match.groups()
        found += [
            None if start == ABSENT else float(start) + index * float(by or 0)
            for index in range(int(times or 0) + 1)
        ]
    return tuple(found)


def read(path: Path = RECORDED) -> Recording:
    """Read what `write` wrote."""
    first, *lines = path.read_text().splitlines()
    return Recording(float(first.rpartition(" ")[2]), tuple(map(_line, lines)))


def _line(line: str) -> Series:
    series, _, values = line.rpartition("\t")
    return Series(
        series_of(series),
        tuple(None if value == ABSENT else float(value) for value in values.split(" ")),
    )


def write(
    scrapes: Iterable[Mapping[Labels, float]], *, step_seconds: float, path: Path = RECORDED
) -> None:
    """Write the scrapes, which lie `step_seconds` apart."""
    taken = list(scrapes)
    every = sorted({labels for scrape in taken for labels in scrape}, key=text_of)
    lines = [
        f"{text_of(labels)}\t{' '.join(_value(scrape.get(labels)) for scrape in taken)}"
        for labels in every
    ]
    path.write_text("\n".join([f"# seconds between two values: {step_seconds:g}", *lines]) + "\n")


def text_of(labels: Labels) -> str:
    """Write the notation of a series."""
    pairs = dict(labels)
    name = pairs.pop(NAME)
    return f"{name}{{{','.join(_pairs(pairs))}}}"


def _pairs(pairs: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(pairs.items()):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'{key}="{escaped}"'


def _value(value: float | None) -> str:
    if value is None:
        return ABSENT
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
