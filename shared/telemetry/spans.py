"""Finished spans with their ids, times and parents.

Services build them from logs. The ids follow from the contents, so building a span twice gives the same
span.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

Value = str | int | float | bool

_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class Kind(StrEnum):
    """OpenTelemetry's span kinds."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    PRODUCER = "PRODUCER"
    CONSUMER = "CONSUMER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Identifies one span of one trace."""

    trace_id: int
    span_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One finished span."""

    context: Context
    parent: Context | None
    service: str
    """`service.name` of the process that did the work; not always the one that sends the span."""

    name: str
    kind: Kind
    start: datetime
    end: datetime
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: tuple[Context, ...] = ()
    error: str | None = None
    """Error message; sets the span's status to Error."""


def derived_span_id(*parts: object) -> int:
    """A span id that is a function of `parts`."""
    return _number(parts, _SPAN_BYTES)


def derived_trace_id(*parts: object) -> int:
    """A trace id that is a function of `parts`."""
    return _number(parts, _TRACE_BYTES)


def _number(parts: tuple[object, ...], size: int) -> int:
    text = "\n".join(map(str, parts)).encode()
    # Zero is not a valid id.
    return int.from_bytes(hashlib.blake2b(text, digest_size=size).digest()) or 1


def nanoseconds(at: datetime) -> int:
    """The time of a span, in nanoseconds since 1970."""
    return int(at.timestamp() * 1_000_000) * 1_000
