"""Deletes what has ended: from a view, once every durable consumer has passed it.

A durable that has not handled a tombstone would never see it once it is purged. Its acknowledgement floor
says what it has handled; it speaks of sequences of the view. A durable counts for the subjects that its
filters select, so the durables of a cluster that is gone keep the ends of that cluster only.
"""

from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, NamedTuple

from nats.aio.client import Client

from shared.bus import headers as wire
from shared.bus.filters import covers
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, ApiError, call
from shared.bus.nats.reader import Reader
from shared.bus.port import CaughtUp
from shared.bus.streams import view_of
from shared.telemetry import probes


class _Passed(NamedTuple):
    """What one durable consumer has handled."""

    filters: tuple[str, ...]
    floor: int
    """Sequence of the view up to which it has handled all that its filters select."""


class Purges:
    """Purges single tombstones from views, for writers whose subjects no durable consumer reads.

    The view's last message stays: it alone tells how far the view is. It goes with the next purge after
    something newer came.
    """

    def __init__(self) -> None:
        self._deferred: dict[tuple[str, str], int] = {}

    async def purge(self, nc: Client, log: str, subject: str, up_to: int) -> None:
        """Purge a subject from the view of `log`, unless it has something newer; see `Bus.purge`."""
        self._deferred[log, subject] = up_to
        for (other, name), sequence in list(self._deferred.items()):
            if other == log and await _purge_one(nc, view_of(log), name, sequence):
                del self._deferred[other, name]


async def _purge_one(nc: Client, view: str, subject: str, up_to: int) -> bool:
    stored = await _last_of(nc, view, subject)
    if stored is None or wire.log_sequence(stored) > up_to:
        return True
    last = await _last_of(nc, view, ">")
    if last is not None and last["seq"] == stored["seq"]:
        return False
    # `seq` is exclusive: an entry that was stored between reading and purging stays.
    body = {"filter": subject, "seq": int(stored["seq"]) + 1}
    await call(nc, f"STREAM.PURGE.{view}", body)
    return True


async def sweep(nc: Client, log: str, ended: Mapping[str, int]) -> set[str]:
    """Purge subjects from the view of `log`; see `Bus.sweep`."""
    view = view_of(log)
    end = await _last_of(nc, view, ">")
    durables = await _durables(nc, view)
    done: set[str] = set()
    for subject, up_to in ended.items():
        stored = await _last_of(nc, view, subject)
        if stored is None or wire.log_sequence(stored) > up_to:
            done.add(subject)
            continue
        sequence = int(stored["seq"])
        if end is None or sequence >= int(end["seq"]):
            continue  # The view's last message tells how far the view is.
        if any(_waits(each, subject, sequence) for each in durables):
            probes.END_KEPT.fired += 1
            continue
        # `seq` is exclusive: an entry that was stored between reading and purging stays.
        await call(nc, f"STREAM.PURGE.{view}", {"filter": subject, "seq": sequence + 1})
        done.add(subject)
    return done


async def tombstones(reader: Reader, before: datetime, most: int) -> dict[str, int]:
    """Find the tombstones that `reader` reads before it has caught up; see `Bus.tombstones`."""
    found: dict[str, int] = {}
    async with aclosing(reader.read()) as items:
        async for item in items:
            if isinstance(item, CaughtUp) or len(found) >= most:
                break
            if wire.is_tombstone(item.headers) and item.time < before:
                found[item.subject] = item.sequence
            else:
                found.pop(item.subject, None)
    return found


async def trim(nc: Client, log: str, subject: str, up_to: int) -> int:
    """Purge a subject from `log`; see `Bus.trim`."""
    answer = await call(nc, f"STREAM.PURGE.{log}", {"filter": subject, "seq": up_to + 1})
    return int(answer.get("purged", 0))


async def long_histories(nc: Client, log: str, subjects: str, most: int) -> list[str]:
    """Ask how many messages each subject has; see `Bus.long_histories`."""
    found: dict[str, int] = {}
    offset = 0
    while True:
        asked = {"subjects_filter": subjects, "offset": offset}
        page = await call(nc, f"STREAM.INFO.{log}", asked)
        listed: dict[str, int] = page["state"].get("subjects") or {}
        found |= {subject: number for subject, number in listed.items() if number > most}
        offset += len(listed)
        if not listed or offset >= int(page.get("total", 0)):
            return sorted(found, key=lambda subject: -found[subject])


async def shorten(nc: Client, log: str, subject: str, keep: int) -> int:
    """Purge a subject from `log` but for its newest messages; see `Bus.shorten`."""
    answer = await call(nc, f"STREAM.PURGE.{log}", {"filter": subject, "keep": keep})
    return int(answer.get("purged", 0))


async def _durables(nc: Client, view: str) -> list[_Passed]:
    """What each durable consumer of the view has passed."""
    # Read before the consumers: what comes between is beyond this mark.
    last = int((await call(nc, f"STREAM.INFO.{view}"))["state"]["last_seq"])
    found: list[_Passed] = []
    offset = 0
    while True:
        page = await call(nc, f"CONSUMER.LIST.{view}", {"offset": offset})
        listed: list[dict[str, Any]] = page.get("consumers") or []
        found += [_passed(info, last) for info in listed if info["config"]["ack_policy"] != "none"]
        offset += len(listed)
        if not listed or offset >= int(page["total"]):
            return found


def _passed(info: dict[str, Any], last: int) -> _Passed:
    config = info["config"]
    filters = tuple(config.get("filter_subjects") or [config.get("filter_subject") or ">"])
    idle = not info["num_pending"] and not info["num_ack_pending"]
    return _Passed(filters, last if idle else int(info["ack_floor"]["stream_seq"]))


def _waits(durable: _Passed, subject: str, sequence: int) -> bool:
    return durable.floor < sequence and any(covers(one, subject) for one in durable.filters)


async def _last_of(nc: Client, stream: str, subject: str) -> dict[str, Any] | None:
    try:
        answer = await call(nc, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    except ApiError as error:
        if error.code == MESSAGE_NOT_FOUND:
            return None
        raise
    message: dict[str, Any] = answer["message"]
    return message
