"""Watches how full the logs are that take a message before a workload's quota is free.

A full log would refuse what gives quota back, which holds up every workload. So nothing is admitted while a
log is as full as `FULL`, nor while its level is unknown: what was read too long ago may be wrong. What
enters is the end of each log, as the server tells it; what leaves is why there is no room for more work.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

import structlog

from services.quota.metrics.service import LOG_FULLNESS
from shared.bus.port import ROOM_FOR_ENDS, Bus, BusError, LogEnd
from shared.contracts.subjects import Stream
from shared.telemetry import probes

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 5.0

KNOWN_SECONDS: Final = 12.0
"""Age from which on an answer counts no more: two looks in a row failed."""

NEEDED_BY_ENDS: Final = (Stream.ADMISSIONS, Stream.WORKLOADS, Stream.OUTCOMES)

FULL: Final = ROOM_FOR_ENDS
"""Fullness of such a log from which on nobody is admitted: the rest is for workloads that end."""


class LogRoom:
    """What one term knows of the room in the logs."""

    def __init__(
        self,
        *,
        bus: Bus,
        last_stored: Callable[[], int],
        check_end: Callable[[LogEnd, int], None],
        on_change: Callable[[], None],
    ) -> None:
        """`check_end` gets the end of `ADMISSIONS` and `last_stored` before the question; it may raise.

        `on_change` is called when admission stops, or goes on.
        """
        self._bus = bus
        self._last_stored = last_stored
        self._check_end = check_end
        self._on_change = on_change
        self._fullness: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        """Log to the loop time of the last question that was answered."""

        self._stopped = False
        self._refused = False
        """Whether `why_none` gave a reason since admission last went on. Readings expire with time, too."""

    def fullness(self, stream: str) -> float:
        """How full a log was when the bus said so last; 0 before."""
        return self._fullness.get(stream, 0.0)

    def why_none(self) -> str:
        """Why there is no room for more work, in words; empty: there is room."""
        why = self._why_none()
        self._refused = self._refused or bool(why)
        return why

    def _why_none(self) -> str:
        full = [
            f"{stream} is {used:.0%} full"
            for stream in NEEDED_BY_ENDS
            if (used := self.fullness(stream)) >= FULL
        ]
        if full:
            return f"{' and '.join(full)}; the rest is kept for work that ends"
        oldest = asyncio.get_running_loop().time() - KNOWN_SECONDS
        unknown = [
            stream for stream in NEEDED_BY_ENDS if self._asked_at.get(stream, -math.inf) < oldest
        ]
        return f"NATS does not say how full {' and '.join(unknown)} is" if unknown else ""

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def look(self) -> None:
        """Ask how full the logs are. Raises what `check_end` raises."""
        asked, stored = asyncio.get_running_loop().time(), self._last_stored()
        ends = await asyncio.gather(*(self._end_of(stream) for stream in NEEDED_BY_ENDS))
        for stream, end in zip(NEEDED_BY_ENDS, ends, strict=True):
            if end is not None:
                self._fullness[stream], self._asked_at[stream] = end.fullness, asked
                LOG_FULLNESS.labels(stream=stream).set(end.fullness)
        why = self._why_none()
        goes_on = self._refused and not why
        if goes_on:
            self._refused = False
        if bool(why) != self._stopped:
            self._stopped = bool(why)
            log.error(
                "the logs have no room for decisions"
                if why
                else "the logs have room for decisions again",
                problem=why,
            )
            probes.ADMISSION_STOPPED.fired += bool(why)
            self._on_change()
        elif goes_on:
            self._on_change()
        if (decisions := ends[0]) is not None:
            self._check_end(decisions, stored)

    async def _end_of(self, stream: str) -> LogEnd | None:
        """The end of a log; None: the bus does not say."""
        try:
            return await self._bus.log_end(stream)
        except BusError as error:
            log.debug("fullness of a log is unknown", stream=stream, error=str(error))
            return None
