"""Typed reading: entries of a stream become messages, and each goes to the handler of its type.

    await follow(bus, {HostState: self.on_host, SealKey: self.on_key}, filters=["sluice.host.hub.>"])

An entry that cannot be read is skipped, logged and counted here, each time that it is read. So is an
entry whose body names another object than its subject.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeVar

import structlog

from shared.bus.headers import TYPE
from shared.bus.port import Bus, BusError, CaughtUp, DeniedError, Entry
from shared.contracts.messages.base import Message, NewerSchemaError, UndecodableError
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.telemetry import probes
from shared.telemetry.metrics import NEWER, UNREADABLE
from shared.telemetry.once import Once

log = structlog.get_logger(__name__)

TURN: Final = 100
"""Messages that are handled in a row. Then other tasks have a turn: a lease has to be renewed, which takes
several turns, and whoever begins to lead reads for longer than the lease lasts."""

RETRY_SECONDS: Final = 0.5
"""Pause after the bus did not answer."""

NEWER_LOGGED_MAX: Final = 100
"""Different types and versions of newer releases that are logged, so that no writer floods the log."""

LOGGED_MAX: Final = 1_000
"""Errors that are remembered, so that a message that is read again is logged once."""

CONTENT_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What comes of contents that no correct writer makes: a list in the place of a text, no namespace."""

_newer_logged: set[str] = set()
_logged: Final = Once(LOGGED_MAX)

M = TypeVar("M", bound=Message)

Handlers = Mapping[type[Any], Callable[[Any, Entry], object]]
"""Message type to the function that handles a message and its entry. All types are of one stream."""


def read(entry: Entry | None, kind: type[M]) -> M | None:
    """Return the message in `entry`; None if `entry` is None or cannot be read."""
    if entry is None:
        return None
    try:
        return entry.read(kind)
    except UndecodableError as error:
        skip(kind.stream, entry, error)
        return None


def why_unreadable(entry: Entry, read_entry: Callable[[Entry], object]) -> str | None:
    """Why `read_entry` can never read the entry; None: it did.

    Raises `NewerSchemaError`, because a newer release will read it.
    """
    try:
        read_entry(entry)
    except NewerSchemaError:
        raise
    except UndecodableError as error:
        return str(error)
    return None


def skip_undecodable(handle: Callable[[str, Entry], None], stream: str, entry: Entry) -> None:
    """Call `handle`, which decodes the entry itself; log, count and skip an entry that it cannot read."""
    try:
        with isolated(stream, entry.subject):
            handle(stream, entry)
    except UndecodableError as error:
        skip(stream, entry, error)


def skip(stream: str, entry: Entry, error: UndecodableError) -> None:
    """Count and log an entry that cannot be read.

    An entry of a newer release is counted separately. The reader keeps its present state of the subject;
    after an upgrade it reads the entry from the view. It is logged once for each type and version.
    """
    if not isinstance(error, NewerSchemaError):
        UNREADABLE.labels(stream=stream).inc()
        if _logged.is_new((entry.subject, str(error))):
            log.warning(
                "skipping an entry that cannot be read", subject=entry.subject, error=str(error)
            )
        return
    NEWER.labels(stream=stream).inc()
    probes.NEWER_SCHEMA.fired += 1
    if str(error) not in _newer_logged and len(_newer_logged) < NEWER_LOGGED_MAX:
        _newer_logged.add(str(error))
        log.warning(
            "putting aside an entry of a newer release", subject=entry.subject, error=str(error)
        )


@contextmanager
def isolated(stream: str, subject: str) -> Iterator[None]:
    """Let a message harm only what it is about: an error of its contents is counted and logged once.

    An error of the bus, or of our own that is none of `CONTENT_ERRORS`, ends the reading.
    """
    try:
        yield
    except UndecodableError:
        raise
    except CONTENT_ERRORS as error:
        UNREADABLE.labels(stream=stream).inc()
        if _logged.is_new((subject, repr(error))):
            log.exception("skipping a message whose contents cannot be used", subject=subject)


async def last_readable(bus: Bus, entry: Entry, kind: type[M]) -> M | None:
    """The last message of the subject of `entry` in the log that can be read, and is not void; None: none.

    One request for each message of the subject: JetStream finds the next one, not the one before. Raises
    `BusError`.
    """
    found = await _last_readable_entry(bus, entry, (kind,))
    return None if found is None else found.read(kind)


async def _entry_before(bus: Bus, entry: Entry, kinds: Collection[type[Message]]) -> Entry | None:
    """The last entry of the subject of an unreadable `entry` that is a message of one of `kinds`.

    None: the log has none, or this user may not read it, or a newer release took back what was said before:
    that a cluster was listed, an admission check's answer, or what was done.
    """
    for kind in (Synced, CheckState, Outcome):
        if entry.headers.get(TYPE) == kind.type and kind.is_of_newer_schema(entry.headers):
            return None
    while True:
        try:
            found = await _last_readable_entry(bus, entry, kinds)
        except DeniedError as error:
            log.error("may not read earlier messages", subject=entry.subject, error=str(error))
            return None
        except BusError as error:
            # Without it an object that is there would count as gone.
            log.warning("cannot read earlier messages", subject=entry.subject, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
        else:
            probes.EARLIER_READ.fired += found is not None
            return found


async def _last_readable_entry(
    bus: Bus, entry: Entry, kinds: Collection[type[Message]]
) -> Entry | None:
    [stream] = {kind.stream for kind in kinds}
    found, sequence = None, 1
    while True:
        stored = await bus.at_or_after(stream, sequence, subject=entry.subject, valid=True)
        if stored is None:
            return found
        sequence = stored.sequence + 1
        type_ = stored.headers.get(TYPE)
        likely = [kind for kind in kinds if type_ in {None, kind.type}]
        if any(read(stored, kind) is not None for kind in likely):
            found = stored


def dispatch(entry: Entry, handlers: Handlers) -> bool:
    """Call the handler for the type of `entry`; ignore an entry of another type.

    Returns False if the entry cannot be read: it says nothing of what its subject is about.

    If there is only one handler, an entry without a type goes to it; else it cannot be read. A message
    whose contents its handler cannot use harms only what it is about (`isolated`).
    """
    type_ = entry.headers.get(TYPE)
    for kind, handler in handlers.items():
        if kind.type == type_ or (type_ is None and len(handlers) == 1):
            message = read(entry, kind)
            if message is not None:
                with isolated(kind.stream, entry.subject):
                    handler(message, entry)
            return message is not None
    if type_ is None:
        skip(_stream(handlers), entry, UndecodableError(TYPE, "is missing"))
    return type_ is not None


async def follow(
    bus: Bus,
    handlers: Handlers,
    *,
    filters: Sequence[str] = (),
    on_caught_up: Callable[[], None] | None = None,
    on_read_up_to: Callable[[int], None] | None = None,
) -> None:
    """Read the view of the handlers' stream until cancelled: the latest entry of each subject, then changes.

    `filters` are subjects; without any, the whole stream is read. `on_caught_up` is called when all
    entries that existed at the start are handled, and again after a reconnect; before it
    `on_read_up_to`, with the last sequence that the log had then. An exception of a handler ends the
    reading, unless the message's contents explain it (`isolated`).

    Of a subject whose latest entry cannot be read, the last one that can is handled (`existing`).
    """
    items = existing(
        bus, _stream(handlers), filters, kinds=tuple(handlers), on_entry=_dispatcher(handlers)
    )
    async with aclosing(items):
        async for caught_up in items:
            if on_read_up_to is not None:
                on_read_up_to(caught_up.sequence)
            if on_caught_up is not None:
                on_caught_up()


async def recall(
    bus: Bus,
    handlers: Handlers,
    *,
    filters: Sequence[str] = (),
    on_unreadable: Callable[[Entry], None] | None = None,
) -> int:
    """As `follow`, but return once all existing entries are handled: the last sequence of the log.

    `on_unreadable` gets the entries that cannot be read, after what was handled in their place.
    """
    items = existing(
        bus,
        _stream(handlers),
        filters,
        kinds=tuple(handlers),
        on_entry=_dispatcher(handlers),
        on_unreadable=on_unreadable,
    )
    return await _first_caught_up(items)


async def existing(
    bus: Bus,
    stream: str,
    filters: Sequence[str],
    *,
    kinds: Collection[type[Message]],
    on_entry: Callable[[Entry], bool],
    on_unreadable: Callable[[Entry], None] | None = None,
) -> AsyncGenerator[CaughtUp, None]:
    """Hand every entry of a view to `on_entry`, and yield each `CaughtUp`.

    What nobody can read does not hide what was there before: of a subject whose latest entry cannot be
    read when reading begins (`on_entry` returns False), the last message of `kinds` in the log is handed
    over. Later the reader has that already.
    """
    unreadable: dict[str, Entry] | None = {}
    handled = 0
    async with aclosing(bus.watch(stream, *filters)) as items:
        async for item in items:
            handled += 1
            if handled % TURN == 0:
                await asyncio.sleep(0)
            if not isinstance(item, CaughtUp):
                can_be_read = on_entry(item)
                if unreadable is not None:
                    unreadable.pop(item.subject, None)
                    if not can_be_read:
                        unreadable[item.subject] = item
                continue
            for entry in (unreadable or {}).values():
                if (before := await _entry_before(bus, entry, kinds)) is not None:
                    on_entry(before)
                if on_unreadable is not None:
                    on_unreadable(entry)
            unreadable = None
            yield item


async def follow_entries(
    bus: Bus,
    stream: str,
    filters: Sequence[str] = (),
    *,
    on_entry: Callable[[Entry], object],
    on_caught_up: Callable[[int], None],
) -> None:
    """Hand every entry of a view to `on_entry`, which decodes it, until cancelled.

    `on_caught_up` gets the last sequence of the log when all entries that existed at the start are handled,
    and again after a reconnect. An entry that cannot be read hides what was there before.
    """
    items = existing(bus, stream, filters, kinds=(), on_entry=_undecoded(on_entry))
    async with aclosing(items):
        async for caught_up in items:
            on_caught_up(caught_up.sequence)


async def recall_entries(
    bus: Bus, stream: str, filters: Sequence[str] = (), *, on_entry: Callable[[Entry], object]
) -> int:
    """As `follow_entries`, but return once all existing entries are handled: the last sequence of the log."""
    items = existing(bus, stream, filters, kinds=(), on_entry=_undecoded(on_entry))
    return await _first_caught_up(items)


async def stored_entries(
    bus: Bus, log_name: str, *filters: str, start: int = 1
) -> AsyncGenerator[Entry, None]:
    """Yield the entries that a log holds by now, from sequence `start`, the oldest first."""
    async with aclosing(bus.replay(log_name, *filters, start=start)) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                return
            yield item


async def _first_caught_up(items: AsyncGenerator[CaughtUp, None]) -> int:
    async with aclosing(items):
        async for caught_up in items:
            return caught_up.sequence
    raise AssertionError("a watch never ends by itself")


def _undecoded(on_entry: Callable[[Entry], object]) -> Callable[[Entry], bool]:
    """Say of every entry that it can be read: `existing` then looks for no earlier one."""

    def handle(entry: Entry) -> bool:
        on_entry(entry)
        return True

    return handle


def _dispatcher(handlers: Handlers) -> Callable[[Entry], bool]:
    return lambda entry: dispatch(entry, handlers)


def _stream(handlers: Handlers) -> str:
    streams = {kind.stream for kind in handlers}
    assert len(streams) == 1, f"handlers of one stream at a time, not of {sorted(streams)}"
    return str(streams.pop())
