"""A NATS server in memory: streams with their views, durables, leases, requests.

The server belongs to no process: it executes a request that arrived, even if the sender dies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from shared.bus.direct_read import SOURCE
from shared.bus.headers import (
    EXPECT_ID,
    EXPECT_LAST,
    EXPECT_SUBJECT,
    EXPECT_SUBJECT_OF,
    MESSAGE_ID,
    is_tombstone,
)
from shared.bus.nats.work.declared import ACK_WAIT_SECONDS
from shared.bus.port import AnswerError, BusError, Entry
from shared.bus.streams import OBJECTS, load, view_of
from shared.telemetry import probes
from shared.testing.world.memory_bodies import Bodies
from shared.testing.world.memory_streams import (
    Durable,
    MemoryStream,
    NoLeaderError,
    Subscriber,
    matches,
)
from shared.testing.world.world import World

__all__ = ["ACK_WAIT_SECONDS", "Durable", "MemoryServer", "Reply", "Subscriber", "answer_of"]

UNREACHABLE_RETRY_SECONDS: Final = 0.5
SOURCING_SECONDS: Final = 0.0003
"""Delay of a view behind its log in seconds, measured on nats-server 2.14."""

UNHEARD_SECONDS: Final = 0.05
"""At the begin of an election: what is stored then is not acknowledged."""

Reply = Callable[[bytes | AnswerError], object]
Responder = Callable[[bytes, Reply], None]
"""Handles a request; is given a callback for the reply."""


async def answer_of(
    answer: Callable[[bytes], Awaitable[bytes]], data: bytes
) -> bytes | AnswerError:
    """Return the reply, or the error of the handler."""
    try:
        return await answer(data)
    except AnswerError as error:
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What a server has stored at one moment."""

    streams: dict[str, MemoryStream]
    consumers: Mapping[tuple[str, str], tuple[tuple[str, ...], int, frozenset[int]]]
    """Stream and durable to its filters, its position, and what it has not acknowledged."""

    committed: int


@dataclass(slots=True, kw_only=True)
class _Lease:
    holder: str
    expires: float


class MemoryServer:
    """A NATS server. `configs` are JetStream stream configurations; by default those of this repository."""

    def __init__(
        self,
        *,
        world: World | None = None,
        configs: Mapping[str, Mapping[str, Any]] | None = None,
        max_payload: int = 4 << 20,
        replicated: bool = False,
    ) -> None:
        """`replicated`: behave as three servers, where a fence by another subject cannot be pipelined."""
        self.world = world
        self.replicated = replicated
        self.max_payload = max_payload
        self.up = True
        self.epoch = 0
        """Number of restarts: packets from before one never arrive."""

        self.streams = {
            name: MemoryStream(config)
            for name, config in (load().configs() if configs is None else configs).items()
        }
        self._logs = [one for one in self.streams.values() if one.subjects]
        bucket = self.streams.get(f"OBJ_{OBJECTS}")
        self.bodies = Bodies(full=lambda: bucket is None or bucket.full)
        self.connections = 0
        """Number of subscribers so far."""

        self.generation = 0
        """How often the streams were lost and made anew."""

        self.committed = 0
        """The format to which its streams are committed; 0: to none."""

        self._date_streams()
        self._durables: dict[tuple[str, str], Durable] = {}
        self._leases: dict[str, _Lease] = {}
        self._listeners: dict[str, list[Callable[[tuple[str, ...]], bool]]] = {}
        self._responders: dict[str, list[tuple[Callable[[], bool], Responder]]] = {}
        self._sourcing: set[str] = set()
        self.deposed: dict[str, MemoryServer] = {}
        """Process to the server that it is connected to, where that one is cut off from the others."""

        self.lags: dict[str, float] = {}
        """Log to the most seconds by which its view is behind at present, where that is unusual."""

    # Time

    def seconds(self) -> float:
        """Time of the event loop in seconds."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """The server's clock."""
        return datetime.now(UTC) if self.world is None else self.world.now()

    def later(self, delay_seconds: float, act: Callable[..., object], *args: Any) -> None:
        """Call `act` outside of any process."""
        if self.world is not None:
            self.world.later(delay_seconds, act, *args)
        else:
            asyncio.get_running_loop().call_later(delay_seconds, act, *args)

    # Restarts

    def wipe(self) -> None:
        """Come back with an empty disk, and with streams that `sluice bus apply` made anew."""
        self.generation += 1
        self.committed = 0
        self.streams = {name: MemoryStream(one.config) for name, one in self.streams.items()}
        self._date_streams()
        self._logs = [one for one in self.streams.values() if one.subjects]
        self._durables.clear()
        self._leases.clear()
        self._sourcing.clear()
        self.restart()

    def copy_disk(self) -> Disk:
        """Return what is stored at this moment, for `put_back`."""
        consumers = {
            key: (one.filters, one.position, frozenset(one.pending))
            for key, one in self._durables.items()
        }
        return Disk(streams=deepcopy(self.streams), consumers=consumers, committed=self.committed)

    def put_back(self, disk: Disk) -> None:
        """Come back with a disk as it was: logs, views and consumers have lost the same tail."""
        self.generation += 1
        self.committed = disk.committed
        self.streams = disk.streams
        self._logs = [one for one in self.streams.values() if one.subjects]
        self._durables.clear()
        for (stream, name), (filters, position, pending) in disk.consumers.items():
            durable = self._made(stream, name, filters)
            durable.position = min({position, *(sequence - 1 for sequence in pending)})
            self._durables[stream, name] = durable
        self._leases.clear()
        self._sourcing.clear()
        self.restart()

    def _date_streams(self) -> None:
        for stream in self.streams.values():
            stream.epoch = int(self.now().timestamp() * 1000) + self.generation

    def restart(self, *, down_seconds: float = 1.0) -> None:
        """Stop and start again with all acknowledged messages."""
        if not self.up:
            return
        if self.world is not None:
            self.world.note(f"bus restarts, away for {down_seconds:.3f} s")
        self.up = False
        self.deposed.clear()
        self.epoch += 1
        self.later(down_seconds, self._finish_restart)

    def kill(self, *, down_seconds: float) -> list[str]:
        """Die and start again: views have again what was before a deleted message. Return its subjects."""
        if not self.up:
            return []
        back = [subject for one in self.streams.values() for subject in one.revive()]
        self.restart(down_seconds=down_seconds)
        return back

    def _finish_restart(self) -> None:
        self.up = True
        self._source_all()
        for name in self.streams:
            self._notify(name)

    def _source_all(self) -> None:
        """Let views go on that are behind their logs."""
        for log in self._logs:
            view = self.streams.get(view_of(log.name))
            if view is not None and view.sourced < log.last:
                self._source(log.name)

    def elect(self, name: str, *, seconds: float) -> None:
        """Leave a stream without a leader. What it stores at first is kept, and not acknowledged."""
        stream = self.stream(name)
        if stream.election:
            return
        stream.election = "begins"
        self.later(min(seconds, UNHEARD_SECONDS), self._set_election, stream, "lasts")
        self.later(seconds, self._set_election, stream, "")

    def _set_election(self, stream: MemoryStream, election: Literal["", "lasts"]) -> None:
        stream.election = election
        if not election:
            self._source_all()
            self._notify(stream.name)

    # Streams

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int | None:
        """Store a message; return its sequence, or None if no stream has its subject.

        Raises `FencedError` and `StreamFullError` as the server does; `NoLeaderError`: it does not answer.
        """
        stream = next((one for one in self._logs if matches(subject, one.subjects)), None)
        if stream is None:
            return None
        before = stream.last
        if stream.election == "lasts":
            raise NoLeaderError(f"nobody leads {stream.name}")
        expect_last, expect_subject = headers.get(EXPECT_LAST), headers.get(EXPECT_SUBJECT)
        sequence = stream.append(
            subject=subject,
            data=data,
            headers=headers,
            at=self.seconds(),
            time=self.now(),
            message_id=headers.get(MESSAGE_ID),
            expect_last=None if expect_last is None else int(expect_last),
            expect_subject=None if expect_subject is None else int(expect_subject),
            expect_subject_of=headers.get(EXPECT_SUBJECT_OF),
            expect_id=headers.get(EXPECT_ID),
        )
        if self.world is not None:
            again = "" if stream.last > before else " (duplicate)"
            self.world.note(
                f"{stream.name} {sequence} {subject}{again} {data.decode(errors='replace')}"
            )
        if stream.last > before:
            self._notify(stream.name, (subject,))
            self._source(stream.name)
        if stream.election:
            raise NoLeaderError(f"{stream.name} stored {sequence}, and nobody hears of it")
        return sequence

    def stream(self, name: str) -> MemoryStream:
        """Return the stream `name`. Raises `BusError` if it does not exist."""
        stream = self.streams.get(name)
        if stream is None:
            raise BusError(f"stream {name} does not exist (10059)")
        return stream

    def known(self, name: str) -> MemoryStream:
        """Return a stream as whoever knows that it leads has it, even while nobody does."""
        return self.stream(name)

    def led(self, name: str) -> MemoryStream:
        """Return a stream. Raises `UnavailableError` unless who answers has just heard from the others."""
        return self.known(name).led()

    def fed(self, name: str) -> MemoryStream:
        """Return a stream from which readers are fed."""
        return self.stream(name).led()

    def view(self, log: str) -> MemoryStream:
        """Return the view of `log`, with all messages that were sourced so far."""
        return self.stream(view_of(log))

    def latest(self, log: str, subject: str) -> Entry | None:
        """Return the last message of `subject` in `log`."""
        stored = self.stream(log).led().latest(subject, at=self.seconds())
        return None if stored is None else stored.entry(generation=self.generation)

    def purge(self, log: str, subject: str, up_to: int) -> None:
        """Remove the message of `subject` from the view of `log`, unless it is newer than `up_to`."""
        view = self.view(log)
        stored = view.latest(subject, at=self.seconds())
        if stored is not None and stored.origin <= up_to:
            view.remove(stored.sequence)

    def sweep(self, log: str, ended: Mapping[str, int]) -> set[str]:
        """Remove ended subjects from the view of `log`, apart from what a durable has not passed."""
        view = self.view(log)
        last = next(reversed(view.messages), 0)
        done = set()
        for subject, up_to in ended.items():
            stored = view.latest(subject, at=self.seconds())
            if stored is None or stored.origin > up_to:
                done.add(subject)
            elif stored.sequence == last:
                continue
            elif any(one.awaits(stored) for one in self._durables.values() if one.stream is view):
                probes.END_KEPT.fired += 1
            else:
                view.remove(stored.sequence)
                done.add(subject)
        return done

    def tombstones(self, log: str, before: datetime, most: int) -> dict[str, int]:
        """Return subject and sequence of the tombstones in the view of `log`."""
        entries = (stored.entry() for stored in self.view(log).messages.values())
        found = [one for one in entries if is_tombstone(one.headers) and one.time < before]
        return {entry.subject: entry.sequence for entry in found[:most]}

    def at_or_after(self, log: str, sequence: int, subject: str) -> Entry | None:
        """Return the first entry of `log` from `sequence` on whose subject matches."""
        stored = self.stream(log).led().after(sequence - 1, (subject,))
        return None if stored is None else stored.entry(generation=self.generation)

    def trim(self, log: str, subject: str, up_to: int) -> int:
        """Remove the messages of `subject` up to a sequence from `log`."""
        stream = self.stream(log)
        found = stream.messages.values()
        return stream.trim([s for s in found if s.subject == subject and s.sequence <= up_to])

    def listen(self, stream: str, wake: Callable[[tuple[str, ...]], bool]) -> None:
        """Call `wake` for new messages of `stream`, until it returns False.

        It gets the subjects of the new messages; None means any subject.
        """
        self._listeners.setdefault(stream, []).append(wake)

    def _notify(self, stream: str, subjects: tuple[str, ...] = ()) -> None:
        listeners = self._listeners.get(stream)
        if listeners:
            self._listeners[stream] = [wake for wake in listeners if wake(subjects)]
        for (name, _), durable in self._durables.items():
            if name == stream:
                self.pump(durable)

    def _source(self, log: str) -> None:
        if log in self._sourcing or view_of(log) not in self.streams:
            return
        self._sourcing.add(log)
        lag = SOURCING_SECONDS
        world = self.world
        if world is not None and world.chance(world.faults.delay):
            lag = world.between(world.faults.delay_seconds)
        self.later(max(lag, self.lag_seconds(log)), self._sync_view, log)

    def lag_seconds(self, log: str) -> float:
        """How late the view of `log` is with its next batch, of what it sources or for a new reader.

        A world draws it for each batch.
        """
        most = self.lags.get(log, 0.0)
        return self.world.between((0.0, most)) if self.world is not None and most else most

    def _sync_view(self, log: str) -> None:
        self._sourcing.discard(log)
        stream, view = self.streams[log], self.view(log)
        if stream.election or view.election:
            return  # It goes on once both are led.
        subjects: list[str] = []
        for sequence in range(view.sourced + 1, stream.last + 1):
            stored = stream.messages.get(sequence)
            if stored is not None:
                subjects.append(stored.subject)
                source = f"{log} {sequence} > > {stored.subject}"
                view.append(
                    subject=stored.subject,
                    data=stored.data,
                    headers={**stored.headers, SOURCE: source},
                    at=self.seconds(),
                    time=self.now(),
                    origin=sequence,
                )
        view.sourced = stream.last
        self._notify(view_of(log), tuple(subjects))

    # Durables

    def durable(self, log: str, name: str, filters: tuple[str, ...]) -> Durable:
        """Return the durable `name` on the view of `log`; create it if it does not exist."""
        stream = view_of(log)
        durable = self._durables.get((stream, name))
        if durable is None:
            durable = self._made(stream, name, filters)
            self._durables[stream, name] = durable
        durable.filters = filters
        return durable

    def _made(self, stream: str, name: str, filters: tuple[str, ...]) -> Durable:
        found = self.stream(stream)
        return Durable(name=name, stream=found, filters=filters, ack_wait_seconds=ACK_WAIT_SECONDS)

    def pump(self, durable: Durable) -> None:
        """Deliver what can be delivered, and schedule the next redelivery."""
        durable.subscribers = [one for one in durable.subscribers if one.alive()]
        now = self.seconds()
        while self.up and not durable.stream.election:
            willing = [one for one in durable.subscribers if one.credit > 0]
            reachable = [one for one in willing if one.reaches()]
            if not reachable:
                if willing and not durable.retrying:
                    durable.retrying = True
                    self.later(UNREACHABLE_RETRY_SECONDS, self._pump_again, durable)
                return
            taken = durable.next_delivery(now)
            if taken is None:
                return
            stored, deliveries = taken
            durable.turn += 1
            subscriber = reachable[durable.turn % len(reachable)]
            subscriber.credit -= 1
            self.later(ACK_WAIT_SECONDS, self.pump, durable)
            subscriber.deliver(stored, deliveries)

    def _pump_again(self, durable: Durable) -> None:
        durable.retrying = False
        self.pump(durable)

    def ack(self, durable: Durable, sequence: int) -> None:
        """Record an acknowledgement."""
        durable.pending.pop(sequence, None)
        self.pump(durable)

    def nak(self, durable: Durable, sequence: int, delay_seconds: float) -> None:
        """Deliver it again after `delay_seconds`."""
        durable.postpone(sequence, self.seconds() + delay_seconds)
        self.later(delay_seconds, self.pump, durable)

    def in_progress(self, durable: Durable, sequence: int) -> None:
        """Restart the time after which it is delivered again."""
        durable.postpone(sequence, self.seconds() + ACK_WAIT_SECONDS)
        self.later(ACK_WAIT_SECONDS, self.pump, durable)

    # Leases

    def acquire(self, name: str, holder: str, ttl_seconds: float) -> bool:
        """Acquire or renew the lease `name`; return False while another holder has it."""
        lease = self._leases.get(name)
        now = self.seconds()
        if lease is not None and lease.holder != holder and lease.expires > now:
            return False
        if self.world is not None and (lease is None or lease.holder != holder):
            self.world.note(f"lease {name}: {holder}")
        self._leases[name] = _Lease(holder=holder, expires=now + ttl_seconds)
        return True

    def holder(self, name: str) -> str | None:
        """Who holds the lease `name`; None if nobody does."""
        lease = self._leases.get(name)
        return None if lease is None or lease.expires <= self.seconds() else lease.holder

    def release(self, name: str, holder: str) -> None:
        """Release the lease if `holder` still has it."""
        lease = self._leases.get(name)
        if lease is not None and lease.holder == holder:
            del self._leases[name]

    # Requests

    def respond(self, subject: str, reaches: Callable[[], bool], take: Responder) -> None:
        """Register `take` as one responder of `subject`."""
        self._responders.setdefault(subject, []).append((reaches, take))

    def withdraw(self, subject: str, take: Responder) -> None:
        """Remove the responder `take`."""
        kept = [known for known in self._responders.get(subject, []) if known[1] is not take]
        self._responders[subject] = kept

    def responder(self, subject: str) -> Responder | None:
        """Return the next responder of `subject` in turn; None if there is none."""
        responders = self._responders.get(subject, [])
        if not responders:
            return None
        responders.append(responders.pop(0))
        return next((take for reaches, take in responders if reaches()), None)
