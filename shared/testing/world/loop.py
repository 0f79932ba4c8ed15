"""A deterministic asyncio event loop with a virtual clock: waiting takes no real time.

When no callback is ready, time jumps to the next timer. There is no I/O and there are no threads, so
a run depends only on what is started on it. A callback belongs to the group (a process of the world)
in whose context it was scheduled. Callbacks of a frozen group are kept instead of run, which acts as
`kill -9` does on a program: no `except` and no `finally` runs.
"""

import asyncio
import contextvars
import functools
import heapq
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX: Final = 20_000_000
"""Most callbacks of one run; a world of a few hundred workloads needs less than a million."""

STEPS_PER_INSTANT_MAX: Final = 500_000
"""Most callbacks at one virtual instant; more means an endless loop."""

RESOLUTION_SECONDS: Final = 1e-9
WAITING_SHOWN_MAX: Final = 40
SWEEP_TASKS_MIN: Final = 256
UNSEEN_SECONDS: Final = 300.0
"""How long a failed task may wait for somebody who looks at it: longer than any pause and time-out."""

CANCELLED_TIMERS_MIN: Final = 100
DISPOSE_ROUNDS_MAX: Final = 20
DISPOSE_ROUND_SECONDS: Final = 3600.0


class DeadlockError(RuntimeError):
    """Tasks wait, and no callback is scheduled that could wake them."""

    def __init__(self, waiting: list[str]) -> None:
        shown = waiting[:WAITING_SHOWN_MAX]
        more = f"\n  … and {len(waiting) - len(shown)} more" if len(waiting) > len(shown) else ""
        super().__init__(
            "nothing is scheduled, but these tasks wait:\n  " + "\n  ".join(shown) + more
        )
        self.waiting = waiting


class StepBudgetError(RuntimeError):
    """More callbacks ran than any correct run needs."""

    def __init__(self, steps: int, seconds: float, where: str) -> None:
        super().__init__(f"{steps} callbacks {where} at virtual time {seconds:.6f} s")


class NoThreadsError(RuntimeError):
    """Code asked for a thread; threads are not deterministic."""

    def __init__(self, func: object) -> None:
        while isinstance(func, functools.partial):
            # asyncio.to_thread wraps it in a context.
            func = func.args[0] if func.args and callable(func.args[0]) else func.func
        name = getattr(func, "__qualname__", repr(func))
        super().__init__(
            f"{name} wants a thread: a world has none. Keep files, name lookup and blocking calls "
            "out of the paths that run in it"
        )


class Group:
    """Callbacks that are frozen together: those of one process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        """True once it is dead."""

        self.parks = False
        """True while its callbacks are kept instead of run: it is dead or paused."""

        self.parked: list[_Handle | _TimerHandle] = []
        """Callbacks that were due meanwhile. Only `VirtualLoop.dispose` runs those of a dead group."""

    def freeze(self) -> None:
        """Kill it: none of its code runs any more."""
        self.frozen = self.parks = True

    def pause(self) -> None:
        """Stop it as SIGSTOP does; `VirtualLoop.resume` lets it go on."""
        self.parks = True


class _Handle(asyncio.Handle):
    """A callback with its group. Created by the million, so it sets only asyncio's own attributes."""

    __slots__ = ("group",)

    def __init__(  # the loop looks at no more than this
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualLoop",
        context: contextvars.Context,
        group: Group | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.group = group


class _TimerHandle(asyncio.TimerHandle):
    """A timer with its group."""

    __slots__ = ("group",)

    def __init__(  # as above
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualLoop",
        context: contextvars.Context,
        group: Group | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.group = group


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic asyncio. Use it through `World`, or alone with `run_until_complete`."""

    # BaseEventLoop's own, which its stubs leave out.
    _ready: deque[_Handle | _TimerHandle]  # ours alone get there
    _timer_cancelled_count: int
    _stopping: bool
    _closed: bool

    def __init__(
        self, *, steps_max: int = STEPS_MAX, steps_per_instant_max: int = STEPS_PER_INSTANT_MAX
    ) -> None:
        super().__init__()
        self._clock_resolution = RESOLUTION_SECONDS
        self._seconds = 0.0
        self._steps_max = steps_max
        self._steps_per_instant_max = steps_per_instant_max
        self._instant_steps = 0
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        """A heap; the number keeps timers of one instant in the order of their creation."""

        self._timer_count = 0
        self._tasks: list[tuple[asyncio.Task[Any], Group | None]] = []
        self._sweep_at = SWEEP_TASKS_MIN
        self._failed: list[tuple[float, asyncio.Task[Any], Group | None]] = []
        """Tasks whose exception nobody has retrieved yet, and until when somebody may."""

        self._task_count = 0
        self._group: contextvars.ContextVar[Group | None] = contextvars.ContextVar("group")
        self.steps = 0
        """Number of callbacks run so far."""

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._seconds

    @property
    def group(self) -> Group | None:
        """Group of the running callback."""
        return self._group.get(None)

    def context_of(self, group: Group | None) -> contextvars.Context:
        """Return a new context for callbacks of `group`; None is the world itself."""
        context = contextvars.Context()
        context.run(self._group.set, group)
        return context

    def _run_once(self) -> None:
        """Replace BaseEventLoop's own, which polls for I/O: jump to the next timer instead."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)[2]._scheduled = False  # noqa: SLF001 # as below
            self._timer_cancelled_count -= 1
        if self._timer_cancelled_count > max(CANCELLED_TIMERS_MIN, len(timers) // 2):
            timers[:] = [timer for timer in timers if not timer[2].cancelled()]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        waiting = len(ready)
        self.steps += waiting
        self._instant_steps += waiting + 1
        if self.steps > self._steps_max or self._instant_steps > self._steps_per_instant_max:
            raise self._too_much()
        if not waiting and not self._stopping:
            self._advance()
        due = self._seconds + self._clock_resolution
        while timers and timers[0][0] < due:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # noqa: SLF001 # BaseEventLoop counts by it
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001 # what `cancelled` says
                continue
            if handle.group is not None and handle.group.parks:
                handle.group.parked.append(handle)
            else:
                handle._run()  # noqa: SLF001 # what a loop calls

    def _too_much(self) -> StepBudgetError:
        if self.steps > self._steps_max:
            return StepBudgetError(self.steps, self._seconds, "in one run")
        return StepBudgetError(self._instant_steps, self._seconds, "without time passing")

    def _advance(self) -> None:
        """Advance the time to the next timer."""
        if not self._timers:
            raise DeadlockError(self._waiting())
        if self._timers[0][0] > self._seconds:
            self._seconds = self._timers[0][0]
            # A timer is due *before* now plus the resolution. After some virtual days a billionth is
            # lost in rounding, and no timer would ever be due.
            self._clock_resolution = max(RESOLUTION_SECONDS, 2 * math.ulp(self._seconds))
            self._instant_steps = 0

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's; the callback belongs to the group of its context."""
        assert not self._closed, "the world is over"
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(callback, args, self, context, context.get(self._group, None))
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """The same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return self._set(self._seconds + delay, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's; the callback belongs to the group of its context."""
        return self._set(when, callback, args, context)

    def _set(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        assert not self._closed, "the world is over"
        if context is None:
            context = contextvars.copy_context()
        timer = _TimerHandle(when, callback, args, self, context, context.get(self._group, None))
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        timer._scheduled = True  # noqa: SLF001 # BaseEventLoop counts by it
        return timer

    def run_in_executor(  # type: ignore[override] # it never returns
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> NoReturn:
        """Refuse: raises `NoThreadsError`."""
        del executor, args
        raise NoThreadsError(func)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 # asyncio's own signature
        """Nothing to do: there is none."""
        del timeout

    def tasks_of(self, group: Group | None) -> list[asyncio.Task[Any]]:
        """Return the tasks of a group that have not ended."""
        return [task for task, known in self._tasks if known is group and not task.done()]

    def called_later(self, group: Group | None) -> list[object]:
        """Return the callbacks of a group's timers, with their arguments."""
        handles = [timer for _, _, timer in self._timers if timer.group is group]
        left = [handle for handle in handles if not handle.cancelled()]
        return [(handle._callback, handle._args) for handle in left]  # noqa: SLF001 # asyncio's

    def resume(self, group: Group) -> None:
        """Let a paused group go on: everything that was due meanwhile runs now, in its order."""
        if group.frozen or not group.parks:
            return
        group.parks = False
        parked, group.parked = group.parked, []
        self._ready.extend(parked)

    def sweep(self, *, last: bool = False) -> None:
        """Drop finished tasks; report those whose exception is not retrieved within `UNSEEN_SECONDS`.

        asyncio reports such a task when it is collected, which is not deterministic; this is. A process
        that died when its task failed cannot retrieve the exception any more. `asyncio.gather` retrieves it
        when its last task has ended, so that it may take a while; the `last` sweep waits for nobody.
        """
        now = self.time()
        self._failed += [
            (now + UNSEEN_SECONDS, task, group)
            for task, group in self._tasks
            if task.done() and getattr(task, "_log_traceback", False)
        ]
        self._tasks = [known for known in self._tasks if not known[0].done()]
        self._sweep_at = 2 * len(self._tasks) + SWEEP_TASKS_MIN
        failed, self._failed = self._failed, []
        for until, task, group in failed:
            if not getattr(task, "_log_traceback", False) or (group and group.frozen):
                continue
            if not last and now < until:
                self._failed.append((until, task, group))
                continue
            context = {
                "message": f"nobody looked at how {task.get_name()} ended",
                "exception": task.exception(),  # This counts as retrieving it.
                "task": task,
            }
            self.call_exception_handler(context)

    def dispose(self) -> None:
        """Cancel all remaining tasks, also frozen ones, and close. Ports must refuse calls by now."""
        self._steps_max += self.steps
        self._instant_steps = 0
        for group in {id(group): group for _, group in self._tasks if group}.values():
            group.frozen = group.parks = False
            parked, group.parked = group.parked, []
            for handle in parked:
                self.call_soon(handle._run, context=self.context_of(None))  # noqa: SLF001 # what a loop calls
        for _ in range(DISPOSE_ROUNDS_MAX):
            left = [task for task, _ in self._tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.sleep(DISPOSE_ROUND_SECONDS))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def create_task(
        self, coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        """Name tasks by a count of this loop: asyncio's own count continues over worlds.

        Not a task factory: Python 3.13.0 renames what a factory made, to "None".
        """
        self._task_count += 1
        context: contextvars.Context | None = options.get("context")
        group = self.group if context is None else context.get(self._group, None)
        if options.get("name") is None:
            options["name"] = f"{group.name if group else 'world'}#{self._task_count}"
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._tasks.append((task, group))
        if len(self._tasks) >= self._sweep_at:
            self.sweep()
        return task

    def _process_events(self, event_list: list[NoReturn]) -> None:
        """There is no I/O."""

    def _waiting(self) -> list[str]:
        """Return where each task waits, oldest first; tasks of frozen groups do not count."""
        return [
            f"{task.get_name()} at {_place(task)}"
            for task, group in self._tasks
            if not task.done() and not (group is not None and group.frozen)
        ]


def _place(task: "asyncio.Task[Any]") -> str:
    """Return the innermost line outside asyncio in which `task` waits."""
    awaited: Any = task.get_coro()
    place = "?"
    while awaited is not None:
        for frame_of, next_of in _AWAITABLES:
            frame = getattr(awaited, frame_of, None)
            if frame is not None:
                code = frame.f_code
                if "asyncio" not in code.co_filename:
                    place = f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})"
                awaited = getattr(awaited, next_of, None)
                break
        else:
            break
    return place


_AWAITABLES: Final = (
    ("cr_frame", "cr_await"),
    ("gi_frame", "gi_yieldfrom"),
    ("ag_frame", "ag_await"),
)
"""Attributes of coroutines, generators and async generators: their frame and what they await."""


def run_virtual(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time; return its result.

    Tasks that it leaves behind are cancelled.
    """
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(story)
    finally:
        loop.dispose()
