"""The child process that evaluates: `python -m services.classifier.evaluation.worker CPU MEMORY NICE`.

CPU is in seconds, and memory in bytes.

Reads one job after the other from standard input and writes each result to standard output. The kernel ends
the process when a job uses more CPU than it may, also inside the CEL library: a Python timer would wait
until the library returns.
"""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import orjson

from services.classifier.cel import CelEngine, Programs
from services.classifier.evaluation.expressions import (
    Evaluation,
    evaluate,
    mutations_to_json,
)
from services.classifier.evaluation.frames import HEADER, Frame
from services.classifier.refusal import RefusedError, WebhookRule

SETUPS: Final = ("rules", "integrations", "budget")
"""What a child is told before a job. It is an operator's, and may take as long as it takes."""


class Pipe:
    """The way to the parent and back."""

    def __init__(self, source: BinaryIO, out: BinaryIO) -> None:
        self._source = source
        self._out = out

    def receive(self) -> Frame | None:
        """Return the next message; None: there is no parent any more."""
        head = self._source.read(HEADER.size)
        if len(head) < HEADER.size:
            return None
        head_size, body_size = HEADER.unpack(head)
        fields: dict[str, Any] = orjson.loads(self._source.read(head_size))
        return Frame(fields, self._source.read(body_size))

    def send(self, frame: Frame) -> None:
        """Write a message."""
        self._out.write(frame.written())
        self._out.writelines(frame.parts())
        self._out.flush()

    def ask(self, *question: str) -> Any:
        """Return what the parent answers."""
        self.send(Frame({"ask": question}))
        answer = self.receive()
        if answer is None:
            raise SystemExit(0)
        return answer.head["answer"]


class Worker(Protocol):
    """Answers jobs, one after the other."""

    def answer(self, job: Frame) -> Frame:
        """Do what `job.head["do"]` says. Raises `RefusedError`."""
        ...


class _Evaluator:
    def __init__(self, _pipe: Pipe) -> None:
        self._engine = CelEngine()
        self._programs: Programs | None = None

    def answer(self, job: Frame) -> Frame:
        if job.head["do"] == "rules":
            self._programs = self._engine.compile(job.head["expressions"])
            return Frame({})
        assert self._programs is not None, "rules are sent first"
        found = evaluate(self._programs, Evaluation.from_json(job.head["evaluation"]))
        return Frame({"mutations": mutations_to_json(found)})


def serve(arguments: Sequence[str], worker_of: Callable[[Pipe], Worker]) -> int:
    """Answer jobs until standard input ends."""
    cpu_seconds, memory_bytes, nice = float(arguments[0]), int(arguments[1]), int(arguments[2])
    # Results have this pipe for themselves: a library may write to standard output.
    pipe = Pipe(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends us.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = worker_of(pipe)
    limit = memory_bytes + _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(BrokenPipeError, MemoryError):
        pipe.send(Frame({"ready": True}))
        while (job := pipe.receive()) is not None:
            pipe.send(_answer(worker, job, cpu_seconds))
        return 0
    return 1


def _answer(worker: Worker, job: Frame, cpu_seconds: float) -> Frame:
    if job.head["do"] not in SETUPS:
        signal.setitimer(signal.ITIMER_PROF, min(cpu_seconds, job.head.get("cpu", cpu_seconds)))
    try:
        return worker.answer(job)
    except RefusedError as error:
        return _refusal(error.rule, str(error))
    except RecursionError:
        return _refusal(WebhookRule.TOO_DEEP, WebhookRule.TOO_DEEP.says())
    except ValueError as error:
        if job.head["do"] not in SETUPS:
            raise
        return Frame({"failed": str(error)})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _refusal(rule: WebhookRule, message: str) -> Frame:
    return Frame({"refusal": rule.name, "message": message})


def _data_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], _Evaluator))
