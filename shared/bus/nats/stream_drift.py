"""Compares the streams of a server with their declaration. Changes nothing; `shared.bus.admin.apply` does."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from nats.aio.client import Client

from shared.bus.nats.jetstream_api import STREAM_NOT_FOUND, ApiError, Json, call
from shared.bus.nats.tails.compare import view_end
from shared.bus.port import BusError, DeniedError, NewerFormatError
from shared.bus.streams import VIEW_SUFFIX, Catalogue, load, view_of

if TYPE_CHECKING:  # `sluice doctor` imports this module, and starts in a third of a second.
    from shared.bus.nats.broker import Connection

HOW: Final = "run `sluice bus apply`"
CHECK_AGAIN_SECONDS: Final = 2.0


async def check(
    nc: Client, *, catalogue: Catalogue | None = None, views: Collection[str] | None = None
) -> list[str]:
    """Everything that is not as declared, as sentences; empty: all is well.

    `views`: the logs whose views may be visible into; None: all of them.

    Raises `UnavailableError` where JetStream does not answer.
    """
    problems: list[str] = []
    for name, config in (catalogue or load()).configs().items():
        found = await stream_info(nc, name)
        if found is None:
            problems.append(f"stream {name} is missing: {HOW}")
            continue
        if differences := drift(config, found["config"], replicas=None):
            problems.append(f"stream {name} is not as declared ({differences}): {HOW}")
        if not name.endswith(VIEW_SUFFIX):
            continue
        if views is not None and name.removesuffix(VIEW_SUFFIX) not in views:
            continue
        try:
            ahead = await _ahead(nc, name)
        except DeniedError:
            if views is not None:
                raise
            continue  # Nobody said what this user reads, and this it does not.
        problems += [ahead] if ahead else []
    return problems


async def until_declared(connection: "Connection", *, views: Collection[str] | None) -> None:
    """Return once every stream is there; log what is not as declared. `views`: as for `check`.

    Raises `NewerFormatError` where one of them is committed to a newer format.
    """
    import structlog  # noqa: PLC0415

    log = structlog.get_logger(__name__)
    logged: list[str] = []
    while True:
        try:
            problems = await check(connection.nc, views=views)
        except NewerFormatError:
            raise
        except BusError as error:
            problems = [f"JetStream does not answer: {error}"]
        if problems != logged:
            for problem in problems:
                log.warning("streams are not as declared", problem=problem)
            logged = problems
        # Drift is for the operator to judge; without a stream there is nothing to do.
        if not any("missing" in p or "does not answer" in p for p in problems):
            return
        await asyncio.sleep(CHECK_AGAIN_SECONDS)


def drift(wanted: Json, found: Json, *, replicas: int | None) -> str:
    """What of `found` is not as `wanted`: ``max_age: 0, declared 3600``; empty if nothing."""
    parts: list[str] = []
    for field, value in wanted.items():
        if field == "num_replicas" and replicas is None:
            continue
        actual = found.get(field, type(value)())  # The server omits empty and false values.
        if field == "sources":
            actual = [{"name": source["name"]} for source in actual]
        if actual != value:
            parts.append(f"{field}: {actual}, declared {value}")
    return "; ".join(parts)


async def stream_info(nc: Client, name: str) -> Json | None:
    """Configuration and state of a stream; None where there is none."""
    try:
        return await call(nc, f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise


async def _ahead(nc: Client, view: str) -> str:
    """A view whose last sequence is above that of its log would never copy from it again.

    That is what a power cut may leave behind: the log lost its last second, the view did not.
    """
    log_name = view.removesuffix(VIEW_SUFFIX)
    assert view_of(log_name) == view
    state = await stream_info(nc, log_name)
    if state is None:
        return ""
    _, sequence = await view_end(nc, log_name)
    if sequence <= state["state"]["last_seq"]:
        return ""
    return (
        f"view {view} has sequence {sequence} of {log_name}, which ends at "
        f"{state['state']['last_seq']}: the services that write {log_name} fill it up; "
        "start one of them"
    )
