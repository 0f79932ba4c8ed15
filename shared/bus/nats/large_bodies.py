"""Bodies that are too large for a message: their place in the object store, and the way back.

The message that goes on the log then is a short form of itself; a header names the whole body, by
name and digest. Whoever reads such a message through the bus is given the whole body. Where that is
gone, because something newer took its place or the store was lost, the short form has to do.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from shared.bus.port import Bus, BusError, Entry, LaterError, UnavailableError

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
_PLAIN: Final = re.compile(r"[!#$&-?A-~]+")
"""What a header carries as it is, and without the sign that stands before the digest."""


def reference(name: str, data: bytes) -> str:
    """``<name>@<sha256>``: which body, and how to know that it is the one. Raises `ValueError`."""
    if not _PLAIN.fullmatch(name):
        raise ValueError(f"{name[:80]!r}: the name of a body is printable ASCII without blank or @")
    return f"{name}@{digest_of(data)}"


def digest_of(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def split(ref: str) -> tuple[str, str]:
    """Name and digest of a reference."""
    name, _, digest = ref.rpartition("@")
    return name, digest


async def whole_for_reading(bus: Bus, entry: Entry) -> Entry:
    """Return `entry` with its whole body, or unchanged if that was deleted. Raises a `BusError`."""
    if entry.body_ref is None:
        return entry
    return _with(entry, await bus.get_body(entry.body_ref))


async def whole_for_work(bus: Bus, entry: Entry) -> Entry:
    """The same for a handler. Raises `LaterError`."""
    try:
        return await whole_for_reading(bus, entry)
    except BusError as error:
        raise LaterError(f"its body cannot be read now: {error}") from error


class BodyReader:
    """The whole bodies of the entries that one watch or replay reads.

    A body is deleted once its subject has something newer. A watch is then given that (`latest`): it
    is on its way anyhow, and the short form of an outdated body must not be acted on.
    """

    def __init__(self, bus: Bus, stream: str, *, latest: bool, over: Callable[[], bool]) -> None:
        self._bus = bus
        self._stream = stream
        self._latest = latest
        self._over = over
        self.ahead: dict[str, int] = {}
        """Subjects of which a newer entry was returned than the one that was read."""

    async def of(self, entry: Entry) -> Entry | None:
        """Return `entry` with its whole body, or a newer one; None if that was returned already.

        Waits for as long as the bus does not answer, unless reading is over.
        """
        if entry.subject in self.ahead:
            if entry.sequence <= self.ahead[entry.subject]:
                return None
            del self.ahead[entry.subject]
        while not self._over():
            try:
                return await self._found(entry)
            except UnavailableError as error:
                log.info(
                    "cannot read a large body; trying again",
                    subject=entry.subject,
                    because=str(error),
                )
                await asyncio.sleep(RETRY_SECONDS)
        return None

    async def _found(self, entry: Entry) -> Entry:
        if entry.body_ref is None:
            return entry
        data = await self._bus.get_body(entry.body_ref)
        if data is None and self._latest:
            newest = await self._bus.latest(self._stream, entry.subject)
            if newest is not None and newest.sequence > entry.sequence:
                self.ahead[entry.subject] = newest.sequence
                return newest
        return _with(entry, data)


def _with(entry: Entry, data: bytes | None) -> Entry:
    if data is None:
        log.warning("a large body is gone; using the short form", subject=entry.subject)
        return entry
    return replace(entry, data=data)
