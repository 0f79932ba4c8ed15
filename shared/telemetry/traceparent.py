"""The trace context of a workload: made once, kept as an annotation, and carried by message headers.

Each is one text, as W3C's Trace Context has it: https://www.w3.org/TR/trace-context/#traceparent-header
"""

from datetime import datetime
from random import Random
from typing import Final

import orjson

from shared.contracts.messages.base import TRACEPARENT

TOGETHER_SECONDS: Final = 60
"""An API server may call a webhook twice for one request, but not over a longer time."""

_CHANCE_BITS: Final = 32
_CHANCE: Final = 2**_CHANCE_BITS - 1
_VERSION: Final = "00"
_SAMPLED: Final = "01"
_SAMPLED_FLAG: Final = 1


def new_traceparent(random: Random, now: datetime) -> str:
    """A W3C trace context for a new workload. The span id contains the time."""
    trace_id, chance = random.getrandbits(128) or 1, random.getrandbits(64)
    span_id = int(now.timestamp()) << _CHANCE_BITS | chance & _CHANCE
    return f"{_VERSION}-{trace_id:032x}-{span_id:016x}-{_SAMPLED}"


def made_together(one: str, other: str) -> bool:
    """Whether two contexts of `new_traceparent`, or continued from them, were made at about the same time.

    True if one of them is no valid context.
    """
    ids = parse_traceparent(one), parse_traceparent(other)
    if ids[0] is None or ids[1] is None:
        return True
    seconds = (ids[0][1] >> _CHANCE_BITS) - (ids[1][1] >> _CHANCE_BITS)
    return abs(seconds) <= TOGETHER_SECONDS


def made_near(value: str | None, at: datetime) -> bool:
    """Whether a context of `new_traceparent`, or continued from one, was made at about this time.

    False for an invalid context.
    """
    ids = parse_traceparent(value)
    return ids is not None and abs((ids[1] >> _CHANCE_BITS) - at.timestamp()) <= TOGETHER_SECONDS


def parse_traceparent(value: str | None) -> tuple[int, int] | None:
    """Trace id and span id; None for an invalid context, which is never an error."""
    parts = (value or "").split("-")
    if [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    return (trace_id, span_id) if trace_id and span_id else None


def is_sampled(value: str | None) -> bool:
    """Whether spans of this trace are wanted: the process that began it decided that."""
    flags = (value or "").rpartition("-")[2]
    try:
        return bool(int(flags, 16) & _SAMPLED_FLAG)
    except ValueError:
        return False


def continued(traceparent: str, parent: str | None) -> str:
    """`traceparent`, a new context, as part of the trace of `parent`.

    Unchanged if `parent` is invalid.
    """
    if parse_traceparent(parent) is None or parent is None:
        return traceparent
    trace_id, flags = parent.split("-")[1], parent.split("-")[3]
    return f"{_VERSION}-{trace_id}-{traceparent.split('-')[2]}-{flags}"


def carrier_of(traceparent: str) -> str:
    """A trace context as annotation for OpenTelemetry's propagators: JSON."""
    return f'{{"traceparent":"{traceparent}"}}'


def carried(text: str | None) -> str | None:
    """The trace context in such an annotation; None if it contains no valid one."""
    try:
        carrier = orjson.loads(text or "null")
    except ValueError:
        return None
    found = carrier.get(TRACEPARENT) if isinstance(carrier, dict) else None
    return found if isinstance(found, str) and parse_traceparent(found) is not None else None
