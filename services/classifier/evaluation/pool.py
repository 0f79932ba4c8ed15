"""Lanes of child processes: small objects do not wait behind large ones.

The light lane evaluates the expressions of small reviews, the heavy lane answers whole reviews, and one
more converts lists. In each, the source that had least time is next. A namespace whose expressions need more
than a quarter of a second of CPU is cut off, and has the heavy lane for a minute.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog

from services.classifier.cel import Mutation, Programs
from services.classifier.evaluation.expressions import Evaluation, mutations_from_json
from services.classifier.evaluation.fair_queue import FairQueue, Source
from services.classifier.evaluation.frames import HEADER, Frame, Job, Setup
from services.classifier.metrics import EVALUATIONS_CUT_OFF
from services.classifier.refusal import RefusedError, WebhookRule

log = structlog.get_logger(__name__)

LIGHT_WORKERS: Final = 2
"""One answers while the other starts anew."""

LIGHT_CPU_SECONDS: Final = 0.25
HEAVY_NICE: Final = 10
"""Where CPU is short, the kernel prefers the event loop and the light lane."""

LIGHT_PROGRAM: Final = "services.classifier.evaluation.worker"
HEAVY_PROGRAM: Final = "services.classifier.webhook.reviewing.worker"

HEAVY_WAITING_MAX: Final = 32
"""Reviews of one namespace that wait for the heavy lane. A client of an API server tries again later."""

CONVERSION_SECONDS: Final = 30.0
"""An API server waits no longer for a conversion. Each says how much of it its CPU may take."""

CONVERSION_MEMORY_BYTES: Final = 320 * 1024 * 1024
"""The largest list of 128 MiB, what it is converted to, and one object of it that is read."""

KEPT_AFTER_BYTES_MAX: Final = 8 * 1024 * 1024
"""A process that has converted more ends with it: its memory would stay as large."""

HEAVY_AFTER_CUT_OFF_SECONDS: Final = 60.0
SOURCES_REMEMBERED_MAX: Final = 1_000
"""Many namespaces must not fill the memory. When it is full, all get another try in the light lane."""

WAIT_SECONDS: Final = 8.0
"""An API server gives up after ten."""

START_SECONDS: Final = 30.0
RESTART_SECONDS: Final = 0.2


@dataclass(slots=True, eq=False)
class _Waiting:
    job: Job
    result: asyncio.Future[Frame] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def fail(self, error: Exception) -> None:
        """Fail the job with the error, unless its caller was cancelled."""
        if not self.result.done():
            self.result.set_exception(error)


class TooHeavyError(Exception):
    """The light lane is not for these expressions."""


class _CutOffError(Exception):
    """The child ended during a job."""

    def __init__(self, rule: WebhookRule) -> None:
        super().__init__()
        self.rule = rule


class _Child:
    """One process. `ask` starts it if there is none."""

    def __init__(
        self, program: str, *, cpu_seconds: float, memory_bytes: int, nice: int, wait_seconds: float
    ) -> None:
        """`program`: the module that it runs."""
        self._arguments = (program, str(cpu_seconds), str(memory_bytes), str(nice))
        self._wait_seconds = wait_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._told: dict[str, Any] = {}

    async def ask(self, job: Job) -> Frame:
        """Return the child's answer. Raises `_CutOffError`."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                if self._process is None:
                    await self.start()
                for name, setup in job.setups.items():
                    if name not in self._told or self._told[name] != setup.value:
                        ready = await self._exchange(Frame({"do": name, **setup.head()}))
                        if "failed" in ready.head:
                            raise RuntimeError(f"{name}: {ready.head['failed']}")
                        self._told[name] = setup.value
                answer = await self._exchange(job.frame)
                while "ask" in answer.head:
                    outcome = job.answer(*answer.head["ask"])
                    answer = await self._exchange(Frame({"answer": outcome}))
                return answer
        except (EOFError, ConnectionError, TimeoutError) as error:
            status = await self.close()
            raise _CutOffError(
                WebhookRule.CPU
                if isinstance(error, TimeoutError) or status == -signal.SIGPROF
                else WebhookRule.MEMORY
            ) from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def start(self) -> None:
        """Start the process and wait until it is ready."""
        self._told = {}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        await self._receive()

    async def close(self) -> int:
        """End the process; return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            # It may be about to end by itself: that status says why.
            async with asyncio.timeout(0.05):
                return await process.wait()
        except TimeoutError:
            return await _killed(process)
        except asyncio.CancelledError:
            await _killed(process)
            raise

    async def _exchange(self, frame: Frame) -> Frame:
        assert self._process is not None
        assert self._process.stdin is not None
        for part in (frame.written(), *frame.parts()):
            self._process.stdin.write(part)
        await self._process.stdin.drain()
        return await self._receive()

    async def _receive(self) -> Frame:
        assert self._process is not None
        assert self._process.stdout is not None
        read = self._process.stdout.readexactly
        head, body = HEADER.unpack(await read(HEADER.size))
        found: dict[str, Any] = orjson.loads(await read(head))
        return Frame(found, await read(body) if body else b"")


async def _killed(process: asyncio.subprocess.Process) -> int:
    """Kill a process and return its exit status. It is reaped also if the caller is cancelled."""
    cancelled: asyncio.CancelledError | None = None
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    while process.returncode is None:
        try:
            await process.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return process.returncode


def _environment() -> dict[str, str]:
    """A child needs no settings and no credentials: only where its modules are."""
    return {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


class _Lane:
    """What waits, and children that take from it."""

    def __init__(
        self,
        name: str,
        children: list[_Child],
        *,
        wait_seconds: float,
        waiting_max: int,
        source_bytes_max: int,
        at_rest: bool = True,
    ) -> None:
        """`at_rest`: the children are there before the first job, and after the largest."""
        self._name = name
        self._children = children
        self._wait_seconds = wait_seconds
        self._waiting_max = waiting_max
        self._source_bytes_max = source_bytes_max
        self._at_rest = at_rest
        self._queue = FairQueue[_Waiting]()
        self._wake = asyncio.Condition()

    async def submit(self, job: Job) -> Frame:
        """Wait for the result. Raises `RefusedError` or `_CutOffError`."""
        sizes = [each.job.size for each in self._queue.of(job.source)]
        waiting = sum(sizes)
        if len(sizes) >= self._waiting_max or (
            sizes and waiting + job.size > self._source_bytes_max
        ):
            raise RefusedError(
                WebhookRule.BUSY,
                namespace=job.source.namespace,
                count=len(sizes),
                size=waiting,
                most=self._waiting_max,
                bytes_most=self._source_bytes_max,
            )
        mine = _Waiting(job)
        self._queue.push(job.source, mine)
        try:
            async with self._wake:
                self._wake.notify()
            async with asyncio.timeout(self._wait_seconds):
                return await mine.result
        except TimeoutError as error:
            raise RefusedError(WebhookRule.LATE, seconds=self._wait_seconds) from error
        finally:
            self._queue.remove(job.source, mine)

    async def serve(self, child: _Child) -> None:
        """Answer jobs with one child, until cancelled."""
        try:
            if self._at_rest:
                await self._restart(child)
            while True:
                async with self._wake:
                    await self._wake.wait_for(lambda: bool(self._queue))
                    source, waiting = self._queue.pop()
                if waiting.result.done():
                    continue
                began = time.monotonic()
                await self._serve_one(child, waiting)
                self._queue.charge(source, time.monotonic() - began)
        finally:
            await child.close()

    async def _serve_one(self, child: _Child, waiting: _Waiting) -> None:
        try:
            answer = await child.ask(waiting.job)
        except _CutOffError as error:
            EVALUATIONS_CUT_OFF.labels(self._name, error.rule.label).inc()
            waiting.fail(error)
            if self._at_rest:
                await self._restart(child)
        except Exception as error:
            # A lane without its child would answer nobody any more.
            log.exception("an evaluating process failed", lane=self._name)
            waiting.fail(RefusedError(WebhookRule.NO_PROCESS, problem=error))
            await child.close()
            await asyncio.sleep(RESTART_SECONDS)
        else:
            if not waiting.result.done():
                waiting.result.set_result(answer)
            if not self._at_rest and waiting.job.size > KEPT_AFTER_BYTES_MAX:
                await child.close()

    async def _restart(self, child: _Child) -> None:
        """Start the process before the first job. If that fails, the next job tries again."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await child.start()
        except (OSError, EOFError, TimeoutError) as error:
            log.error("cannot start an evaluating process", lane=self._name, error=str(error))
            await child.close()
            await asyncio.sleep(RESTART_SECONDS)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs as long as the pool."""
        return [self.serve(child) for child in self._children]


class EvaluationPool:
    """Evaluates expressions, and answers large reviews. `start` first, `close` last."""

    def __init__(
        self,
        *,
        cpu_seconds: float = 2.0,
        memory_bytes: int = 256 * 1024 * 1024,
        bytes_waiting_max: int = 32 * 1024 * 1024,
        light_workers: int = LIGHT_WORKERS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._memory_bytes = memory_bytes

        def child(program: str, cpu: float, nice: int) -> _Child:
            return _Child(
                program,
                cpu_seconds=cpu,
                memory_bytes=memory_bytes,
                nice=nice,
                wait_seconds=wait_seconds,
            )

        converts = _Child(
            HEAVY_PROGRAM,
            cpu_seconds=CONVERSION_SECONDS,
            memory_bytes=CONVERSION_MEMORY_BYTES,
            nice=HEAVY_NICE,
            wait_seconds=max(CONVERSION_SECONDS, wait_seconds),
        )
        self._conversions = _Lane(
            "conversions",
            [converts],
            wait_seconds=max(CONVERSION_SECONDS, wait_seconds),
            waiting_max=200,
            source_bytes_max=CONVERSION_MEMORY_BYTES,
            at_rest=False,
        )
        light_cpu = min(LIGHT_CPU_SECONDS, cpu_seconds)
        self._light = _Lane(
            "light",
            [child(LIGHT_PROGRAM, light_cpu, 0) for _ in range(light_workers)],
            wait_seconds=wait_seconds,
            waiting_max=200,
            source_bytes_max=bytes_waiting_max,
        )
        self._heavy = _Lane(
            "heavy",
            [child(HEAVY_PROGRAM, cpu_seconds, HEAVY_NICE)],
            wait_seconds=wait_seconds,
            waiting_max=HEAVY_WAITING_MAX,
            source_bytes_max=bytes_waiting_max // 2,
        )
        self._expensive: dict[Source, float] = {}
        """Where jobs come from to the time until which they are taken for heavy."""

        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the processes."""
        lanes = (self._light, self._heavy, self._conversions)
        self._tasks = [asyncio.create_task(each) for lane in lanes for each in lane.tasks()]

    async def close(self) -> None:
        """End the processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def evaluate(
        self, programs: Programs, evaluation: Evaluation, *, size: int, address: str = ""
    ) -> list[Mutation]:
        """Return the mutations for an object of `size` bytes, which came from `address`.

        Raises `RefusedError`, and `TooHeavyError` for what needs `answer`.
        """
        source, now = Source(address, evaluation.namespace), asyncio.get_running_loop().time
        if self._expensive.get(source, 0) > now():
            raise TooHeavyError
        rules = Setup(programs, lambda: {"expressions": programs.texts})
        job = Job(
            source=source,
            frame=Frame({"do": "evaluate", "evaluation": evaluation.to_json()}),
            size=size,
            setups={"rules": rules},
        )
        try:
            answer = _checked(await self._light.submit(job))
        except _CutOffError as error:
            if len(self._expensive) >= SOURCES_REMEMBERED_MAX:
                self._expensive.clear()
            self._expensive[source] = now() + HEAVY_AFTER_CUT_OFF_SECONDS
            log.warning("a namespace's reviews are expensive", **source._asdict())
            raise TooHeavyError from error
        return mutations_from_json(answer.head["mutations"])

    async def answer(self, job: Job) -> Frame:
        """Return what the heavy lane's program answers to a review. Raises `RefusedError`."""
        try:
            return _checked(await self._heavy.submit(job))
        except _CutOffError as error:
            cpu = error.rule is WebhookRule.CPU
            most = self._cpu_seconds if cpu else self._memory_bytes
            raise RefusedError(error.rule, most=most) from error

    async def convert(self, job: Job) -> Frame:
        """Return what that program answers to a conversion. Raises `RefusedError`."""
        try:
            return _checked(await self._conversions.submit(job))
        except _CutOffError as error:
            raise RefusedError(WebhookRule.CONVERSION_CUT_OFF) from error


def _checked(answer: Frame) -> Frame:
    if "refusal" in answer.head:
        raise RefusedError.quoted(WebhookRule[answer.head["refusal"]], answer.head["message"])
    return answer
