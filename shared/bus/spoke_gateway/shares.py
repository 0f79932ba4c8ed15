"""A spoke's share of a view: what spokes add never pushes out what others said last.

A view drops the oldest last messages when it is full, and a reader that begins then does not know of them.
While more than half of a view is in use, a spoke may fill an equal share of half of it. Above that, a message
is taken only where it replaces one of its subject that is as large: the end of a job always has room.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, ApiError, call
from shared.bus.spoke_gateway.budget import share_of
from shared.bus.streams import view_of

LOOKS: Final = 64
"""A spoke looks at a view again when it has written one of so many parts of it."""

COUNT_SECONDS: Final = 30.0
"""What a spoke has in a view is counted again after this at the earliest: that reads all its headers."""


class ViewShare:
    """What one spoke may add to one view."""

    def __init__(
        self, bus: NatsBus, log_name: str, pattern: str, *, spokes: Callable[[], int]
    ) -> None:
        """`pattern`: its subjects. `spokes`: how many spokes there are."""
        self._bus = bus
        self._log = log_name
        self._pattern = pattern
        self._spokes = spokes
        self._single = not any(token in {"*", ">"} for token in pattern.split("."))
        self._view_bytes = 0
        self._crowded = False
        """Whether more than half of the view was in use at the last look."""

        self._unlooked = 0
        self._held: int | None = None
        """At most so much is the spoke's; None: not counted yet."""

        self._counted_at = 0.0

    async def refusal(self, subject: str, size: int, now: float) -> str | None:
        """Why a message may not be added; None: it may. Raises `BusError` where nobody answers."""
        if self._single:
            return None
        if not self._view_bytes or self._unlooked > self._view_bytes // LOOKS:
            await self._look()
        if self._crowded and not await self._fits(size, now):
            stored = await self._stored_bytes(subject)
            if stored < size:
                share = share_of(self._view_bytes, self._spokes()) >> 20
                return f"fills its share of {view_of(self._log)}, {share} MiB, and the view is half full"
        elif self._held is not None:
            self._held += size
        self._unlooked += size
        return None

    async def _look(self) -> None:
        info = await call(self._bus.connection.nc, f"STREAM.INFO.{view_of(self._log)}")
        self._view_bytes = int(info["config"]["max_bytes"])
        self._crowded = int(info["state"]["bytes"]) > self._view_bytes // 2 > 0
        self._unlooked = 0

    async def _fits(self, size: int, now: float) -> bool:
        """Whether it stays below the share. Every message counts as one more, until all are counted again."""
        share = share_of(self._view_bytes, self._spokes())
        too_much = self._held is None or self._held + size > share
        if too_much and (self._held is None or now - self._counted_at > COUNT_SECONDS):
            self._held = await self._bus.stored_bytes(self._log, self._pattern)
            self._counted_at = now
        assert self._held is not None
        if self._held + size > share:
            return False
        self._held += size
        return True

    async def _stored_bytes(self, subject: str) -> int:
        """Size of the last message of a subject in the view; 0 if it has none."""
        nc = self._bus.connection.nc
        try:
            answer = await call(
                nc, f"STREAM.MSG.GET.{view_of(self._log)}", {"last_by_subj": subject}
            )
        except ApiError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return 0
            raise
        stored: dict[str, Any] = answer["message"]
        body, head = (base64.b64decode(stored.get(part, "")) for part in ("data", "hdrs"))
        return len(subject) + len(body) + len(head)
