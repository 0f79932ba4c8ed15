"""Publishing behind a fence: a message is refused if its subject has one that the writer has not read."""

from shared.bus.port import Bus, FencedError
from shared.contracts.messages.base import Message
from shared.telemetry import probes


async def publish_fenced(bus: Bus, message: Message, *, known: int) -> int:
    """Publish `message` and return its sequence. Raises `FencedError` if another replica has written.

    `known` is the last sequence of the message's subject that the caller has read, 0 for none.
    """
    # The fence compares with the log, which may have dropped a message that the view still has.
    latest = await bus.latest(message.stream, message.subject)
    if latest is not None and latest.sequence > known:
        probes.FENCE_REFUSED.fired += 1
        raise FencedError(f"{message.subject}: another replica has written")
    return await bus.publish(message, expect_subject=latest.sequence if latest is not None else 0)
