"""Fills up a log that is behind its view, so that the view goes on.

Each lost sequence gets the message back that the view has of it. Where the view has none any more, because
a later one of the subject took its place, it gets a copy of a later message: that one follows at its own
sequence, so that the last message of each subject is the same in log and view. The view has taken in all
of these sequences and looks at none of them. Each message is fenced by the one before: any number of
processes may fill at the same time. What only another service may write is left to it for a while.
"""

import asyncio
import base64
import json
from collections.abc import Collection
from typing import Final

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus import headers as wire
from shared.bus.filters import covers, overlap
from shared.bus.nats.broker import Connection
from shared.bus.nats.cancellation import cancellable
from shared.bus.nats.jetstream_api import (
    MESSAGE_NOT_FOUND,
    TIMEOUT_SECONDS,
    WRONG_LAST_SEQUENCE,
    ApiError,
    Json,
    call,
)
from shared.bus.nats.tails.compare import led_info, view_end
from shared.bus.port import DeniedError, UnavailableError
from shared.bus.streams import load, view_of
from shared.contracts.subjects import TERM_SUBJECT
from shared.telemetry import probes
from shared.telemetry.metrics import REFILLED

log = structlog.get_logger(__name__)

STEP: Final = 256
"""Messages of a view that are looked at in one step backwards."""

PAUSE_SECONDS: Final = 1.0
OWNER_SECONDS: Final = 15.0
"""How long a lost message waits for a service that may write it. Then another message takes its sequence,
else nobody could publish, and it is in the view alone: who reads the log misses it."""

_KEPT: Final = wire.MESSAGE_ID.lower()


async def fill_up_logs(connection: Connection, writes: Collection[str] | None) -> None:
    """Return once every log that we write is as far as its view, or this connection is lost.

    `writes`: filters of our subjects; None: all.
    """
    epoch = connection.epoch
    logs = [
        name
        for name, each in load().logs.items()
        if writes is None or any(overlap(mine, one) for mine in writes for one in each.subjects)
    ]
    while logs and connection.epoch == epoch:
        try:
            await refill(connection.nc, logs[0], writes=writes)
            del logs[0]
        except DeniedError as error:  # The server has the permissions of an earlier release.
            log.error("may not compare a log with its view", log=logs.pop(0), error=str(error))
        except UnavailableError as error:
            log.warning(
                "cannot compare a log with its view; nothing is published yet", error=str(error)
            )
            await asyncio.sleep(PAUSE_SECONDS)
        except ApiError as error:
            log.error("cannot compare a log with its view", log=logs.pop(0), error=str(error))


async def refill(nc: Client, log_name: str, *, writes: Collection[str] | None = None) -> None:
    """Return once the log is as far as its view. `writes`: filters of the own subjects; None: all.

    Raises `UnavailableError` if nobody answers, or if we have nothing to fill it with.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + OWNER_SECONDS
    while True:
        view_last, taken = await view_end(nc, log_name)
        last = int((await led_info(nc, log_name))["state"]["last_seq"])
        if taken <= last:
            return
        log.warning("filling up a log that lost its tail", log=log_name, ends_at=last, view=taken)
        lost = await _lost(nc, log_name, view_last, last)
        ours = {seq: one for seq, one in lost.items() if _is_ours(one["subject"], writes)}
        others = lost.keys() - ours.keys()
        if not ours:
            ours = await _earlier(nc, log_name, writes)
        if not ours:
            raise UnavailableError(
                f"{log_name} lost messages up to {taken}, none of them ours: waiting for their writer"
            )
        end = taken + 1
        if others and loop.time() < until:
            end = min(others)
        if end == last + 1:  # The next one is somebody else's.
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        for sequence in sorted(others & set(range(last + 1, end))):
            subject = lost[sequence]["subject"]
            log.error("a lost message is in the view alone", log=log_name, subject=subject)
        await _publish(nc, log_name, ours, range(last + 1, end))


async def _lost(nc: Client, log_name: str, view_last: int, last: int) -> dict[int, Json]:
    """What the view has of the log behind `last`, by its sequence there."""
    try:
        return await _taken_behind(nc, view_of(log_name), view_last, last)
    except ApiError as error:  # A spoke may not read what is not about it.
        log.info("cannot fill up a log", log=log_name, error=str(error))
        return {}


async def _earlier(nc: Client, log_name: str, writes: Collection[str] | None) -> dict[int, Json]:
    """An earlier message of ours, which fills a sequence that no other writer fills."""
    try:
        for mine in writes or ():
            if (stored := await _next(nc, view_of(log_name), 1, mine)) is not None:
                return {wire.log_sequence(stored): stored}
    except ApiError as error:  # As above.
        log.info("cannot fill up a log", log=log_name, error=str(error))
    return {}


def _is_ours(subject: str, writes: Collection[str] | None) -> bool:
    return writes is None or any(covers(mine, subject) for mine in writes)


async def _taken_behind(nc: Client, view: str, view_last: int, last: int) -> dict[int, Json]:
    """What the view has of the log behind sequence `last`, by the sequence in the log."""
    start, step = view_last, STEP
    while start > 1 and (first := await _next(nc, view, start)) is not None:
        if wire.log_sequence(first) <= last:
            break
        start, step = max(1, start - step), step * 2
    found: dict[int, Json] = {}
    at = start
    while (stored := await _next(nc, view, at)) is not None:
        at = int(stored["seq"]) + 1
        if (sequence := wire.log_sequence(stored)) > last:
            found[sequence] = stored
    return found


async def _next(nc: Client, view: str, sequence: int, subject: str = ">") -> Json | None:
    try:
        which = {"seq": sequence, "next_by_subj": subject}
        answer = await call(nc, f"STREAM.MSG.GET.{view}", which)
    except ApiError as error:
        if error.code == MESSAGE_NOT_FOUND:
            return None
        raise
    message: Json = answer["message"]
    return message


async def _publish(nc: Client, log_name: str, ours: dict[int, Json], sequences: range) -> None:
    """Publish one message for each sequence, until somebody else has written."""
    for sequence in sequences:
        message = ours.get(sequence) or _stand_in(ours, sequence)
        if not await _publish_at(nc, message, sequence):
            return
        REFILLED.labels(stream=log_name).inc()
        probes.LOG_REFILLED.fired += 1


def _stand_in(ours: dict[int, Json], sequence: int) -> Json:
    """The next message behind a sequence that is gone; the last one before, if none of ours is behind.

    A `Term` comes last: earlier than at its own place it would make decisions void that are not.
    """
    order = sorted(ours, key=lambda at: (at < sequence, abs(at - sequence)))
    rest = [at for at in order if ours[at]["subject"] != TERM_SUBJECT]
    return ours[(rest or order)[0]]


async def _publish_at(nc: Client, stored: Json, sequence: int) -> bool:
    """Publish a stored message again; return False if the log does not end before `sequence` any more."""
    found = wire.stored_headers(stored)
    kept = {
        name: value
        for name, value in found.items()
        if not name.lower().startswith("nats-") or name.lower() == _KEPT
    }
    # The log may remember the id of the message that stands in, and take the copy for a duplicate.
    kept[wire.MESSAGE_ID] = f"{found.get(wire.MESSAGE_ID, '')}:refill:{sequence}"
    kept[wire.EXPECT_LAST] = str(sequence - 1)
    data = base64.b64decode(stored.get("data", ""))
    try:
        with cancellable():
            reply = await nc.request(stored["subject"], data, timeout=TIMEOUT_SECONDS, headers=kept)
    except NatsError as error:
        raise UnavailableError(f"{stored['subject']}: {error}") from error
    problem = json.loads(reply.data).get("error")
    if problem is None:
        return True
    code = problem.get("err_code", 0)
    if code == WRONG_LAST_SEQUENCE:
        return False
    raise ApiError(stored["subject"], code, problem.get("description", "refused"))
