"""What this process has published, as far as the server has acknowledged it: the end of each log.

Who reads a log notices that it lost what was read. Who only writes it does not: log and view may have lost
the same tail, and nothing says so. So each bus remembers its last acknowledged message of each log, and looks
for it at each connection, when an acknowledgement is lower than one before, and now and then.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

import structlog

from shared.bus import headers as wire
from shared.bus.order.generations import Generations
from shared.bus.port import Entry
from shared.telemetry import probes
from shared.telemetry.metrics import LOST

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 15.0
"""How often to look although nothing happened: somebody may have made a stream anew meanwhile."""


class LastMessage(NamedTuple):
    """A message that a log has, or had."""

    sequence: int
    event_id: str | None
    """`ce-id` of the message. A log that lost its tail gives its sequence to another one."""

    @classmethod
    def of(cls, entry: Entry | None) -> "LastMessage | None":
        """What is remembered of an entry; None for None."""
        return None if entry is None else cls(entry.sequence, entry.headers.get(wire.EVENT_ID))


class Acknowledged:
    """The last acknowledged message of each log that this process writes."""

    def __init__(self, generations: Generations) -> None:
        self._generations = generations
        self._last: dict[str, tuple[LastMessage, int]] = {}
        """Log to its last message of ours, and the generation that the log had then."""

        self._waiting: list[asyncio.Future[str]] = []
        self.doubtful = asyncio.Event()
        """Set when a comparison is due."""

    def observe(
        self, log_name: str, sequence: int, headers: Mapping[str, str], duplicate: bool
    ) -> None:
        """Remember a message that was stored. `duplicate`: it had been stored before."""
        known = self._last.get(log_name)
        if known is None or known[0].sequence < sequence:
            generation = self._generations.current(log_name)
            self._last[log_name] = (LastMessage(sequence, headers.get(wire.EVENT_ID)), generation)
        elif not duplicate and known[0].sequence > sequence:
            self.doubtful.set()

    def last_messages(self) -> dict[str, LastMessage]:
        """What each log must still have."""
        return {log_name: last_message for log_name, (last_message, _) in self._last.items()}

    def lost(self, log_name: str, last_message: LastMessage, *, identity: str) -> None:
        """Tell everybody that a log lacks what it had acknowledged. `identity`: when the log was made."""
        known = self._last.get(log_name)
        if known is None or known[0] != last_message:
            return  # Somebody else has told so meanwhile.
        del self._last[log_name]
        self._generations.observe(log_name, identity=identity, lost=known[1])
        LOST.labels(stream=log_name).inc()
        probes.ACKNOWLEDGED_LOST.fired += 1
        log.warning(
            "the log lacks what it had acknowledged", log=log_name, sequence=last_message.sequence
        )
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(log_name)

    async def until_lost(self) -> str:
        """Return the name of the next log that lacks what it had acknowledged."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            return await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
