"""Spans that are known whole: with their ids, from when to when, and what they lie under.

They are made from logs, by whoever reads them, so their ids follow from what they say: made again,
they are the same spans.
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
    """Names one span of one trace."""

    trace_id: int
    span_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span that has ended."""

    context: Context
    parent: Context | None
    service: str
    """`service.name` of whoever did it: not always who tells of it."""

    name: str
    kind: Kind
    start: datetime
    end: datetime
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: tuple[Context, ...] = ()
    error: str | None = None
    """Status Error, with this text."""


def derived_span_id(*parts: object) -> int:
    """A span id that follows from `parts`."""
    return _number(parts, _SPAN_BYTES)


def derived_trace_id(*parts: object) -> int:
    """A trace id that follows from `parts`."""
    return _number(parts, _TRACE_BYTES)


def _number(parts: tuple[object, ...], size: int) -> int:
    text = "\n".join(map(str, parts)).encode()
    # Zero is no id.
    return int.from_bytes(hashlib.blake2b(text, digest_size=size).digest()) or 1
