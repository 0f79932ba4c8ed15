"""Durations as Go reads and writes them, in nanoseconds."""

import re
from fractions import Fraction
from typing import Final

from services.classifier.tekton.reading import InvalidPipelineRunError

SECOND: Final = 1_000_000_000

INT64_MAX: Final = 2**63 - 1
"""The largest number of nanoseconds of Go's `time.Duration`."""

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
}

TEXT_MAX: Final = 100
"""Limit for the text of a duration. Go writes at most 26 characters."""

_DURATION = re.compile(r"[-+]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+")

_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str, path: str) -> int:
    """Return the nanoseconds of a Go duration. Raises `InvalidPipelineRunError` that names `path`."""
    if text in {"0", "+0", "-0"}:
        return 0
    if len(text) > TEXT_MAX:
        raise InvalidPipelineRunError(
            f'{path}: invalid duration "{text[:TEXT_MAX]}…": {len(text)} characters, at most '
            f"{TEXT_MAX} are allowed"
        )
    if not _DURATION.fullmatch(text):
        raise InvalidPipelineRunError(f'{path}: invalid duration "{text}"')
    total = sum(
        int(Fraction(f"0{number}" if number.startswith(".") else number.rstrip(".")) * _UNITS[unit])
        for number, unit in _DURATION_PART.findall(text)
    )
    if total > INT64_MAX:
        raise InvalidPipelineRunError(f'{path}: duration "{text}" is out of range')
    return -total if text.startswith("-") else total


def format_duration(nanoseconds: int) -> str:
    """Return a duration in Go's spelling: `1h30m0s`, `1m0s`, `1.5s`, `20ms`, `0s`."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left < SECOND:
        for unit in ("ms", "µs", "ns"):
            if left >= _UNITS[unit]:
                return f"{sign}{_decimal(left, _UNITS[unit])}{unit}"
        return "0s"
    minutes, rest = divmod(left, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return sign + (f"{hours}h{text}" if hours else text)


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".") if rest else str(whole)
