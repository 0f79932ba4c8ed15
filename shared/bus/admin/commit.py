"""Commits all logs and views to the format of this release: `sluice bus migrate --commit`.

From then on no release with a lower format serves them: each service looks at the metadata of the streams.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

from nats.aio.client import Client

from shared.bus.admin.apply import Change
from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.nats.stream_drift import stream_info
from shared.bus.port import NewerFormatError
from shared.bus.streams import committed_of, is_log_or_view, load, newer_format
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import COMMITTED, FORMAT

Json = dict[str, Any]


async def plan_commit(
    nc: Client, *, to: int = FORMAT, retry: ElectionRetry | None = None
) -> list[Change]:
    """What `commit` would do. Changes nothing. Raises a `BusError` where the server does not answer."""
    retry = retry or ElectionRetry()
    return [await _planned(nc, name, to, retry) for name in _names()]


async def commit(
    nc: Client, *, to: int = FORMAT, retry: ElectionRetry | None = None
) -> AsyncIterator[Change]:
    """Write the format `to` into the metadata of each log and view; yield each when it is done.

    It writes nothing if the plan refuses one of them: it is not there, or a newer release has committed it.
    May be repeated, also after it was interrupted. Raises a `BusError` where the server does not answer.
    """
    retry = retry or ElectionRetry()
    planned = await plan_commit(nc, to=to, retry=retry)
    refused = any(one.action == "refused" for one in planned)
    for one in planned:
        if not refused and one.action == "commit":
            await _write(nc, one.stream, to, retry)
            yield replace(one, action="committed")
        else:
            yield one


def _names() -> list[str]:
    """The log at which all services look now and then comes first: none of them misses what is half done."""
    names = [name for name in load().configs() if is_log_or_view(name)]
    return sorted(names, key=lambda name: name != Term.stream)


async def _planned(nc: Client, name: str, to: int, retry: ElectionRetry) -> Change:
    found = await retry.ask(partial(stream_info, nc, name))
    if found is None:
        detail = "it is missing: run `sluice bus apply`"
        return Change(stream=name, action="refused", detail=detail)
    if newer := newer_format(found["config"], to):
        detail = str(NewerFormatError(name, newer, to))
        return Change(stream=name, action="refused", detail=detail)
    before = committed_of(found["config"])
    if before == str(to):
        return Change(stream=name, action="unchanged", detail=f"format {to}")
    detail = f"format {to}" + (f", before {before}" if before else "")
    return Change(stream=name, action="commit", detail=detail)


async def _write(nc: Client, name: str, to: int, retry: ElectionRetry) -> None:
    config: Json = (await retry.call(nc, f"STREAM.INFO.{name}"))["config"]
    metadata = (config.get("metadata") or {}) | {COMMITTED: str(to)}
    await retry.call(nc, f"STREAM.UPDATE.{name}", config | {"metadata": metadata})
