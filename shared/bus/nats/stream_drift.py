"""Compares the streams of a server with their declaration. Changes nothing; `shared.bus.admin.apply` does."""

from collections.abc import Collection
from typing import Any, Final

from nats.aio.client import Client

from shared.bus.headers import log_sequence
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, STREAM_NOT_FOUND, ApiError, call
from shared.bus.streams import VIEW_SUFFIX, Catalogue, load, view_of

Json = dict[str, Any]

HOW: Final = "run `sluice bus apply`"


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
        visible = views is None or name.removesuffix(VIEW_SUFFIX) in views
        if visible and (ahead := await _ahead(nc, name)):
            problems.append(ahead)
    return problems


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
    log = view.removesuffix(VIEW_SUFFIX)
    assert view_of(log) == view
    state = await stream_info(nc, log)
    if state is None:
        return ""
    try:
        last = await call(nc, f"STREAM.MSG.GET.{view}", {"last_by_subj": ">"})
    except ApiError as error:
        if error.code == MESSAGE_NOT_FOUND:
            return ""
        raise
    sequence = log_sequence(last["message"])
    if sequence <= state["state"]["last_seq"]:
        return ""
    return (
        f"view {view} has sequence {sequence} of {log}, which ends at "
        f"{state['state']['last_seq']}: run `sluice bus apply --rebuild {view}`"
    )
