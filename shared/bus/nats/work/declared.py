"""How a durable consumer is declared, and how it is compared with the one that there is.

`sluice bus apply` makes those of the hub, the gateway those of spokes: who may make a consumer can have it
push where its user may not send (ADR 116). On an open server a service makes its own.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog
from nats.aio.client import Client

from shared.bus.filters import prune
from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import CONSUMER_NOT_FOUND, ApiError, Json, call
from shared.bus.port import DeniedError, UnavailableError

log = structlog.get_logger(__name__)

ACK_WAIT_SECONDS: Final = 15.0
"""After this the server delivers an unacknowledged entry again. What is on its way to a process that is
killed is missed so long. With less, who is slow would be given too much twice (`BATCH`)."""

ACK_PENDING_MAX: Final = 100_000
"""Entries that were put off count as pending: a small number would let them block the rest."""

PAUSE_SECONDS: Final = 1.0
DENIED_SECONDS: Final = 10.0
"""Until it is looked again whether an operator has made what this user may not make."""


def durable_config(
    name: str, filters: tuple[str, ...], *, ack_wait_seconds: float = ACK_WAIT_SECONDS
) -> Json:
    """The configuration of a durable, in JetStream's words."""
    return {
        "name": name,
        "durable_name": name,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_seconds * 1e9),
        "max_deliver": -1,
        "max_ack_pending": ACK_PENDING_MAX,
        "replay_policy": "instant",
        "filter_subjects": list(prune(filters)),
    }


async def found_durable(nc: Client, view: str, name: str) -> Json | None:
    """The configuration that a durable has; None: there is none. Raises `ApiError`, `UnavailableError`."""
    try:
        found: Json = (await call(nc, f"CONSUMER.INFO.{view}.{name}"))["config"]
    except ApiError as error:
        if error.code == CONSUMER_NOT_FOUND:
            return None
        raise
    return found


def differs(config: Mapping[str, Any], found: Mapping[str, Any] | None) -> bool:
    """Whether there is no such consumer, or one that is not as declared."""
    return found is None or any(
        _value(found, key) != _value(config, key)
        for key in ("ack_wait", "max_ack_pending", "filters")
    )


async def make_durable(nc: Client, view: str, config: Json) -> None:
    """Make it, or bring it up to date. Raises `ApiError`, `UnavailableError`."""
    body = {"stream_name": view, "config": config, "action": ""}
    await call(nc, f"CONSUMER.CREATE.{view}.{config['name']}", body)


async def until_declared(connection: Connection, view: str, config: Json) -> None:
    """Return once the durable is as declared; make it where this user may."""
    name, has_warned = config["name"], False
    while True:
        nc, pause, found = connection.nc, PAUSE_SECONDS, None
        try:
            found = await found_durable(nc, view, name)
            if differs(config, found):
                await make_durable(nc, view, config)
        except DeniedError:
            if found is not None and not differs(
                {**config, "ack_wait": found.get("ack_wait")}, found
            ):
                # Another release has its own, in a rolling upgrade: it costs patience, and nothing else.
                log.warning(
                    "a durable has the ack wait of another release", stream=view, durable=name
                )
                return
            pause = DENIED_SECONDS
            if not has_warned:
                has_warned = True
                log.error(
                    "a durable consumer is missing, or not as declared: run `sluice bus apply`",
                    stream=view,
                    durable=name,
                )
        except (UnavailableError, ApiError) as error:
            log.warning("cannot make the durable; trying again", durable=name, error=str(error))
        else:
            return
        await asyncio.sleep(pause)


def _value(config: Mapping[str, Any], key: str) -> Any:
    if key != "filters":
        return config.get(key)
    # The server has a single one in a field of its own.
    return sorted(config.get("filter_subjects") or [config.get("filter_subject") or ""])
