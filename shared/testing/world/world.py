"""A seeded world: processes that crash and come back, faults for a while, and a log of it all.

One seed gives one run. Whatever may vary asks `World.random`; whoever waits does it in virtual time;
what happens is a line in `World.log`, and the same seed twice gives the same lines.
"""

import asyncio
import gc
import random as random_module
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, Self, TypeVar

import structlog

from shared.testing.world.loop import Group, VirtualLoop

__all__ = ["CALM", "EPOCH", "Faults", "Process", "ProcessContext", "World", "WorldOverError"]

T = TypeVar("T")

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""What the clock shows when a world begins."""

TRACEBACK_MAX: Final = 6
"""Innermost frames that a failure quotes."""

BUS: Final = "bus"
"""The bus server, as a party to a partition. Clusters go by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How unkind the world is. Chances are per occasion, between 0 and 1; the default is calm."""

    until_seconds: float = 0.0
    """After this the world is calm: what cannot recover by then never will."""

    crash: float = 0.0
    """The process dies at this point (each call of a port is one)."""

    down_seconds: tuple[float, float] = (0.1, 8.0)
    """How long a crashed process stays away."""

    delay: float = 0.0
    """A message or an answer takes long."""

    delay_seconds: tuple[float, float] = (0.01, 3.0)
    lost_request: float = 0.0
    """What was sent never arrives; the sender is not told."""

    lost_answer: float = 0.0
    """It was done, and nobody is told."""

    duplicate: float = 0.0
    """A worker is given a message again that it has."""

    conflict: float = 0.0
    """A cluster answers 409 for no visible reason."""

    throttled: float = 0.0
    """A cluster answers 429."""

    unavailable: float = 0.0
    """A cluster answers 500, 503 or 504, not having done it."""

    watch_break: float = 0.0
    """A watch ends after an event."""

    expired: float = 0.0
    """A watch is refused with 410."""

    partition_every_seconds: float = 0.0
    """Mean time between partitions of a process from the bus or a cluster; 0: none."""

    partition_seconds: tuple[float, float] = (0.5, 20.0)
    bus_restart_every_seconds: float = 0.0
    """Mean time between restarts of the bus server; nothing acknowledged is lost. 0: none."""

    kill_every_seconds: float = 0.0
    """Mean time between kills of some process, wherever it is. 0: none."""

    skew_seconds: float = 0.0
    """Clocks of processes are off by up to this much, either way."""


CALM: Final = Faults()


class WorldOverError(asyncio.CancelledError):
    """A port was used by a process that is dead, or after the end of the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What a process is given when it starts, each time anew."""

    world: "World"
    name: str
    life: int
    """Counts the starts of this process, from 1."""

    random: Random
    now: Callable[[], datetime]
    """This process's clock: the world's, skewed."""

    @property
    def instance(self) -> str:
        """Who is speaking, this time: ``quota-2.3``."""
        return f"{self.name}.{self.life}"


Start = Callable[[ProcessContext], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Process:
    """A program of the world: a group of tasks that dies at once and can be started again."""

    name: str
    start: Start
    life: int = 0
    group: Group | None = None
    """None while it is down."""

    mortal: bool = True
    """Whether faults may crash it."""

    skew: timedelta = timedelta()
    calls: int = field(default=0, compare=False)
    """How many points it passed in all its lives."""


class World:
    """Build it, register processes, `run` a coroutine that drives and judges, then `close` it."""

    def __init__(self, seed: int, *, faults: Faults = CALM, epoch: datetime = EPOCH) -> None:
        self.seed = seed
        self.faults = faults
        self.random = Random(f"world/{seed}")
        self.loop = VirtualLoop()
        self.log: list[str] = []
        """What happened, one line each, oldest first."""

        self.failures: list[str] = []
        """What must not happen: a process that ended by itself, a task nobody waits for that raised."""

        self.closing = False
        self.processes: dict[str, Process] = {}
        self._epoch = epoch
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[str, float] = {}
        self._outside = self.loop.context_of(None)
        self.loop.set_exception_handler(self._on_exception)

    # Time and chance

    def now(self) -> datetime:
        """The true time."""
        return self._epoch + timedelta(seconds=self.loop.time())

    @property
    def calm(self) -> bool:
        """Whether the time of faults is over."""
        return self.loop.time() >= self.faults.until_seconds

    def chance(self, probability: float) -> bool:
        """Whether a fault of this probability happens now; never once the world is calm."""
        return probability > 0 and not self.calm and self.random.random() < probability

    def between(self, bounds: tuple[float, float]) -> float:
        """A length of time within `bounds`, short ones more often."""
        low, high = bounds
        return low + (high - low) * self.random.random() ** 2

    def note(self, text: str) -> None:
        """Add a line to the log, with the time and the process that speaks."""
        if self.closing:
            return
        group = self.loop.group
        self.log.append(f"{self.loop.time():12.6f} {group.name if group else '-':<14} {text}")

    # Things that happen outside of any process

    def later(
        self, delay_seconds: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call back in the name of the world, whatever becomes of the process that asks for it."""
        return self.loop.call_later(delay_seconds, callback, *args, context=self._outside.copy())

    def outside(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` in the name of the world: a server finishes what a dead client asked for."""
        return self.loop.create_task(work, context=self._outside.copy())

    # Processes

    def process(self, name: str, start: Start, *, mortal: bool = True, up: bool = True) -> Process:
        """Register the program `name` and start it (unless `up` is False)."""
        assert name not in self.processes, f"there is a process {name} already"
        skew = self.random.uniform(-self.faults.skew_seconds, self.faults.skew_seconds)
        process = Process(name=name, start=start, mortal=mortal, skew=timedelta(seconds=skew))
        self.processes[name] = process
        if up:
            self.restart(name)
        return process

    def crash(self, name: str, *, down_seconds: float | None = None) -> None:
        """Kill the process `name` where it stands; start it again after `down_seconds`.

        Not a line of it runs any more. None: it stays down until `restart`.
        """
        process = self.processes[name]
        if process.group is None:
            return
        self.note(f"crash {name}.{process.life}")
        process.group.frozen = True
        process.group = None
        if down_seconds is not None:
            self.later(down_seconds, self.restart, name)

    def restart(self, name: str) -> None:
        """Start the process `name` if it is down."""
        process = self.processes[name]
        if process.group is not None or self.closing:
            return
        process.life += 1
        context = ProcessContext(
            world=self,
            name=name,
            life=process.life,
            random=Random(f"{self.seed}/{name}/{process.life}"),
            now=lambda: self.now() + process.skew,
        )
        self.note(f"start {context.instance}")
        process.group = Group(context.instance)
        task = self.loop.create_task(
            process.start(context),
            name=context.instance,
            context=self.loop.context_of(process.group),
        )
        task.add_done_callback(
            lambda task: self._on_end(process, context.life, task), context=self._outside.copy()
        )

    def current(self) -> Process | None:
        """The process whose code runs now."""
        group = self.loop.group
        if group is None:
            return None
        return self.processes[group.name.rpartition(".")[0]]

    def alive(self, group: Group | None) -> bool:
        """Whether the holder of a port may use it: not dead, and the world not over."""
        return not self.closing and (group is None or not group.frozen)

    async def point(self, what: str) -> None:
        """Where a process may die: ports call it around everything that others can see."""
        if self.closing:
            raise WorldOverError
        process = self.current()
        if process is None or process.group is None:
            return
        process.calls += 1
        if process.mortal and self.chance(self.faults.crash):
            self.note(f"dies at {what}")
            self.crash(process.name, down_seconds=self.between(self.faults.down_seconds))
            await self.loop.create_future()  # Frozen: this never returns.

    # Partitions

    def connected(self, process: str, to: str) -> bool:
        """Whether `process` reaches `to`: the bus or a cluster."""
        return (process, to) not in self._cut

    @property
    def whole(self) -> bool:
        """Whether nobody is cut off."""
        return not self._cut

    def partition(self, process: str, to: str, *, seconds: float | None = None) -> None:
        """Cut `process` off from `to`; it heals after `seconds`, None: when `heal` is called."""
        if (process, to) in self._cut:
            return
        self.note(f"partition {process} | {to}")
        self._cut.add((process, to))
        if seconds is not None:
            self.later(seconds, self.heal, process, to)

    def heal(self, process: str, to: str) -> None:
        """Let `process` reach `to` again."""
        if (process, to) in self._cut:
            self.note(f"heal {process} | {to}")
            self._cut.discard((process, to))

    def slow_down(self, process: str, seconds: float) -> None:
        """All that `process` sends and gets takes up to `seconds` more, until the world is calm."""
        self.note(f"slow link {process}: {seconds:g} s")
        self._slow[process] = seconds

    def slowness_seconds(self, process: str) -> float:
        """What its next packet takes more than others."""
        slow = self._slow.get(process)
        return 0.0 if slow is None or self.calm else slow * self.random.random()

    # Faults that come by themselves

    def start_faults(
        self, *, parties: tuple[str, ...] = (BUS,), bus_restart: Callable[[], object] | None = None
    ) -> None:
        """Begin with kills, partitions and restarts of the bus, as the faults say."""
        self._every(self.faults.kill_every_seconds, self._kill_one)
        self._every(self.faults.partition_every_seconds, lambda: self._partition_one(parties))
        if bus_restart is not None:
            self._every(self.faults.bus_restart_every_seconds, bus_restart)

    def _every(self, mean_seconds: float, act: Callable[[], object]) -> None:
        if mean_seconds <= 0:
            return

        def occur() -> None:
            if self.calm or self.closing:
                return
            act()
            self.later(self.random.expovariate(1 / mean_seconds), occur)

        self.later(self.random.expovariate(1 / mean_seconds), occur)

    def _mortals(self) -> list[Process]:
        return [it for it in self.processes.values() if it.mortal and it.group is not None]

    def _kill_one(self) -> None:
        if mortals := self._mortals():
            victim = self.random.choice(mortals)
            self.crash(victim.name, down_seconds=self.between(self.faults.down_seconds))

    def _partition_one(self, parties: tuple[str, ...]) -> None:
        if mortals := self._mortals():
            victim, party = self.random.choice(mortals), self.random.choice(parties)
            self.partition(victim.name, party, seconds=self.between(self.faults.partition_seconds))

    # Running

    def run(self, drive: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `drive`, which is nobody's process, to its end, and everybody else meanwhile."""
        # Collecting cycles closes generators at moments that depend on what ran before this world.
        collecting = gc.isenabled()
        gc.disable()
        state = random_module.getstate()
        random_module.seed(self.seed)
        logging = structlog.get_config()
        structlog.configure(
            processors=[self._on_log_line],
            wrapper_class=structlog.make_filtering_bound_logger("info"),
            cache_logger_on_first_use=False,
        )
        try:
            driving: asyncio.Task[T] = self.loop.create_task(
                drive(), name="drive", context=self._outside.copy()
            )
            return self.loop.run_until_complete(driving)
        finally:
            self.loop.sweep()
            structlog.configure(**logging)
            random_module.setstate(state)
            if collecting:
                gc.enable()

    def _on_log_line(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        """Services' own log lines belong to the world's log, and nowhere else."""
        said = event.pop("event", "")
        error = sys.exc_info()[1] if event.pop("exc_info", None) else None
        more = "".join(f" {name}={value!r}" for name, value in event.items())
        self.note(f"{level}: {said}{more}" + (f" {error!r}" if error else ""))
        raise structlog.DropEvent

    def close(self) -> None:
        """End all that is left. Nothing it does on the way out has an effect."""
        self.closing = True
        self.loop.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _on_end(self, process: Process, life: int, task: "asyncio.Task[None]") -> None:
        if self.closing or process.life != life or process.group is None:
            return
        error = None if task.cancelled() else task.exception()
        said = _told(error) if error else "it returned"
        self.note(
            f"end {process.name}.{life}: {error!r}" if error else f"end {process.name}.{life}"
        )
        self.failures.append(f"process {process.name}.{life} ended by itself: {said}")
        process.group.frozen = True
        process.group = None
        self.later(self.between(self.faults.down_seconds), self.restart, process.name)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        del loop
        if self.closing:
            return
        error = context.get("exception")
        said = _told(error) if error else ""
        self.note(f"unhandled: {context.get('message')}: {error!r}")
        self.failures.append(f"{context.get('message')}: {said}")


def _told(error: BaseException) -> str:
    """An exception with the end of its traceback; of a group, the first one in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "".join(traceback.format_exception(error, limit=-TRACEBACK_MAX, chain=False)).strip()
