"""Jobs of child processes, and their messages: two lengths, then JSON, then bytes as they came."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from services.classifier.evaluation.fair_queue import Source

HEADER: Final = struct.Struct(">II")
"""The lengths of the JSON and of the bytes that follow it."""


class Frame(NamedTuple):
    """One message."""

    head: dict[str, Any]
    body: bytes | list[bytes] = b""
    """A list of parts, which are not copied."""

    def parts(self) -> list[bytes]:
        """Return the parts of the body."""
        return [self.body] if isinstance(self.body, bytes) else self.body

    def whole(self) -> bytes:
        """Return the body."""
        return self.body if isinstance(self.body, bytes) else b"".join(self.body)

    def written(self) -> bytes:
        """Return what goes before the body."""
        head = orjson.dumps(self.head)
        return HEADER.pack(len(head), sum(map(len, self.parts()))) + head


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child must know for a job. It is sent where it differs from what that child was told last."""

    value: Any
    head: Callable[[], dict[str, Any]]


def _no_answer(*question: str) -> Any:
    raise AssertionError(f"nobody answers {question}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a child is to do."""

    source: Source
    frame: Frame
    size: int
    """Bytes, for what one namespace may have waiting."""

    setups: Mapping[str, Setup]
    answer: Callable[..., Any] = _no_answer
    """Answers what the child asks in between."""
