"""The reader of users that make no consumer."""

from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from shared.bus import headers as wire
from shared.bus.direct_read import (
    CALL_SECONDS,
    DirectRead,
    SilentError,
    sequence_of,
    source_sequence,
)
from shared.bus.filters import covers, overlap, prune
from shared.bus.nats.direct.hints import Hints
from shared.bus.nats.jetstream_api import ask, call
from shared.bus.nats.reader import ConsumerLostError, Reader
from shared.bus.port import CaughtUp, DeniedError, Entry, UnavailableError


class DirectReader(Reader):
    """Reads without a consumer, or with one, as its user may.

    A spoke may not read directly: the gateway looks at each consumer that it makes. Nor may a service, until
    the users of its release are rendered: until then it reads as the release before did.
    """

    directly: bool = False
    """Whether it tries without a consumer first."""

    _hints: Hints | None = None
    _direct: DirectRead | None = None

    async def _read_once(self) -> AsyncGenerator[Entry | CaughtUp]:
        nc = self._connection.nc
        if not (self.directly and await _has_direct_reads(nc, self._stream)):
            try:
                async for item in super()._read_once():
                    yield item
            except DeniedError:
                if self.directly:
                    raise
                self.directly = True
            else:
                return
        self._broken = None
        await self._survey()
        self._direct = direct = DirectRead(
            nc, self._stream, self._filters, start=self._position + 1
        )
        published = await self._published()
        self._hints = hints = Hints(
            nc, published, stopped=lambda: self._closed or self._broken is not None
        )
        self._wake = hints.came
        hinted = False
        while not self._closed:
            if self._broken is not None:
                raise ConsumerLostError(self._broken)
            await hints.listen()
            messages = await self._next(direct, hinted=hinted)
            for message in messages:
                entry = _entry(message, self._generation)
                if self._given is not None:
                    self._given.add(entry.subject)
                self._position = sequence_of(message) or self._position
                # A view that is being rebuilt has older states for a while.
                if entry.sequence > self._delivered:
                    self._delivered = entry.sequence
                    self._latest = entry
                    if self._terms is None or not self._terms.is_void(entry):
                        yield entry
            if direct.pending:
                continue
            self._position = max(self._position, direct.position)
            if not self._caught_up:
                for item in await self._catch_up():
                    yield item
            hinted = await hints.wait(delivered=self._delivered)

    async def _published(self) -> tuple[str, ...]:
        """What to listen to: the filters, as far as the log has such subjects."""
        info = await call(self._connection.nc, f"STREAM.INFO.{self._log}")
        return within(self._filters, info["config"].get("subjects") or ())

    async def _next(self, direct: DirectRead, *, hinted: bool) -> list[Msg]:
        try:
            messages = await direct.more(hinted=hinted)
        except SilentError as error:
            raise ConsumerLostError(str(error)) from error
        if self._terms is not None and messages:
            await self._terms.refresh(self._generation)
        return messages

    async def _drop_consumer(self) -> None:
        hints, direct, self._hints, self._direct = self._hints, self._direct, None, None
        # Also without a connection: the library would subscribe again on the next one.
        for one in (hints, direct):
            if one is not None:
                await one.close()
        await super()._drop_consumer()


async def _has_direct_reads(nc: Client, stream: str) -> bool:
    """Whether this user may read directly. Raises `UnavailableError` without an answer."""
    try:
        await ask(nc, f"$JS.API.DIRECT.GET.{stream}", b'{"seq":1}', timeout_seconds=CALL_SECONDS)
    except (NoRespondersError, DeniedError):
        return False
    except (NatsError, TimeoutError) as error:
        raise UnavailableError(f"{stream}: no answer to a direct read: {error}") from error
    return True


def within(filters: tuple[str, ...], declared: Iterable[str]) -> tuple[str, ...]:
    """The filters, none of them wider than the declared subjects of the log that they cover or overlap."""
    subjects = tuple(declared)
    found = [
        one
        for each in filters or (">",)
        for one in (
            (each,)
            if any(covers(subject, each) for subject in subjects)
            else (subject for subject in subjects if overlap(subject, each))
        )
    ]
    return prune(tuple(found))


def _entry(message: Msg, generation: int) -> Entry:
    headers = message.headers or {}
    stored = datetime.fromisoformat(headers["Nats-Time-Stamp"]).astimezone(UTC)
    return Entry(
        subject=headers["Nats-Subject"],
        data=message.data,
        headers=headers,
        sequence=source_sequence(headers) or int(headers["Nats-Sequence"]),
        time=wire.taken_at(headers, stored),
        generation=generation,
    )
