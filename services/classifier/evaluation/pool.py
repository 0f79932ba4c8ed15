"""Two lanes of child processes: small objects do not wait behind large ones.

The namespaces that wait take turns in each lane. A job of the light lane that needs more than a quarter of
a second of CPU is cut off and repeated in the heavy lane, where its namespace then stays for a minute.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from services.classifier.cel import Mutation, Programs
from services.classifier.evaluation.expressions import Evaluation, mutations_from_json
from services.classifier.evaluation.frames import EVALUATES, HEADER, VALIDATES
from services.classifier.metrics import EVALUATIONS_CUT_OFF
from services.classifier.refusal import RefusedError, WebhookRule
from services.classifier.validation import Problem, Verdict
from services.classifier.validation.problems import Rule
from shared.contracts.kube.kinds import Object

log = structlog.get_logger(__name__)

LIGHT_WORKERS: Final = 2
"""One answers while the other starts anew."""

LIGHT_CPU_SECONDS: Final = 0.25
HEAVY_NICE: Final = 10
"""Where CPU is short, the kernel prefers the event loop and the light lane."""

HEAVY_AFTER_CUT_OFF_SECONDS: Final = 60.0
NAMESPACES_REMEMBERED_MAX: Final = 1_000

WAIT_SECONDS: Final = 8.0
"""An API server gives up after ten."""

START_SECONDS: Final = 30.0
RESTART_SECONDS: Final = 0.2


@dataclass(slots=True)
class _Job:
    namespace: str
    message: dict[str, Any]
    size: int
    programs: Programs | None
    result: asyncio.Future[dict[str, Any]]


class _CutOffError(Exception):
    """The child ended during a job."""

    def __init__(self, rule: WebhookRule) -> None:
        super().__init__()
        self.rule = rule


class _Child:
    """One process. `ask` starts it if there is none."""

    def __init__(
        self, *, cpu_seconds: float, memory_bytes: int, wait_seconds: float, heavy: bool
    ) -> None:
        """`heavy`: it may also validate, and gives way where CPU is short."""
        nice, does = (HEAVY_NICE, VALIDATES) if heavy else (0, EVALUATES)
        self._arguments = (str(cpu_seconds), str(memory_bytes), str(nice), does)
        self._wait_seconds = wait_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._programs: Programs | None = None

    async def ask(self, job: _Job) -> dict[str, Any]:
        """Return the child's answer. Raises `_CutOffError`."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                if self._process is None:
                    await self.start()
                if job.programs is not None and job.programs is not self._programs:
                    await self._exchange({"do": "compile", "expressions": job.programs.texts})
                    self._programs = job.programs
                return await self._exchange(job.message)
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
        self._programs = None
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.classifier.evaluation.worker",
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
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                # It may be about to end by itself: that status says why.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        return await process.wait()
                process.kill()
        return await process.wait()

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        body = orjson.dumps(message)
        self._process.stdin.write(HEADER.pack(len(body)))
        self._process.stdin.write(body)
        await self._process.stdin.drain()
        return await self._receive()

    async def _receive(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        head = await self._process.stdout.readexactly(HEADER.size)
        body = await self._process.stdout.readexactly(HEADER.unpack(head)[0])
        found: dict[str, Any] = orjson.loads(body)
        return found


def _environment() -> dict[str, str]:
    """A child needs no settings and no credentials: only where its modules are."""
    return {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


class _Lane:
    """A queue for each namespace, and children that take from them in turn."""

    def __init__(
        self,
        name: str,
        children: list[_Child],
        *,
        wait_seconds: float,
        waiting_max: int,
        namespace_bytes_max: int,
    ) -> None:
        self._name = name
        self._children = children
        self._wait_seconds = wait_seconds
        self._waiting_max = waiting_max
        self._namespace_bytes_max = namespace_bytes_max
        self._queues: dict[str, deque[_Job]] = {}
        self._wake = asyncio.Condition()

    async def submit(self, job: _Job) -> dict[str, Any]:
        """Wait for the result. Raises `RefusedError` or `_CutOffError`."""
        queue = self._queues.setdefault(job.namespace, deque())
        waiting = sum(each.size for each in queue)
        if len(queue) >= self._waiting_max or (
            queue and waiting + job.size > self._namespace_bytes_max
        ):
            raise RefusedError(
                WebhookRule.BUSY,
                namespace=job.namespace,
                count=len(queue),
                size=waiting,
                most=self._waiting_max,
                bytes_most=self._namespace_bytes_max,
            )
        queue.append(job)
        async with self._wake:
            self._wake.notify()
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await job.result
        except TimeoutError as error:
            raise RefusedError(WebhookRule.LATE, seconds=self._wait_seconds) from error
        finally:
            if (queue := self._queues.get(job.namespace, queue)) and job in queue:
                queue.remove(job)

    async def serve(self, child: _Child) -> None:
        """Answer jobs with one child, until cancelled."""
        try:
            await self._restart(child)
            while True:
                async with self._wake:
                    await self._wake.wait_for(self._any)
                    job = self._next()
                if job.result.done():
                    continue
                try:
                    answer = await child.ask(job)
                except _CutOffError as error:
                    EVALUATIONS_CUT_OFF.labels(self._name, error.rule.label).inc()
                    if not job.result.done():
                        job.result.set_exception(error)
                    await self._restart(child)
                else:
                    if not job.result.done():
                        job.result.set_result(answer)
        finally:
            await child.close()

    async def _restart(self, child: _Child) -> None:
        """Start the process before somebody waits for it. What fails is tried with the next job."""
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

    def _any(self) -> bool:
        return any(self._queues.values())

    def _next(self) -> _Job:
        """Take the next job of the namespace whose turn it is, and put that namespace last."""
        for namespace in list(self._queues):
            queue = self._queues.pop(namespace)
            if queue:
                job = queue.popleft()
                if queue:
                    self._queues[namespace] = queue
                return job
        raise AssertionError("somebody waits")


class EvaluationPool:
    """Evaluates expressions, and validates large objects. `start` first, `close` last."""

    def __init__(
        self,
        *,
        cpu_seconds: float = 1.0,
        memory_bytes: int = 256 * 1024 * 1024,
        bytes_waiting_max: int = 32 * 1024 * 1024,
        light_workers: int = LIGHT_WORKERS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._memory_bytes = memory_bytes

        def child(cpu: float, *, heavy: bool) -> _Child:
            return _Child(
                cpu_seconds=cpu, memory_bytes=memory_bytes, wait_seconds=wait_seconds, heavy=heavy
            )

        light_cpu = min(LIGHT_CPU_SECONDS, cpu_seconds)
        self._light = _Lane(
            "light",
            [child(light_cpu, heavy=False) for _ in range(light_workers)],
            wait_seconds=wait_seconds,
            waiting_max=200,
            namespace_bytes_max=bytes_waiting_max,
        )
        self._heavy = _Lane(
            "heavy",
            [child(cpu_seconds, heavy=True)],
            wait_seconds=wait_seconds,
            waiting_max=8,
            namespace_bytes_max=bytes_waiting_max // 4,
        )
        self._expensive: dict[str, float] = {}
        """Namespace to the time until which its jobs are taken for heavy."""

        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the processes."""
        self._tasks = [
            asyncio.create_task(each) for each in (*self._light.tasks(), *self._heavy.tasks())
        ]

    async def close(self) -> None:
        """End the processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def evaluate(
        self, programs: Programs, evaluation: Evaluation, *, size: int, heavy: bool
    ) -> list[Mutation]:
        """Return the mutations for an object of `size` bytes. Raises `RefusedError`."""
        answer = await self._run(
            evaluation.namespace,
            {"do": "evaluate", "evaluation": evaluation.to_json()},
            size=size,
            heavy=heavy,
            programs=programs,
        )
        return mutations_from_json(answer["mutations"])

    async def validate(
        self, namespace: str, obj: Object, old: Object | None, *, size: int
    ) -> Verdict:
        """Return what is wrong with a large object. Raises `RefusedError`."""
        message = {"do": "validate", "object": obj, "old": old}
        answer = await self._run(namespace, message, size=size, heavy=True)
        problems = [
            Problem(field, Rule(rule), shown, detail)
            for field, rule, shown, detail in answer["problems"]
        ]
        return Verdict(problems, answer["breaks_definition"])

    async def _run(
        self,
        namespace: str,
        message: dict[str, Any],
        *,
        size: int,
        heavy: bool,
        programs: Programs | None = None,
    ) -> dict[str, Any]:
        def job() -> _Job:
            result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            return _Job(namespace, message, size, programs, result)

        try:
            answer = await self._in_lane(job, namespace, heavy=heavy)
        except _CutOffError as error:
            cpu = error.rule is WebhookRule.CPU
            most = self._cpu_seconds if cpu else self._memory_bytes
            raise RefusedError(error.rule, most=most) from error
        if "refusal" in answer:
            raise RefusedError.quoted(WebhookRule[answer["refusal"]], answer["message"])
        return answer

    async def _in_lane(
        self, job: Callable[[], _Job], namespace: str, *, heavy: bool
    ) -> dict[str, Any]:
        now = asyncio.get_running_loop().time
        if not heavy and self._expensive.get(namespace, 0) <= now():
            try:
                return await self._light.submit(job())
            except _CutOffError:
                if len(self._expensive) >= NAMESPACES_REMEMBERED_MAX:
                    self._expensive.clear()
                self._expensive[namespace] = now() + HEAVY_AFTER_CUT_OFF_SECONDS
                log.warning("a namespace's reviews are expensive", namespace=namespace)
        return await self._heavy.submit(job())
