"""Compares a log with its view, and with what was read of it before."""

from typing import TYPE_CHECKING, Final

from nats.aio.client import Client

from shared.bus import headers as wire
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, TIMEOUT_SECONDS, ApiError, Json, call
from shared.bus.port import UnavailableError
from shared.bus.streams import view_of

if TYPE_CHECKING:
    from shared.bus.order.acknowledged import LastMessage

HEARD_SECONDS: Final = 2.0
"""Longest time since the server that answers heard from the others. They elect another leader three seconds
after they heard from it, or later (nats-server 2.15: heartbeats every second, elections after four)."""


async def led_info(nc: Client, name: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Json:
    """Return `STREAM.INFO` of a stream. Raises `UnavailableError` if who answers may lead it no more.

    A server that is cut off from the others answers for some ten seconds with what it had.
    """
    info = await call(nc, f"STREAM.INFO.{name}", timeout_seconds=timeout_seconds)
    if not is_led(info):
        raise UnavailableError(f"{name}: the server that answers has not heard from the others")
    return info


def is_led(info: Json) -> bool:
    """Whether the server that answered has heard from so many others that nobody else leads the stream."""
    others = (info.get("cluster") or {}).get("replicas") or []
    heard = [
        one
        for one in others
        if not one.get("offline") and int(one.get("active", 0)) < HEARD_SECONDS * 1e9
    ]
    return len(heard) >= (len(others) + 1) // 2


async def view_end(nc: Client, log_name: str) -> tuple[int, int]:
    """Return the view's last sequence, and the sequence of the log up to which it has taken in messages.

    The last message of a view is never purged, so it tells how far the view is. (0, 0) if it is empty.
    """
    try:
        answer = await call(nc, f"STREAM.MSG.GET.{view_of(log_name)}", {"last_by_subj": ">"})
    except ApiError as error:
        if error.code == MESSAGE_NOT_FOUND:
            return 0, 0
        raise
    return int(answer["message"]["seq"]), wire.log_sequence(answer["message"])


async def whole_log(nc: Client, log_name: str) -> Json:
    """Return `led_info` of a log. Raises `UnavailableError` while its view is ahead of it.

    Until a writer has filled up the log (`refill`), nothing that is compared with its end means anything.
    """
    _, taken = await view_end(nc, log_name)
    info = await led_info(nc, log_name)
    last = int(info["state"]["last_seq"])
    if taken > last:
        raise UnavailableError(
            f"{log_name} ends at {last} and its view has {taken}: waiting for a writer to fill it up"
        )
    return info


async def still_has(nc: Client, log_name: str, info: Json, seen: "LastMessage | None") -> bool:
    """Whether the log still has a message that it had. True also if that is too old to be there.

    A log that lost its tail gives the same sequences to other messages.
    """
    if seen is None or seen.sequence < int(info["state"]["first_seq"]):
        return True
    if seen.sequence > int(info["state"]["last_seq"]):
        return False
    try:
        answer = await call(nc, f"STREAM.MSG.GET.{log_name}", {"seq": seen.sequence})
    except ApiError as error:
        return error.code == MESSAGE_NOT_FOUND  # Deleted by hand. A gateway refuses another's.
    # Not the id of JetStream: a message that was filled in again has another one.
    return wire.stored_headers(answer["message"]).get(wire.EVENT_ID) == seen.event_id
