"""Has a view take in its log again when an election has cut it off.

The server that leads a view asks the one that leads its log for what is new. If nobody leads the log at that
moment, the question is lost, and nats-server (2.15) asks again after forty seconds: 30 s for an answer, then
10 s of pause. Another server that comes to lead the view asks at once. So the leader of such a view is asked
to step down, as soon as somebody leads the log.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import STREAM_NOT_FOUND, ApiError, Json, call
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
"""So often in a row a leader has heard nothing before it is asked to step down: it asks within 0.6 s."""

SILENT_LOOKS_MAX: Final = 60
"""The same, where other leaders did not help."""

ANSWER_SECONDS: Final = 2.0


@dataclass(slots=True)
class _View:
    """A view that is looked at."""

    looks_left: int = LOOKS
    leader: str = ""
    silent: int = 0
    """Looks in a row at which this leader had heard nothing."""

    patience: int = SILENT_LOOKS
    """After so many of them it is asked."""


class ViewSources:
    """Looks after the views of some logs at each connect and after each election."""

    def __init__(self, connection: Connection, logs: Collection[str], rng: Random) -> None:
        """`rng`: so that several replicas do not look at once."""
        self._connection = connection
        self._log_of = {name: one for one in logs for name in (one, view_of(one))}
        self._rng = rng
        self._views: dict[str, _View] = {}
        """By their logs."""

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
        for log_name in self._log_of.values():
            self._look_again(log_name)

    def _look_again(self, log_name: str) -> None:
        self._views.setdefault(log_name, _View()).looks_left = LOOKS
        self._elected.set()

    async def _on_elected(self, message: Msg) -> None:
        log_name = self._log_of.get(message.subject.rpartition(".")[2])
        if log_name is not None:
            self._look_again(log_name)

    async def _run(self) -> None:
        while True:
            await self._elected.wait()
            await self._connection.wait_ready()
            with suppress(NatsError):
                await self._listen()
            # At once: of a view that nobody leads there is no answer, and the others must not wait for it.
            await asyncio.gather(*(self._look(*one) for one in [*self._views.items()]))
            if not self._views:
                self._elected.clear()
            await asyncio.sleep(LOOK_SECONDS * self._rng.uniform(0.8, 1.2))

    async def _listen(self) -> None:
        nc = self._connection.nc
        if self._listening_on is not nc:
            await nc.subscribe(LEADER_ELECTED, cb=self._on_elected)
            self._listening_on = nc

    async def _look(self, log_name: str, view: _View) -> None:
        """Look at one view, and have another server lead it if it stays cut off from a log that is led."""
        nc, name = self._connection.nc, view_of(log_name)
        try:
            info = await call(nc, f"STREAM.INFO.{name}", timeout_seconds=ANSWER_SECONDS)
            if not is_cut_off(info):
                self._note_hearing(log_name, view, info)
                return
            await led_info(nc, log_name, timeout_seconds=ANSWER_SECONDS)
            leader = str((info.get("cluster") or {}).get("leader") or "")
            view.silent = view.silent + 1 if leader == view.leader else 1
            view.leader = leader
            if view.silent >= view.patience:
                view.silent, view.patience = 0, min(2 * view.patience, SILENT_LOOKS_MAX)
                log.warning(
                    "a view is cut off: another server shall lead it", view=name, leader=leader
                )
                await call(nc, f"STREAM.LEADER.STEPDOWN.{name}")
        except BusError as error:
            log.debug("cannot look at a view", view=name, error=str(error))
            if isinstance(error, ApiError) and error.code == STREAM_NOT_FOUND:
                self._views.pop(log_name, None)

    def _note_hearing(self, log_name: str, view: _View, info: Json) -> None:
        view.silent, view.patience = 0, SILENT_LOOKS
        view.looks_left -= 1
        if view.looks_left <= 0 or info["config"]["num_replicas"] == 1:
            self._views.pop(log_name, None)


def is_cut_off(info: Json) -> bool:
    """Whether a replicated view, by its `STREAM.INFO`, hears nothing from its log."""
    if info["config"]["num_replicas"] == 1:
        return False
    seconds = [int(one.get("active", -1)) / 1e9 for one in info.get("sources") or []]
    return any(one < 0 or one > SILENT_SECONDS for one in seconds)
