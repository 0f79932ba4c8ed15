"""The child process: `python -m services.classifier.evaluation.worker CPU_SECONDS MEMORY_BYTES NICE DOES`.

Reads one job after the other from standard input and writes each result to standard output. Every message
is four bytes of length, then JSON. The kernel ends the process when a job uses more CPU than it may, also
inside the CEL library: a Python timer would wait until the library returns.
"""

import contextlib
import importlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from services.classifier.cel import CelEngine, Programs
from services.classifier.evaluation.expressions import (
    Evaluation,
    evaluate,
    mutations_to_json,
)
from services.classifier.evaluation.frames import HEADER, VALIDATES
from services.classifier.refusal import RefusedError, WebhookRule


class _Worker:
    def __init__(self) -> None:
        self._engine = CelEngine()
        self._programs: Programs | None = None

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        match job["do"]:
            case "compile":
                self._programs = self._engine.compile(job["expressions"])
                return {}
            case "evaluate":
                assert self._programs is not None, "rules are sent first"
                found = evaluate(self._programs, Evaluation.from_json(job["evaluation"]))
                return {"mutations": mutations_to_json(found)}
            case _:
                from services.classifier.validation import judge  # noqa: PLC0415 - see `main`

                problems, breaks_definition = judge(job["object"], job["old"])
                written = [_written(problem) for problem in problems]
                return {"problems": written, "breaks_definition": breaks_definition}


def _written(problem: Any) -> list[str]:
    return [problem.field, problem.rule.value, problem.shown, problem.detail]


def main(arguments: Sequence[str]) -> int:
    """Answer jobs until standard input ends."""
    cpu_seconds, memory_bytes, nice = float(arguments[0]), int(arguments[1]), int(arguments[2])
    if arguments[3] == VALIDATES:
        # The models of all kinds are half of the memory, and no job may pay for their import.
        importlib.import_module("services.classifier.validation")
    # Results have this pipe for themselves: a library may write to standard output.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends us.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = _Worker()
    limit = memory_bytes + _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(BrokenPipeError):
        _send(out, {"ready": True})
        while (job := _receive(sys.stdin.buffer)) is not None:
            limited = job["do"] != "compile"  # The configuration is an operator's.
            if limited:
                signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                result = worker.answer(job)
            except RefusedError as error:
                result = {"refusal": error.rule.name, "message": str(error)}
            except RecursionError:
                result = {
                    "refusal": WebhookRule.TOO_DEEP.name,
                    "message": WebhookRule.TOO_DEEP.says(),
                }
            except MemoryError:
                return 1
            signal.setitimer(signal.ITIMER_PROF, 0)
            _send(out, result)
    return 0


def _data_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _receive(source: BinaryIO) -> dict[str, Any] | None:
    head = source.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    body = source.read(HEADER.unpack(head)[0])
    found: dict[str, Any] = orjson.loads(body)
    return found


def _send(out: BinaryIO, message: dict[str, Any]) -> None:
    body = orjson.dumps(message)
    out.write(HEADER.pack(len(body)) + body)
    out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
