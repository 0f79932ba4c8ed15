"""A seeded world: processes that crash and restart, faults for a limited time, and a log.

One seed gives one run: all randomness comes from `World.random` and all waits are in virtual time.
Each event is a line in `World.log`; the same seed gives the same lines.
"""

import asyncio
import gc
import random as random_module
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, Self, TypeVar

import structlog

from shared.testing.world.links import Links
from shared.testing.world.loop import STEPS_MAX, Group, VirtualLoop

T = TypeVar("T")

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Time at which a world starts."""

TRACEBACK_MAX: Final = 6
"""Number of innermost frames in a failure message."""

BUS: Final = "bus"
"""The bus server, as a party to a partition. Clusters go by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of a world. Probabilities apply to each occasion; the default has no faults."""

    until_seconds: float = 0.0
    """End of all faults: the system must recover afterwards."""

    crash: float = 0.0
    """Probability that the process crashes at a point; each call of a port is one."""

    down_seconds: tuple[float, float] = (0.1, 8.0)
    """How long a crashed process stays down."""

    delay: float = 0.0
    """Probability that a message or response is slow."""

    delay_seconds: tuple[float, float] = (0.01, 3.0)
    lost_request: float = 0.0
    """Probability that a request is lost, without an error."""

    lost_answer: float = 0.0
    """Probability that a request is executed and its response is lost."""

    duplicate: float = 0.0
    """Probability that a worker gets a message twice."""

    conflict: float = 0.0
    """Probability that a cluster answers 409 without a visible reason."""

    throttled: float = 0.0
    """Probability that a cluster answers 429."""

    unavailable: float = 0.0
    """Probability that a cluster answers 500, 503 or 504 without executing the request."""

    watch_break: float = 0.0
    """Probability that a watch ends after an event."""

    expired: float = 0.0
    """Probability that a watch is refused with 410."""

    partition_every_seconds: float = 0.0
    """Mean time between partitions of a process from the bus or a cluster; 0: none."""

    partition_seconds: tuple[float, float] = (0.5, 20.0)
    bus_restart_every_seconds: float = 0.0
    """Mean time between restarts of the bus server; nothing acknowledged is lost. 0: none."""

    kill_every_seconds: float = 0.0
    """Mean time between kills of a random process at any point. 0: none."""

    skew_seconds: float = 0.0
    """Clocks of processes are off by up to this much, either way."""

    clock_jump_every_seconds: float = 0.0
    """Mean time between jumps of the clock of a random process. 0: none."""

    clock_jump_seconds: float = 30.0
    """A clock is off by up to this much after a jump, either way."""

    pause_every_seconds: float = 0.0
    """Mean time between pauses of a random process, with its timers, as by SIGSTOP. 0: none."""

    pause_seconds: tuple[float, float] = (1.0, 60.0)
    hold_every_seconds: float = 0.0
    """Mean time between holds: packets of a process in one or both directions arrive late. 0: none."""

    hold_seconds: tuple[float, float] = (0.5, 40.0)


CALM: Final = Faults()


class WorldOverError(asyncio.CancelledError):
    """A dead process used a port, or a port was used after the end of the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What a process gets at each start."""

    world: "World"
    name: str
    start_number: int
    """Counts the starts of this process, from 1."""

    random: Random
    now: Callable[[], datetime]
    """This process's clock: the world's, skewed."""

    @property
    def instance(self) -> str:
        """Instance name of this start, such as ``quota-2.3``."""
        return f"{self.name}.{self.start_number}"


Start = Callable[[ProcessContext], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Process:
    """A program of the world: a group of tasks that crash together and can be restarted."""

    name: str
    start: Start
    start_number: int = 0
    group: Group | None = None
    """None while it is down."""

    mortal: bool = True
    """True if faults may crash it."""

    skew: timedelta = timedelta()


def _look_at(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class World:
    """Create it, register processes, `run` a coroutine that drives and checks, then `close` it."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults = CALM,
        epoch: datetime = EPOCH,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.random = Random(f"world/{seed}")
        self.loop = VirtualLoop(steps_max=steps_max)
        self.log: list[str] = []
        """What happened, one line each, oldest first."""

        self.failures: list[str] = []
        """Failures: a process that ended by itself, or an exception in a task that nothing awaits."""

        self.closing = False
        self.processes: dict[str, Process] = {}
        self._epoch = epoch
        self.links = Links(now=self.loop.time, note=self.note)
        self._outside = self.loop.context_of(None)
        self.loop.set_exception_handler(self._on_exception)

    # Time and chance

    def now(self) -> datetime:
        """The true time."""
        return self._epoch + timedelta(seconds=self.loop.time())

    @property
    def calm(self) -> bool:
        """True once the time of faults is over."""
        return self.loop.time() >= self.faults.until_seconds

    def chance(self, probability: float) -> bool:
        """Draw whether a fault of this probability happens now; never once the world is calm."""
        return probability > 0 and not self.calm and self.random.random() < probability

    def between(self, bounds: tuple[float, float]) -> float:
        """Draw a duration within `bounds`, short ones more often."""
        low, high = bounds
        return low + (high - low) * self.random.random() ** 2

    def note(self, text: str) -> None:
        """Add a line to the log, with the time and the running process."""
        if self.closing:
            return
        group = self.loop.group
        self.log.append(f"{self.loop.time():12.6f} {group.name if group else '-':<14} {text}")

    # Things that happen outside of any process

    def later(
        self, delay_seconds: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call back outside of any process, even if the calling process dies."""
        return self.loop.call_later(delay_seconds, callback, *args, context=self._outside.copy())

    def outside(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` outside of any process: a server finishes the request of a dead client."""
        return self.loop.create_task(work, context=self._outside.copy())

    def answering(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """The same for a request whose client may have died, and then never hears how it ended."""
        task = self.outside(work)
        task.add_done_callback(_look_at, context=self._outside.copy())
        return task

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
        """Kill the process `name` at once; restart it after `down_seconds`.

        None of its code runs any more. With None it stays down until `restart`.
        """
        process = self.processes[name]
        if process.group is None:
            return
        self.note(f"crash {name}.{process.start_number}")
        process.group.freeze()
        process.group = None
        if down_seconds is not None:
            self.later(down_seconds, self.restart, name)

    def pause(self, name: str, *, seconds: float) -> None:
        """Stop the process `name` for `seconds`. What was due meanwhile runs at the end, timers too."""
        process = self.processes[name]
        if process.group is None or process.group.parks:
            return
        self.note(f"pause {name}.{process.start_number} for {seconds:.3f} s")
        process.group.pause()
        self.later(seconds, self._resume, process.group)

    def _resume(self, group: Group) -> None:
        if not group.frozen and not self.closing:
            self.note(f"resume {group.name}")
            self.loop.resume(group)

    def restart(self, name: str) -> None:
        """Start the process `name` if it is down."""
        process = self.processes[name]
        if process.group is not None or self.closing:
            return
        process.start_number += 1
        context = ProcessContext(
            world=self,
            name=name,
            start_number=process.start_number,
            random=Random(f"{self.seed}/{name}/{process.start_number}"),
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
            lambda task: self._on_end(process, context.start_number, task),
            context=self._outside.copy(),
        )

    def current(self) -> Process | None:
        """The running process; None for the world itself."""
        group = self.loop.group
        if group is None:
            return None
        return self.processes[group.name.rpartition(".")[0]]

    def alive(self, group: Group | None) -> bool:
        """True if a process may use its ports: it is alive and the world has not ended."""
        return not self.closing and (group is None or not group.frozen)

    async def point(self, what: str) -> None:
        """A point at which a process may crash; ports call it around everything visible to others."""
        if self.closing:
            raise WorldOverError
        process = self.current()
        if process is None or process.group is None:
            return
        if process.mortal and self.chance(self.faults.crash):
            self.note(f"dies at {what}")
            self.crash(process.name, down_seconds=self.between(self.faults.down_seconds))
            await self.loop.create_future()  # Frozen: this never returns.

    # Partitions

    def connected(self, process: str, to: str) -> bool:
        """True if `process` can reach `to`: the bus or a cluster."""
        return self.links.connected(process, to)

    @property
    def whole(self) -> bool:
        """True if there is no partition."""
        return self.links.whole

    def partition(self, process: str, to: str, *, seconds: float | None = None) -> None:
        """Cut `process` off from `to`; it heals after `seconds`, None: when `heal` is called."""
        if self.links.cut(process, to) and seconds is not None:
            self.later(seconds, self.heal, process, to)

    def heal(self, process: str, to: str) -> None:
        """End the partition of `process` from `to`."""
        self.links.heal(process, to)

    def slow_down(self, process: str, seconds: float) -> None:
        """Add up to `seconds` of latency to all packets of `process`, until the world is calm."""
        self.links.slow_down(process, seconds)

    def slowness_seconds(self, process: str) -> float:
        """Draw the additional latency of its next packet."""
        return 0.0 if self.calm else self.links.slowness_seconds(process, self.random)

    # Faults that come by themselves

    def start_faults(
        self, *, parties: tuple[str, ...] = (BUS,), bus_restart: Callable[[], object] | None = None
    ) -> None:
        """Start kills, pauses, cuts, holds, jumps of clocks and restarts of the bus, as the faults say."""
        faults = self.faults
        self._every(faults.kill_every_seconds, self._kill_one)
        self._every(faults.partition_every_seconds, lambda: self._partition_one(parties))
        self._every(faults.pause_every_seconds, self._pause_one)
        self._every(faults.hold_every_seconds, lambda: self._hold_one(parties))
        self._every(faults.clock_jump_every_seconds, self._move_one_clock)
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

    def _pause_one(self) -> None:
        if mortals := self._mortals():
            victim = self.random.choice(mortals)
            self.pause(victim.name, seconds=self.between(self.faults.pause_seconds))

    def _hold_one(self, parties: tuple[str, ...]) -> None:
        if mortals := self._mortals():
            victim, party = self.random.choice(mortals), self.random.choice(parties)
            ways = self.random.choice((("request",), ("answer",), ("request", "answer")))
            seconds = self.between(self.faults.hold_seconds)
            self.links.hold(victim.name, party, ways=ways, seconds=seconds)

    def _move_one_clock(self) -> None:
        if mortals := self._mortals():
            victim, most = self.random.choice(mortals), self.faults.clock_jump_seconds
            victim.skew = timedelta(seconds=self.random.uniform(-most, most))
            self.note(f"clock of {victim.name} is off by {victim.skew.total_seconds():.3f} s")

    # Running

    def run(self, drive: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `drive` outside of any process to its end, with all processes beside it."""
        # The cycle collector closes generators at times that depend on what ran before this world.
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
            self.loop.sweep(last=True)
            structlog.configure(**logging)
            random_module.setstate(state)
            if collecting:
                gc.enable()

    def _on_log_line(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        """Write the services' log lines to the world's log only."""
        event_text = event.pop("event", "")
        error = sys.exc_info()[1] if event.pop("exc_info", None) else None
        for name, value in sorted(structlog.contextvars.get_contextvars().items()):
            event.setdefault(name, value)
        more = "".join(f" {name}={value!r}" for name, value in event.items())
        self.note(f"{level}: {event_text}{more}" + (f" {error!r}" if error else ""))
        raise structlog.DropEvent

    def close(self) -> None:
        """Cancel everything that still runs; its ports have no effect any more."""
        self.closing = True
        self.loop.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _on_end(self, process: Process, start_number: int, task: "asyncio.Task[None]") -> None:
        if self.closing or process.start_number != start_number or process.group is None:
            return
        error = None if task.cancelled() else task.exception()
        reason = _told(error) if error else "it returned"
        self.note(
            f"end {process.name}.{start_number}: {error!r}"
            if error
            else f"end {process.name}.{start_number}"
        )
        self.failures.append(f"process {process.name}.{start_number} ended by itself: {reason}")
        process.group.freeze()
        process.group = None
        self.later(self.between(self.faults.down_seconds), self.restart, process.name)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        del loop
        if self.closing:
            return
        error = context.get("exception")
        reason = _told(error) if error else ""
        self.note(f"unhandled: {context.get('message')}: {error!r}")
        self.failures.append(f"{context.get('message')}: {reason}")


def _told(error: BaseException) -> str:
    """Format an exception with the end of its traceback; of a group, its first exception."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "".join(traceback.format_exception(error, limit=-TRACEBACK_MAX, chain=False)).strip()
