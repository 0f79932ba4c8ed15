"""What spokes say of their copies' statuses, kept as compressed JSON.

A status may have any contents that its spoke likes. Decoded, JSON takes some twenty times as much memory
as on the wire, so that a few large statuses would fill the process that also writes for all spokes.
"""

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

import structlog

from shared.contracts.messages.base import Message
from shared.contracts.refs import WorkloadRef

log = structlog.get_logger(__name__)

SPOKE_BYTES_MAX: Final = 32 << 20
"""Of one spoke. Compressed statuses of ours have one or two KiB: it is enough for 16,000 copies."""

_LEVEL: Final = 1
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRecord(Generic[M]):
    """A message with a status, and its sequence in the log."""

    kind: type[M]
    packed: bytes
    sequence: int

    @classmethod
    def of(cls, message: M, sequence: int) -> Self:
        """Pack a message."""
        return cls(
            kind=type(message), packed=zlib.compress(message.encode(), _LEVEL), sequence=sequence
        )

    @property
    def message(self) -> M:
        """The message, decoded anew each time."""
        return self.kind.decode(zlib.decompress(self.packed))


class SpokeStatuses:
    """The statuses of one sort (of copies, or of reports), by spoke and workload of the hub."""

    def __init__(self, most: int = SPOKE_BYTES_MAX) -> None:
        self._most = most
        self._packed: dict[tuple[str, WorkloadRef], bytes] = {}
        self._bytes: Counter[str] = Counter()
        self._full: set[str] = set()
        """Spokes of which the log says that they show too much."""

    def put(self, spoke: str, workload: WorkloadRef, status: Mapping[str, Any] | None) -> None:
        """Keep a status in the place of the last one, if the spoke has room; None: there is none."""
        before = self._packed.pop((spoke, workload), b"")
        self._bytes[spoke] -= len(before)
        if status is None:
            return
        packed = zlib.compress(json.dumps(status).encode(), _LEVEL)
        if self._bytes[spoke] + len(packed) > self._most:
            if spoke not in self._full:
                self._full.add(spoke)
                log.error("a spoke shows more statuses than are kept: its jobs here get none",
                          spoke=spoke, workload=workload.path, bytes=self._most)  # fmt: skip
            return
        self._packed[spoke, workload] = packed
        self._bytes[spoke] += len(packed)

    def of(self, spoke: str, workload: WorkloadRef) -> dict[str, Any] | None:
        """The last status; None if there is none, or none was kept."""
        packed = self._packed.get((spoke, workload))
        if packed is None:
            return None
        status: dict[str, Any] = json.loads(zlib.decompress(packed))
        return status

    def has(self, spoke: str, workload: WorkloadRef) -> bool:
        """Whether there is a status."""
        return (spoke, workload) in self._packed

    def bytes_of(self, spoke: str) -> int:
        """How many bytes are kept of one spoke."""
        return self._bytes[spoke]
