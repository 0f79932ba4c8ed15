"""Sends spans to the collector, in order of their time, until it has accepted them.

A collector that is away gets everything when it comes back. Spans that it refuses while it accepts others are
given up after a few attempts.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from shared.telemetry.otlp import Collector
from shared.telemetry.spans import Span

log = structlog.get_logger(__name__)

PENDING_MAX: Final = 5_000
"""Deliveries that wait for the collector. Beyond it the logs are not read: they keep the rest."""

BATCH_MAX: Final = 50
"""Deliveries in one request."""

ATTEMPTS_MAX: Final = 3
"""Attempts for spans that the collector refuses while it accepts others."""

AWAY_AFTER: Final = 2
"""After so many refusals in a row, the collector counts as away."""

Result = Literal["taken", "refused"]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingSpans:
    """Spans that are delivered together or not at all."""

    name: str
    """For log messages."""

    spans: Callable[[], list[Span]]
    settled_at: float
    """When the spans are complete, by the loop's clock."""

    on_done: Callable[[Result], None]
    attempts: int = 0


class Delivery:
    """The queue of the collector."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._pending: deque[PendingSpans] = deque()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: PendingSpans) -> None:
        """Queue spans. They settle in the order in which they are added."""
        self._pending.append(pending)
        if len(self._pending) >= PENDING_MAX:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Return when fewer than `PENDING_MAX` deliveries wait."""
        await self._has_room.wait()

    def due(self) -> list[PendingSpans]:
        """The first deliveries that have settled. They stay queued until they are done."""
        now = asyncio.get_running_loop().time()
        due: list[PendingSpans] = []
        for pending in self._pending:
            if pending.settled_at > now or len(due) == BATCH_MAX:
                break
            due.append(pending)
        return due

    async def send(self, due: list[PendingSpans]) -> bool:
        """Send deliveries together; if the collector refuses, one by one. False: it accepts none."""
        if await self._accepts([span for pending in due for span in pending.spans()]):
            for pending in due:
                self._finish(pending, "taken")
            return True
        refused: list[PendingSpans] = []
        for pending in due:
            if await self._accepts(pending.spans()):
                self._finish(pending, "taken")
                continue
            refused.append(pending)
            # The next attempt starts with other deliveries, in case that this one is at fault.
            self._pending.remove(pending)
            self._pending.append(pending)
            if refused[-AWAY_AFTER:] == due[:AWAY_AFTER]:
                return False
        if len(refused) == len(due):
            return False
        for pending in refused:
            pending.attempts += 1
            if pending.attempts >= ATTEMPTS_MAX:
                log.error("a trace is given up: the collector refuses it", of=pending.name)
                self._finish(pending, "refused")
        return True

    async def _accepts(self, spans: list[Span]) -> bool:
        return not spans or await self._collector.export(spans)

    def _finish(self, pending: PendingSpans, result: Result) -> None:
        self._pending.remove(pending)
        self._has_room.set()
        pending.on_done(result)
