"""JetStream's streams in memory: sequences, limits, duplicates, fences, one view per log.

Configured with the same data as the real server (`shared.bus.streams`), in JetStream's own words.
Plain data structures: time is an argument, and nothing waits.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, Self, TypeVar

from shared.bus.headers import taken_at
from shared.bus.port import ROOM_FOR_ENDS, Entry, FencedError, StreamFullError, UnavailableError
from shared.contracts.messages.base import FORMAT

Config = Mapping[str, Any]

M = TypeVar("M", "Stored", Entry)

_NANOSECONDS: Final = 10**9
ACK_PENDING_MAX: Final = 1000
_OVERHEAD_BYTES: Final = 34
"""Bytes that the file store adds to a message."""


@lru_cache(maxsize=100_000)
def matches(subject: str, filters: tuple[str, ...]) -> bool:
    """True if one of `filters` matches `subject`; no filters match every subject.

    Cached: every reader calls it for every message, and most subjects repeat.
    """
    return not filters or any(_matches(subject, one) for one in filters)


def _matches(subject: str, pattern: str) -> bool:
    tokens, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(tokens) == len(wanted) and all(
        one in ("*", token) for one, token in zip(wanted, tokens, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One message in a stream."""

    sequence: int
    """Sequence in this stream."""

    origin: int
    """Sequence in the log; in a log the same as `sequence`."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    at: float
    """Loop time when this stream stored it."""

    time: datetime
    """Server time when this stream stored it."""

    size: int
    """Bytes that count towards the stream's limit."""

    def entry(self, *, deliveries: int = 1, generation: int = 0) -> Entry:
        """Return the message as a reader gets it."""
        return Entry(
            subject=self.subject,
            data=self.data,
            headers=self.headers,
            sequence=self.origin,
            time=taken_at(self.headers, self.time),
            generation=generation,
            deliveries=deliveries,
        )


class NoLeaderError(UnavailableError):
    """The stream has no leader, so that no server answers."""


class SilentError(NoLeaderError):
    """The question, or the answer, is lost."""


class Dialect:
    """How a release writes and reads messages. This one writes and reads them as they are."""

    known_format: int = FORMAT
    """The format of the logs that it understands."""

    def written(
        self, data: bytes, headers: Mapping[str, str], *, stream: str
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return body and headers as this release publishes them."""
        del stream
        return data, headers

    def read(self, one: M) -> M:
        """Return what is stored as this release understands it."""
        return one


PLAIN: Final = Dialect()


def _size(subject: str, headers: Mapping[str, str], data: bytes) -> int:
    own = sum(len(name) + len(value) + 4 for name, value in headers.items())
    return len(subject) + own + len(data) + _OVERHEAD_BYTES


class MemoryStream:
    """A stream: a log, a view, or the leases, as its configuration says."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.epoch = 0
        """When it was made, in milliseconds since 1970."""

        self.name: str = config["name"]
        self.subjects = tuple(config.get("subjects", ()))
        self.messages: dict[int, Stored] = {}
        """By sequence, oldest first."""

        self.last = 0
        """The highest sequence so far, even if that message is deleted."""

        self.bytes = 0
        self.sourced = 0
        """For a view: the sequence up to which the log was sourced."""

        self.full = False
        """True to refuse messages, as if the stream were full."""

        self.crowded = False
        """True to report that only the room for ends is left."""

        self.election: Literal["", "begins", "lasts"] = ""
        """Servers elect who leads it. At first its leader still stores, and nobody hears of it."""

        self._matching: dict[tuple[str, ...], list[int]] = {}
        """Sequences of `messages` by the filters that somebody reads with: nobody looks through a log."""

        self._by_subject: dict[str, int] = {}
        self.trimmed: list[Stored] = []
        """What its owner deleted from a log, for a judge."""

        self.keeps_replaced = False
        """True to remember what a newer message of its subject replaced, for `revive`."""

        self.brought_back: dict[int, int] = {}
        """Sequences of what `revive` brought back to how far a view was then in its log."""

        self._replaced: dict[str, Stored] = {}
        self._ids: dict[str, tuple[int, float]] = {}
        self._last_id = ""
        """Message id of the last message; empty if it had none."""

        self._age = config.get("max_age", 0) / _NANOSECONDS
        self._window = config.get("duplicate_window", 120 * _NANOSECONDS) / _NANOSECONDS
        self._bytes_max: int = config.get("max_bytes", -1)
        self._messages_max: int = config.get("max_msgs", -1)
        self._single = config.get("max_msgs_per_subject", -1) == 1
        self._discard_new = config.get("discard") == "new"

    @property
    def fullness(self) -> float:
        """Share of the byte limit that is used."""
        if self.full:
            return 1.0
        if self.crowded:
            return (1.0 + ROOM_FOR_ENDS) / 2
        return self.bytes / self._bytes_max if self._bytes_max > 0 else 0.0

    def append(
        self,
        *,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        at: float,
        time: datetime,
        message_id: str | None = None,
        expect_last: int | None = None,
        expect_subject: int | None = None,
        expect_subject_of: str | None = None,
        expect_id: str | None = None,
        origin: int | None = None,
    ) -> int:
        """Store a message; return its sequence, or that of the first copy for a duplicate.

        Raises `FencedError` and `StreamFullError`. The expected sequence is checked before duplicates, the
        id of the last message behind them, as nats-server does (2.15.1).
        """
        self.expire(at)
        if expect_last is not None and expect_last != self.last:
            raise FencedError(f"wrong last sequence: {self.last} (10071)")
        fence = subject if expect_subject_of is None else expect_subject_of
        if expect_subject is not None and expect_subject != self._by_subject.get(fence, 0):
            last = self._by_subject.get(fence, 0)
            raise FencedError(f"wrong last sequence: {last} (10071)")
        if message_id is not None and (known := self._ids.get(message_id)) is not None:
            return known[0]
        if expect_id is not None and expect_id != self._last_id:
            raise FencedError(f"wrong last msg ID: {self._last_id} (10070)")
        stored = Stored(
            sequence=self.last + 1,
            origin=self.last + 1 if origin is None else origin,
            subject=subject,
            data=data,
            headers=headers,
            at=at,
            time=time,
            size=_size(subject, headers, data),
        )
        self._make_room(stored)
        self.last = stored.sequence
        self._last_id = message_id or ""
        if self._single and subject in self._by_subject:
            self._replace(self._by_subject[subject])
        self.messages[stored.sequence] = stored
        for filters, sequences in self._matching.items():
            if matches(subject, filters):
                sequences.append(stored.sequence)
        self._by_subject[subject] = stored.sequence
        self.bytes += stored.size
        if message_id is not None:
            self._ids[message_id] = (stored.sequence, at)
        return stored.sequence

    def led(self) -> Self:
        """Return the stream itself. Raises `NoLeaderError` while nobody leads it."""
        if self.election:
            raise NoLeaderError(f"{self.name} has no leader")
        return self

    def latest(self, subject: str, *, at: float) -> Stored | None:
        """Return the last message of `subject`, or None."""
        self.expire(at)
        sequence = self._by_subject.get(subject)
        return None if sequence is None else self.messages.get(sequence)

    def remove(self, sequence: int) -> None:
        """Remove one message, if it exists."""
        stored = self.messages.pop(sequence, None)
        if stored is None:
            return
        for filters, sequences in self._matching.items():
            if matches(stored.subject, filters):
                del sequences[bisect_left(sequences, sequence)]
        self.bytes -= stored.size
        if self._by_subject.get(stored.subject) == sequence:
            del self._by_subject[stored.subject]

    def _replace(self, sequence: int) -> None:
        """Drop a message for a newer one of its subject."""
        if self.keeps_replaced:
            stored = self.messages[sequence]
            self._replaced[stored.subject] = stored
        self.remove(sequence)

    @property
    def revivable(self) -> list[Stored]:
        """What was replaced by messages that were deleted since."""
        return [one for one in self._replaced.values() if one.subject not in self._by_subject]

    def revive(self) -> list[str]:
        """Bring that back; return the subjects.

        A server that is killed reads its files anew. It finds the mark of a deletion there, and none of a
        replacement (nats-io/nats-server#8505).
        """
        back = self.revivable
        self._replaced.clear()
        self.brought_back |= {one.sequence: self.sourced for one in back}
        for one in back:
            self.messages[one.sequence] = one
            self._by_subject[one.subject] = one.sequence
            self.bytes += one.size
        self.messages = dict(sorted(self.messages.items()))
        self._matching.clear()
        return [one.subject for one in back]

    def truncate(self, keep: int) -> list[Stored]:
        """Remove all but the newest `keep` messages, as a limit does; return what was removed."""
        old = list(self.messages.values())[: max(0, len(self.messages) - keep)]
        for stored in old:
            self.remove(stored.sequence)
        return old

    def long_histories(self, subjects: str, most: int) -> list[str]:
        """Return the subjects with more than `most` messages, the longest first."""
        found = [one.subject for one in self.messages.values() if matches(one.subject, (subjects,))]
        return [subject for subject, number in Counter(found).most_common() if number > most]

    def shorten(self, subject: str, keep: int) -> int:
        """Remove all but the newest `keep` messages of `subject`; return how many there were."""
        found = [one for one in self.messages.values() if one.subject == subject]
        return self.trim(found[: max(0, len(found) - keep)])

    def trim(self, old: list[Stored]) -> int:
        """Remove history that nobody needs any more; return how many messages."""
        for one in old:
            self.remove(one.sequence)
        self.trimmed += old
        return len(old)

    def expire(self, at: float) -> None:
        """Remove messages and message ids that are too old at loop time `at`."""
        if self._age > 0:
            while self.messages:
                oldest = next(iter(self.messages.values()))
                if oldest.at + self._age > at:
                    break
                self.remove(oldest.sequence)
        while self._ids:
            identity, (_, seen) = next(iter(self._ids.items()))
            if seen + self._window > at:
                break
            del self._ids[identity]

    def after(self, position: int, filters: tuple[str, ...]) -> Stored | None:
        """Return the first message after `position` that matches `filters`, or None."""
        sequences = self._matching.get(filters)
        if sequences is None:
            sequences = [
                one.sequence for one in self.messages.values() if matches(one.subject, filters)
            ]
            self._matching[filters] = sequences
        index = bisect_right(sequences, position)
        return self.messages[sequences[index]] if index < len(sequences) else None

    def _make_room(self, stored: Stored) -> None:
        while self.full or self._over(stored):
            if self.full or self._discard_new:
                raise StreamFullError(f"{self.name}: maximum bytes or messages exceeded (10077)")
            if not self.messages:
                raise StreamFullError(f"{self.name}: the message alone exceeds the limits")
            self.remove(next(iter(self.messages)))

    def _over(self, stored: Stored) -> bool:
        messages, size = len(self.messages) + 1, self.bytes + stored.size
        if self._single and (known := self._by_subject.get(stored.subject)) is not None:
            messages -= 1
            size -= self.messages[known].size
        return (0 <= self._messages_max < messages) or (0 <= self._bytes_max < size)


@dataclass(slots=True, kw_only=True, eq=False)
class Subscriber:
    """One receiver of a durable's deliveries."""

    credit: int
    alive: Callable[[], bool]
    reaches: Callable[[], bool]
    deliver: Callable[[Stored, int], None]
    """Called with the message of the view and its number of deliveries."""


@dataclass(slots=True, kw_only=True)
class _Pending:
    deliveries: int
    due: float
    """Loop time of the next delivery."""


@dataclass(slots=True, kw_only=True)
class Durable:
    """A durable consumer of a view: its deliveries and acknowledgements."""

    name: str
    stream: MemoryStream
    filters: tuple[str, ...]
    ack_wait_seconds: float
    position: int = 0
    pending: dict[int, _Pending] = field(default_factory=dict)
    due: list[tuple[float, int]] = field(default_factory=list)
    """A heap; entries whose time differs from that in `pending` are outdated."""

    subscribers: list[Subscriber] = field(default_factory=list)
    turn: int = 0
    retrying: bool = False

    def next_delivery(self, now: float) -> tuple[Stored, int] | None:
        """Return the next message to deliver and its number of deliveries, or None."""
        while self.due and self.due[0][0] <= now:
            due, sequence = heapq.heappop(self.due)
            pending = self.pending.get(sequence)
            if pending is None or pending.due != due:
                continue
            stored = self.stream.messages.get(sequence)
            if stored is None:
                del self.pending[sequence]  # Superseded: the newer message is delivered instead.
                continue
            return stored, self._give(sequence, now, pending.deliveries + 1)
        if len(self.pending) >= ACK_PENDING_MAX:
            return None
        stored = self.stream.after(self.position, self.filters)
        if stored is None:
            self.position = self.stream.last
            return None
        self.position = stored.sequence
        return stored, self._give(stored.sequence, now, 1)

    def awaits(self, stored: Stored) -> bool:
        """Whether a message was not handled yet."""
        passed = stored.sequence <= self.position and stored.sequence not in self.pending
        return not passed and matches(stored.subject, self.filters)

    def postpone(self, sequence: int, until: float) -> None:
        """Deliver it again at `until`, unless it is acknowledged by then."""
        pending = self.pending.get(sequence)
        if pending is not None:
            pending.due = until
            heapq.heappush(self.due, (until, sequence))

    def _give(self, sequence: int, now: float, deliveries: int) -> int:
        self.pending[sequence] = _Pending(deliveries=deliveries, due=now)
        self.postpone(sequence, now + self.ack_wait_seconds)
        return deliveries
