"""NATS loses its power: what was not written to the disk yet is gone, of each stream another part.

The server is told to write once a second (`sync_interval`). A log may come back without its last messages
while its view still has them, or the other way round, and a consumer may be further than its view. Before
anybody publishes, the writers fill up a log that is behind its view (ADR 85); here that is done at once.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from random import Random
from typing import Final

from services.simulator.scenarios.swarm.features import FAULT_SECONDS
from services.simulator.scenarios.system import CLUSTER, System
from shared.bus.admin.permissions import writes_of
from shared.bus.direct_read import SOURCE
from shared.bus.filters import covers
from shared.bus.headers import MESSAGE_ID
from shared.bus.nats.tails.refill import OWNER_SECONDS
from shared.bus.streams import view_of
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import TERM_SUBJECT
from shared.testing.world.memory_server import Disk, MemoryServer
from shared.testing.world.memory_streams import MemoryStream, Stored

CUT_EVERY_SECONDS: Final = 40.0
UNWRITTEN_SECONDS: Final = (0.1, 0.5)
"""Between two of the moments that a stream may come back from."""

MOMENTS: Final = 4
OBSERVED: Final = Observed.stream
TAIL_SECONDS: Final = (0.5, 8.0)
"""How long what was stored is lost."""


class PowerCuts:
    """Cuts the power of the server now and then."""

    def __init__(self, system: System, random: Random, *, as_one: bool) -> None:
        """`as_one`: the whole disk comes back as it was a few seconds before something was observed."""
        self._as_one = as_one
        self._world = system.world
        self._server = system.server
        self._random = random

    async def run(self) -> None:
        """Cut until the time of faults is over."""
        loop, random = asyncio.get_running_loop(), self._random
        while True:
            await asyncio.sleep(random.expovariate(1 / CUT_EVERY_SECONDS))
            if loop.time() >= FAULT_SECONDS:
                return
            moments = [self._server.copy_disk()]
            if self._as_one:
                await self._until_observed(moments[0].streams[OBSERVED].last)
            for _ in range(0 if self._as_one else MOMENTS - 1):
                await asyncio.sleep(random.uniform(*UNWRITTEN_SECONDS))
                moments.append(self._server.copy_disk())
            self._world.note("the server loses its power")
            self._server.put_back(self._what_is_left(moments))

    async def _until_observed(self, last: int) -> None:
        """Return a moment after something more was observed."""
        server = self._server
        while not self._world.calm and server.stream(OBSERVED).last == last:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(self._random.uniform(*UNWRITTEN_SECONDS))
        await asyncio.sleep(self._random.uniform(*UNWRITTEN_SECONDS))

    def _what_is_left(self, moments: list[Disk]) -> Disk:
        random = self._random
        streams = {
            name: random.choice(moments).streams[name] for name in sorted(moments[0].streams)
        }
        for name, stream in streams.items():
            now = self._server.streams[name]
            stream.full, stream.crowded, stream.election = now.full, now.crowded, ""
        for name, log in streams.items():
            view = streams.get(view_of(name))
            if view is None:
                continue
            before = moments[-1].streams[name].last
            self._world.note(f"{name} ends at {log.last} of {before}, view {view.last}")
            restore_view(view)
            fill_up(log, view, at=self._server.seconds(), time=self._server.now())
        return _disk(self._server, streams, random.choice(moments))


class LostTails:
    """A log loses its last messages now and then, and its view does not.

    Whoever is there fills it up with what it may write; another service that writes the log may come later.
    """

    def __init__(
        self,
        system: System,
        random: Random,
        log_name: str,
        *,
        services: Sequence[str],
        until: float,
        before_loss: Callable[[], None],
    ) -> None:
        """`services` write the log. `until`: seconds of the world. `before_loss` sees the whole log."""
        self._world = system.world
        self._server = system.server
        self._random = random
        self._log_name = log_name
        self._services = services
        self._until = until
        self._before_loss = before_loss

    async def run(self) -> None:
        """Lose tails until the time of faults is over."""
        loop, random, server = asyncio.get_running_loop(), self._random, self._server
        while True:
            await asyncio.sleep(random.expovariate(1 / CUT_EVERY_SECONDS))
            if loop.time() >= self._until:
                return
            before = server.copy_disk()
            await asyncio.sleep(random.uniform(*TAIL_SECONDS))
            self._before_loss()
            disk = server.copy_disk()
            log = before.streams[self._log_name]
            streams = disk.streams | {self._log_name: log}
            late = random.choice((None, *self._services))
            self._world.note(f"{self._log_name} loses its tail behind {log.last}; {late} is late")
            present = [each for each in self._services if each != late]
            writes = [one for each in present for one in writes_of(each, CLUSTER) or ()]
            view = streams[view_of(self._log_name)]
            restore_view(view)
            fill_up(log, view, at=server.seconds(), time=server.now(), writes=writes)
            server.put_back(_disk(server, streams, disk))
            await self._keep_away(late)

    async def _keep_away(self, service: str | None) -> None:
        """Let a service come back when the others wait no longer for what it has to fill in."""
        links, processes = self._world.links, self._world.processes
        cut = [
            name
            for name in processes
            if name.rpartition("-")[0] == service and links.cut(name, "bus")
        ]
        await asyncio.sleep(OWNER_SECONDS + 1.0 if cut else 0.0)
        for name in cut:
            links.heal(name, "bus")


def _disk(server: MemoryServer, streams: dict[str, MemoryStream], moment: Disk) -> Disk:
    """These streams with the consumers of a moment, none of which is further than its stream."""
    consumers = {
        key: (filters, min(position, streams[key[0]].last), pending)
        for key, (filters, position, pending) in moment.consumers.items()
    }
    return Disk(streams=streams, consumers=consumers, committed=server.committed)


def restore_view(view: MemoryStream) -> None:
    """Find out how far a view is, as a server does that starts: by its last message."""
    view.sourced = max((one.origin for one in view.messages.values()), default=0)


def fill_up(
    log: MemoryStream,
    view: MemoryStream,
    *,
    at: float,
    time: datetime,
    writes: Collection[str] = (">",),
) -> None:
    """Publish in the log what its view has behind the end of it, as `shared.bus.nats.tails.refill` does.

    `writes`: what those may write who are there in time.
    """
    known = {one.origin: one for one in view.messages.values()}
    ours = {
        origin: one
        for origin, one in known.items()
        if any(covers(mine, one.subject) for mine in writes)
    }
    lost = {origin: one for origin, one in ours.items() if origin > log.last}
    # Who has lost nothing repeats an earlier message; if nobody can, the log waits for the one that is late.
    filling = lost or ours or known
    for sequence in range(log.last + 1, view.sourced + 1):
        stored = filling.get(sequence) or _stand_in(filling, sequence)
        headers = {name: value for name, value in stored.headers.items() if name != SOURCE}
        identity = f"{headers.get(MESSAGE_ID, '')}:refill:{sequence}"
        log.append(
            subject=stored.subject,
            data=stored.data,
            headers=headers | {MESSAGE_ID: identity},
            at=at,
            time=time,
            message_id=identity,
        )


def _stand_in(lost: dict[int, Stored], sequence: int) -> Stored:
    """The next message behind a sequence that is gone; a `Term` last."""

    def order(other: int) -> tuple[bool, bool, int]:
        return lost[other].subject == TERM_SUBJECT, other < sequence, abs(other - sequence)

    return lost[min(lost, key=order)]
