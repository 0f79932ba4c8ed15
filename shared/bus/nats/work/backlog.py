"""Tells, for metrics, how much of the work of durable consumers is not done."""

import asyncio
from typing import Final

import structlog

from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import ApiError, call
from shared.bus.nats.work.worker import Registration
from shared.bus.port import UnavailableError
from shared.bus.streams import view_of
from shared.telemetry.metrics import BACKLOG

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0


async def follow_backlog(connection: Connection, registrations: list[Registration]) -> None:
    """Poll the server until cancelled. Without an answer, the last known values stay."""
    while True:
        for registration in registrations:
            durable = registration.durable
            try:
                await connection.wait_ready()
                info = await call(
                    connection.nc, f"CONSUMER.INFO.{view_of(registration.stream)}.{durable}"
                )
            except (UnavailableError, ApiError) as error:
                log.debug("cannot read the backlog", durable=durable, error=str(error))
                continue
            BACKLOG.labels(durable=durable, state="waiting").set(info["num_pending"])
            BACKLOG.labels(durable=durable, state="taken").set(info["num_ack_pending"])
        await asyncio.sleep(LOOK_SECONDS)
