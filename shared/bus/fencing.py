"""What the only writer of some subjects does: it publishes behind a fence, and deletes what has ended.

A message is refused if its subject has one that the writer has not read.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

import structlog

from shared.bus.port import Bus, BusError, FencedError
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.telemetry import probes
from shared.telemetry.log_context import about

log = structlog.get_logger(__name__)


class Fence:
    """What one writer has read of its log: it publishes only where nobody else has written since."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._read_up_to = 0

    def mark_read(self, sequence: int) -> None:
        """Record that all messages up to a sequence were read, or that their ends were.

        The log still has what has left the view: without this, it would look like somebody else's.
        """
        self._read_up_to = max(self._read_up_to, sequence)

    async def publish(self, message: Message, *, known: int) -> int:
        """Publish `message`; return its sequence. Raises `FencedError` if another replica has written.

        `known` is the last sequence of the message's subject that the caller has read, 0 for none.
        """
        # The fence compares with the log, which may have dropped a message that the view still has.
        latest = await self._bus.latest(message.stream, message.subject)
        if latest is not None and latest.sequence > max(known, self._read_up_to):
            probes.FENCE_REFUSED.fired += 1
            raise FencedError(f"{message.subject}: another replica has written")
        expected = latest.sequence if latest is not None else 0
        return await self._bus.publish(message, expect_subject=expected)

    async def publish_check(self, check: CheckState, *, known: int) -> int:
        """Publish an admission check's answer and log it; return its sequence. Raises as `publish`."""
        with about(check.ref.path, check.traceparent):
            sequence = await self.publish(check, known=known)
            log.info(
                "an admission check has another state",
                check=check.check,
                state=check.state,
                message=check.message,
            )
        return sequence


class Ended(Protocol):
    """The last message that a writer knows of a subject."""

    @property
    def sequence(self) -> int:
        """Its sequence in the log."""


async def swept(bus: Bus, stream: str, ended: Mapping[str, Ended]) -> Collection[str]:
    """Delete subjects from the view of `stream`; return those of which it has nothing left.

    The others have to be named again: a durable has not passed them, one is the view's last message, or
    the bus does not answer. So a writer forgets only what is returned, and after a restart it reads from
    the view what is left.
    """
    if not ended:
        return ()
    try:
        return await bus.sweep(stream, {subject: one.sequence for subject, one in ended.items()})
    except BusError as error:
        log.warning("what has ended stays in the view", stream=stream, error=str(error))
        return ()
