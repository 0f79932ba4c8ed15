"""Compares a log with its view, and with what was read of it before."""

import base64
from typing import Any

from nats.aio.client import Client

from shared.bus import headers as wire
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, ApiError, call
from shared.bus.order.acknowledged import Witness
from shared.bus.port import UnavailableError
from shared.bus.streams import view_of

Json = dict[str, Any]


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
    """Return `STREAM.INFO` of a log. Raises `UnavailableError` while its view is ahead of it.

    Until a writer has filled up the log (`refill`), nothing that is compared with its end means anything.
    """
    _, taken = await view_end(nc, log_name)
    info = await call(nc, f"STREAM.INFO.{log_name}")
    last = int(info["state"]["last_seq"])
    if taken > last:
        raise UnavailableError(
            f"{log_name} ends at {last} and its view has {taken}: waiting for a writer to fill it up"
        )
    return info


async def still_has(nc: Client, log_name: str, info: Json, seen: Witness | None) -> bool:
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
    raw = base64.b64decode(answer["message"].get("hdrs", "")).decode("utf-8", "replace")
    # Not the id of JetStream: a message that was filled in again has another one.
    return wire.parse(raw).get(wire.EVENT_ID) == seen.event_id
