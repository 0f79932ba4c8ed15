"""Looks whether each log still has what it had acknowledged to this process."""

import asyncio
from contextlib import suppress

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import STREAM_NOT_FOUND, ApiError, call
from shared.bus.nats.tails.compare import led_info, still_has
from shared.bus.order.acknowledged import CHECK_SECONDS, Acknowledged
from shared.bus.port import BusError, NewerFormatError, UnavailableError
from shared.contracts.messages.admissions import Term

log = structlog.get_logger(__name__)


async def look_for_lost(nc: Client, acknowledged: Acknowledged) -> None:
    """Compare each log with the last message that it had acknowledged, and tell if it is not there."""
    acknowledged.doubtful.clear()
    for log_name, last_message in acknowledged.last_messages().items():
        try:
            info = await led_info(nc, log_name)
            if not await still_has(nc, log_name, info, last_message):
                acknowledged.lost(log_name, last_message, identity=info["created"])
        except ApiError as error:
            if error.code == STREAM_NOT_FOUND:  # Looked at again, until somebody has made it anew.
                acknowledged.doubtful.set()
            log.info("cannot compare a log with what it acknowledged", error=str(error))
        except (BusError, NatsError) as error:
            log.info("cannot compare a log with what it acknowledged", error=str(error))


async def look_at_format(nc: Client) -> None:
    """Look to which format the logs are committed: at the one that is committed first.

    Raises `NewerFormatError`. A log that does not answer now is asked again later.
    """
    try:
        await call(nc, f"STREAM.INFO.{Term.stream}")
    except (ApiError, UnavailableError) as error:
        log.info("cannot look at the format of the logs", error=str(error))


async def keep_looking(connection: Connection, acknowledged: Acknowledged) -> None:
    """Look whenever an acknowledgement is doubtful, and now and then, until cancelled."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await acknowledged.doubtful.wait()
        await connection.wait_ready()
        with suppress(NewerFormatError):  # It is not ready any more, and everybody was told.
            await look_at_format(connection.nc)
        await look_for_lost(connection.nc, acknowledged)
        await asyncio.sleep(1.0)
