"""Has a view take in its log again when an election has cut it off.

The server that leads a view asks the one that leads its log for what is new. If nobody leads the log at that
moment, the question is lost, and nats-server (2.15) asks again after forty seconds: 30 s for an answer, then
10 s of pause. Another server that comes to lead the view asks at once. So the leader of such a view is asked
to step down, as soon as somebody leads the log.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from random import Random
from typing import Any, Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import call
from shared.bus.nats.tails.compare import led_info
from shared.bus.port import BusError
from shared.bus.streams import LEADER_ELECTED, view_of

log = structlog.get_logger(__name__)

SILENT_SECONDS: Final = 3.0
"""A log says to its view each second that there is nothing new."""

LOOK_SECONDS: Final = 1.0
LOOKS: Final = 5
"""So often a view is looked at after an election: just before it, its log may still have been heard."""

SILENT_LOOKS: Final = 2
"""So often in a row it was cut off before its leader is asked. It needs 0.6 s to ask for itself."""

ANSWER_SECONDS: Final = 2.0

Json = dict[str, Any]


class ViewSources:
    """Looks after the views of some logs at each connect and after each election."""

    def __init__(self, connection: Connection, logs: Collection[str], rng: Random) -> None:
        """`rng`: so that several replicas do not ask at once."""
        self._connection = connection
        self._log_of = {name: one for one in logs for name in (one, view_of(one))}
        self._rng = rng
        self._looks: dict[str, int] = {}
        """Log to how often its view is looked at yet."""

        self._silent: dict[str, int] = {}
        """Log to how often in a row its view was seen cut off; below zero after its leader was asked."""

        self._elected = asyncio.Event()
        self._listening_on: Client | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look at all views, and go on in the background."""
        if self._log_of:
            self._connection.up.append(self._look_at_all)
            self._look_at_all()
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    def _look_at_all(self) -> None:
        self._looks = dict.fromkeys(self._log_of.values(), LOOKS)
        self._elected.set()

    async def _on_elected(self, message: Msg) -> None:
        name = self._log_of.get(message.subject.rpartition(".")[2])
        if name is not None:
            self._looks[name] = LOOKS
            self._elected.set()

    async def _run(self) -> None:
        while True:
            await self._elected.wait()
            await self._connection.wait_ready()
            with suppress(NatsError):
                await self._listen()
            for name in [*self._looks]:
                await self._look(name)
            if not self._looks:
                self._elected.clear()
            await asyncio.sleep(LOOK_SECONDS * self._rng.uniform(0.8, 1.2))

    async def _listen(self) -> None:
        nc = self._connection.nc
        if self._listening_on is not nc:
            await nc.subscribe(LEADER_ELECTED, cb=self._on_elected)
            self._listening_on = nc

    async def _look(self, name: str) -> None:
        """Look at one view, and have another server lead it if it stays cut off from a log that is led."""
        nc = self._connection.nc
        try:
            info = await call(nc, f"STREAM.INFO.{view_of(name)}", timeout_seconds=ANSWER_SECONDS)
            if not is_cut_off(info):
                self._silent.pop(name, None)
                self._looks[name] -= 1
                if self._looks[name] <= 0 or info["config"]["num_replicas"] == 1:
                    del self._looks[name]
                return
            await led_info(nc, name)
            self._silent[name] = self._silent.get(name, 0) + 1
            if self._silent[name] >= SILENT_LOOKS:
                self._silent[name] = -LOOKS
                log.warning("a view is cut off: another server shall lead it", view=view_of(name))
                await call(nc, f"STREAM.LEADER.STEPDOWN.{view_of(name)}")
        except BusError as error:
            log.debug("cannot look at a view", log=name, error=str(error))


def is_cut_off(info: Json) -> bool:
    """Whether a replicated view, by its `STREAM.INFO`, hears nothing from its log."""
    if info["config"]["num_replicas"] == 1:
        return False
    seconds = [int(one.get("active", -1)) / 1e9 for one in info.get("sources") or []]
    return any(one < 0 or one > SILENT_SECONDS for one in seconds)
