"""Measures the webhook: `python -m services.classifier.bench [--rate 200] [--seconds 20] [--attack]`.

A child process serves HTTPS as in production. This process sends reviews at fixed times, whether or not
earlier ones are answered, so that a slow answer does not lower the load (no coordinated omission). With
`--attack` another child sends the worst objects of one tenant meanwhile, each as soon as the last is
answered, and keeps unfinished bodies and handshakes open.
"""

import argparse
import asyncio
import contextlib
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from services.classifier.cel import CelEngine
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.rules.holder import RulesHolder
from services.classifier.webhook.app import webhook_app
from services.classifier.webhook.reviewing.reviewer import Reviewer
from shared.contracts.kube.names import PAC_EVENT, QUEUE
from shared.contracts.webhook import MUTATE_PATH, PIPELINE_RUN_PATH, VALIDATE_PATH
from shared.runtime.certificates import CertificateFolder
from shared.runtime.connections import ConnectionLimits
from shared.runtime.loop import run
from shared.runtime.web import WebServer

GOAL_P99_MILLISECONDS: Final = 50.0
CONNECTIONS_MAX: Final = 64
ATTACKERS: Final = 8
GREEDY: Final = "greedy-tenant"
WARM_UP_REVIEWS: Final = 100
ANSWER_SECONDS: Final = 10.0
EXAMPLE: Final = Path(__file__).parents[2] / "deploy/examples/konflux/classifier/config.yaml"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _reviews() -> list[bytes]:
    """Return a mix: a small run, a multi-platform build, and an embedded pipeline of twenty tasks."""
    metadata = {
        "generateName": "build-",
        "namespace": "team-tenant",
        "labels": {PAC_EVENT: "push"},
    }
    platforms = ["linux/x86_64", "linux/arm64", "linux/s390x", "linux/ppc64le"]
    tasks = [
        {
            "name": f"task-{number}",
            "taskRef": {"resolver": "bundles", "params": [{"name": "name", "value": "t"}]},
            "params": [{"name": f"p{k}", "value": "x" * 40} for k in range(8)]
            + [{"name": "PLATFORM", "value": platforms[number % 4]}],
        }
        for number in range(20)
    ]
    specs: list[dict[str, Any]] = [
        {"pipelineRef": {"name": "p"}},
        {
            "pipelineRef": {"name": "p"},
            "params": [{"name": "build-platforms", "value": platforms}],
        },
        {"pipelineSpec": {"tasks": tasks}},
    ]
    reviews = []
    for number, spec in enumerate(specs):
        run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata}
        request = {
            "uid": f"bench-{number}",
            "operation": "CREATE",
            "namespace": "team-tenant",
            "object": {**run, "spec": spec},
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        reviews.append(orjson.dumps({**review, "request": request}))
    return reviews


async def _serve(folder: Path, configuration: Path) -> None:
    rules = RulesHolder(CelEngine())
    if not rules.offer_file(configuration):
        raise SystemExit(rules.error)
    pool = EvaluationPool()
    pool.start()
    server = WebServer(
        webhook_app(rules, reviewer=Reviewer(pool=pool)),
        limits=ConnectionLimits(per_address_max=400, request_seconds=60),
        host="127.0.0.1",
        port=0,
        certificates=CertificateFolder(folder, ["127.0.0.1"]),
        now=_now,
    )
    _say(str(await server.start()))
    loop = asyncio.get_running_loop()
    # Serve until the parent closes our standard input, or dies.
    await loop.run_in_executor(None, sys.stdin.read)
    await server.stop()
    await pool.close()


def _worst_reviews() -> list[bytes]:
    """Return what one tenant can send: as much as is allowed, and more."""

    def review(spec: dict[str, Any], **metadata: Any) -> bytes:
        run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}
        named = {"name": "r", "namespace": GREEDY, **metadata}
        request = {
            "uid": "attack",
            "operation": "CREATE",
            "namespace": GREEDY,
            "object": {**run, "metadata": named, "spec": spec},
        }
        return orjson.dumps(
            {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        )

    def platforms(number: int) -> dict[str, Any]:
        values = [f"linux/p{n}" for n in range(number)]
        return {
            "pipelineRef": {"name": "p"},
            "params": [{"name": "build-platforms", "value": values}],
        }

    def tasks(number: int, after: int) -> dict[str, Any]:
        listed = [
            {
                "name": f"t{n}",
                "taskRef": {"name": "t"},
                "runAfter": [f"t{k}" for k in range(max(0, n - after), n)],
                "params": [{"name": "PLATFORM", "value": f"linux/p{n}"}],
            }
            for n in range(number)
        ]
        return {"pipelineSpec": {"tasks": listed}}

    reference = {"pipelineRef": {"name": "p"}}
    return [
        *_large_objects(),
        review(platforms(9_000)),
        review(platforms(1_000)),
        review(platforms(150)),
        review(tasks(4_000, 30)),
        review(tasks(500, 30)),
        review({**reference, "params": [{"name": "p", "value": "/_" * 700_000}]}),
        review({**reference, "timeouts": {"pipeline": "1" * 1_000_000}}),
        review(reference, annotations={f"a{n}": "x" * 200 for n in range(1_000)}),
    ]


def _large_objects() -> list[bytes]:
    """Return valid objects of other kinds that are as large as an API server takes."""
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    many = {
        "spec": {"containers": [{"name": "c", "env": [{"name": f"E{n}"} for n in range(80_000)]}]}
    }
    containers = [{"name": f"c{n}", "resources": {"requests": {"cpu": "1"}}} for n in range(25_000)]
    wide = {"spec": {"containers": containers}}
    states = {f"pod{n}": "RUNNING" for n in range(30_000)}
    counts = [{"name": f"j{n}", "ready": 1, "active": 1} for n in range(9_000)]
    jobs = [{"name": "j0", "template": {"spec": {"template": pod}}}]
    spark = {"driver": {"memory": "1g"}, "executor": {"memory": "1g", "instances": 1}}
    workload = {"queueName": "q", "podSets": [{"name": "p", "count": 1, "template": wide}]}
    workers = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": wide}}
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": wide}}
    objects: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
        ("batch/v1", "Job", {"suspend": True, "template": many}, {}),
        ("kueue.x-k8s.io/v1beta1", "Workload", workload, {}),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs}, {"replicatedJobsStatus": counts}),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", spark, {"executorState": states}),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", workers, {}),
        ("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": wrapped}]}, {}),
    ]  # fmt: skip
    reviews = []
    for version, kind, spec, status in objects:
        labels = {QUEUE: "main"}
        named = {"name": "x", "namespace": GREEDY, "uid": "u", "labels": labels}
        obj = {
            "apiVersion": version,
            "kind": kind,
            "metadata": named,
            "spec": spec,
            "status": status,
        }
        request = {
            "uid": "attack", "namespace": GREEDY, "operation": "UPDATE", "object": obj, "oldObject": obj,
        }  # fmt: skip
        review = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": request,
        }
        reviews.append(orjson.dumps(review))
    return reviews


async def _attack(port: int, ca: Path) -> None:
    """Send the worst objects until standard input ends; then say how many were answered."""
    tls = ssl.create_default_context(cafile=ca)
    client = _Client(port, tls, refusals=True)
    worst = _worst_reviews()
    answered = 0

    async def send(first: int) -> None:
        nonlocal answered
        number = first
        while True:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                body = worst[number % len(worst)]
                await client.send(
                    body, VALIDATE_PATH if b'"kind":"Workload"' in body else MUTATE_PATH
                )
                answered += 1
            number += 1

    async def linger() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, silent = await asyncio.open_connection("127.0.0.1", port)
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
                head = f"POST {PIPELINE_RUN_PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: 9999999\r\n\r\n"
                writer.write(head.encode() + b"x" * 1_000_000)
                await asyncio.sleep(1)
                silent.close()
                writer.close()

    senders = [asyncio.create_task(send(number)) for number in range(ATTACKERS)]
    senders += [asyncio.create_task(linger()) for _ in range(ATTACKERS)]
    _say("attacking")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in senders:
        task.cancel()
    await asyncio.gather(*senders, return_exceptions=True)
    _say(str(answered))


class _Client:
    """Keep-alive connections: one for each outstanding answer."""

    def __init__(self, port: int, tls: ssl.SSLContext, *, refusals: bool = False) -> None:
        self._port = port
        self._refusals = refusals
        self._tls = tls
        self._idle: list[Connection] = []
        self._gate = asyncio.Semaphore(CONNECTIONS_MAX)

    async def send(self, body: bytes, path: str = PIPELINE_RUN_PATH) -> None:
        async with self._gate:
            reader, writer = self._idle.pop() if self._idle else await self._open()
            head = (
                f"POST {path} HTTP/1.1\r\nhost: localhost\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in answer.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                )
                reply = orjson.loads(await reader.readexactly(length))
            if not (reply["response"]["allowed"] or self._refusals):
                raise RuntimeError(f"refused: {reply}")
            self._idle.append((reader, writer))

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            with contextlib.suppress(OSError):  # the server may have closed it first
                await writer.wait_closed()

    async def _open(self) -> Connection:
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)


async def _drive(port: int, ca: Path, rate: float, seconds: float) -> list[float]:
    """Send `rate` reviews a second; return the sorted latencies in milliseconds."""
    client = _Client(port, ssl.create_default_context(cafile=ca))
    reviews = _reviews()
    for number in range(WARM_UP_REVIEWS):
        await client.send(reviews[number % len(reviews)])
    loop = asyncio.get_running_loop()
    took: list[float] = []

    async def one(due: float, body: bytes) -> None:
        await client.send(body)
        took.append((loop.time() - due) * 1000)

    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            group.create_task(one(due, reviews[number % len(reviews)]))
    await client.close()
    return sorted(took)


@contextlib.asynccontextmanager
async def _attacked(port: int, ca: Path, *, attack: bool) -> AsyncIterator[None]:
    """Attack the webhook for as long as the block lasts."""
    if not attack:
        yield
        return
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.classifier.bench",
        "--attacker",
        str(port),
        "--serve",
        str(ca),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        await child.stdout.readline()
        yield
    finally:
        child.stdin.close()
        _say(f"webhook: {(await child.stdout.readline()).decode().strip()} reviews of the attacker")
        await child.wait()


async def _measure(configuration: Path, rate: float, seconds: float, *, attack: bool) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.classifier.bench",
            "--serve",
            str(folder),
            "--config",
            str(configuration),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            port = int(await child.stdout.readline())
            ca = folder / "ca.crt"
            async with _attacked(port, ca, attack=attack):
                took = await _drive(port, ca, rate, seconds)
        finally:
            child.stdin.close()
            await child.wait()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (spent.ru_utime + spent.ru_stime) * 1000 / (len(took) + WARM_UP_REVIEWS)
    p50, p99 = (took[min(len(took) - 1, int(len(took) * share))] for share in (0.5, 0.99))
    _say(
        f"webhook: {len(took)} reviews at {rate:g}/s over HTTPS, "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {took[-1]:.1f} ms, "
        f"CPU {cpu:.2f} ms a review with start-up "
        f"(goal: p99 <= {GOAL_P99_MILLISECONDS:g} ms)"
    )
    return 0 if p99 <= GOAL_P99_MILLISECONDS else 1


def main() -> int:
    """Run the benchmark; exit status 1 if the goal is missed."""
    parser = argparse.ArgumentParser(prog="bench-webhook")
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--config", type=Path, default=EXAMPLE, help="the rules, config.yaml")
    parser.add_argument("--attack", action="store_true", help="one tenant sends the worst objects")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--attacker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attacker is not None:
        run(_attack(options.attacker, options.serve))
        return 0
    if options.serve is not None:
        run(_serve(options.serve, options.config))
        return 0
    return asyncio.run(
        _measure(options.config, options.rate, options.seconds, attack=options.attack)
    )


if __name__ == "__main__":
    sys.exit(main())
