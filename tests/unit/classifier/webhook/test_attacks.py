"""What a tenant or a pod without credentials can send to the webhook: real HTTPS, real child processes."""

import asyncio
import contextlib
import gzip
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from prometheus_client import REGISTRY

from services.classifier.cel import CelEngine
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.rules.holder import RulesHolder
from services.classifier.webhook.app import webhook_app
from services.classifier.webhook.reviewing.reviewer import Reviewer
from shared.contracts.kube.names import QUEUE
from shared.contracts.webhook import CONVERT_PATH, MUTATE_PATH, VALIDATE_PATH
from shared.runtime.certificates import CertificateFolder
from shared.runtime.connections import ConnectionLimits
from shared.runtime.web import WebServer
from shared.testing.waiting import eventually
from tests.unit.classifier.webhook.reviews import review, run
from tests.unit.classifier.webhook.test_app import real_now
from tests.unit.integrations.test_bounds import HOSTILE, made

EXAMPLE = Path("deploy/examples/konflux/classifier/config.yaml")
MIB = 2**20
PATIENT = 120.0
"""Seconds for what no test is about: a busy machine is no attack."""


class Target:
    """A webhook as it is deployed, with small limits."""

    def __init__(self, server: WebServer, port: int, tls: ssl.SSLContext) -> None:
        self.server = server
        self.port = port
        self.tls = tls
        self.url = f"https://127.0.0.1:{port}"
        self.writers: list[asyncio.StreamWriter] = []
        self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls))

    async def send(
        self, body: bytes, path: str = MUTATE_PATH, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Return HTTP status and the review's response; `{"text": …}` for an answer that is none."""
        async with self.client.post(self.url + path, data=BytesIO(body), headers=headers) as answer:
            text = await answer.read()
        try:
            response: dict[str, Any] = orjson.loads(text)["response"]
        except orjson.JSONDecodeError:
            response = {"text": text.decode()}
        return answer.status, response

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        self.writers.append(writer)
        return reader, writer

    async def unfinished(self, path: str, sent: int) -> asyncio.StreamWriter:
        """Send the beginning of a body, and keep the connection."""
        _, writer = await self.open()
        head = f"POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {sent + 100}\r\n\r\n"
        writer.write(head.encode() + b"x" * sent)
        await writer.drain()
        return writer

    async def answers(self) -> None:
        """Check that an honest user is served."""
        status, response = await self.send(review(run()))
        assert (status, response["allowed"]) == (200, True)


@asynccontextmanager
async def target(
    path: Path,
    *,
    bytes_in_flight: int = 64 * MIB,
    body_seconds: float = PATIENT,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[Target]:
    rules = RulesHolder(CelEngine())
    assert rules.offer_file(EXAMPLE)
    folder = CertificateFolder(path, ["127.0.0.1"])
    pool = EvaluationPool(wait_seconds=PATIENT)
    pool.start()
    server = WebServer(
        webhook_app(
            rules,
            reviewer=Reviewer(pool=pool),
            bytes_in_flight_max=bytes_in_flight,
            body_seconds=body_seconds,
        ),
        host="127.0.0.1",
        port=0,
        certificates=folder,
        limits=limits,
        now=real_now,
    )
    port = await server.start()
    tls = ssl.create_default_context(cadata=folder.ca_bundle().decode())
    made = Target(server, port, tls)
    try:
        yield made
    finally:
        await made.client.close()
        for writer in made.writers:
            writer.transport.abort()
        for writer in made.writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await server.stop()
        await pool.close()


def in_flight() -> float:
    return REGISTRY.get_sample_value("sluicegate_webhook_bytes_in_flight") or 0.0


def refused(cause: str) -> float:
    return REGISTRY.get_sample_value("sluicegate_webhook_refused_total", {"cause": cause}) or 0.0


def platforms(number: int) -> dict[str, Any]:
    values = [f"linux/p{n}" for n in range(number)]
    return run(params=[{"name": "build-platforms", "value": values}])


def tasks(number: int, after: int) -> dict[str, Any]:
    listed = [
        {
            "name": f"t{n}",
            "taskRef": {"name": "t"},
            "runAfter": [f"t{k}" for k in range(max(0, n - after), n)],
        }
        for n in range(number)
    ]
    return {**run(), "spec": {"pipelineSpec": {"tasks": listed}}}


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": [value]}
    return value


TOO_MUCH: dict[str, tuple[Any, str]] = {
    "9,000 platforms": (platforms(9_000), "items"),
    "4,000 tasks with 30 runAfter": (tasks(4_000, 30), "items"),
    "900 tasks with 30 runAfter": (tasks(900, 30), "values"),
    "deep nesting": (run(params=[{"name": "p", "value": nested(110)}]), "levels"),
    "many annotations": (
        {**run(), "metadata": {"name": "p", "annotations": {f"a{n}": "x" for n in range(5_000)}}},
        "items",
    ),
    "huge label maps with other scripts": (
        {**run(), "metadata": {"name": "p", "labels": {f"ж{n}😀": "x" for n in range(5_000)}}},
        "items",
    ),
    "many matrix parameters": (
        {
            **run(),
            "spec": {
                "pipelineSpec": {
                    "tasks": [
                        {
                            "name": "t",
                            "taskRef": {"name": "t"},
                            "matrix": {
                                "params": [{"name": f"p{n}", "value": []} for n in range(3_000)]
                            },
                        }
                    ]
                }
            },
        },
        "items",
    ),
    "many volumes": (
        run(
            taskRunTemplate={"podTemplate": {"volumes": [{"name": f"v{n}"} for n in range(2_000)]}}
        ),
        "items",
    ),
}


async def test_objects_that_cost_too_much_are_refused_with_cause_limit_and_advice(
    tmp_path: Path,
) -> None:
    async with target(tmp_path) as webhook:
        for name, (obj, cause) in TOO_MUCH.items():
            before = refused(cause)
            status, response = await webhook.send(review(obj))
            assert (status, response["allowed"]) == (200, False), name
            assert response["status"]["code"] == 413, name
            assert response["status"]["reason"] == "RequestEntityTooLarge"
            assert "at most" in response["status"]["message"], name
            assert len(response["status"]["message"]) < 1_000, name
            assert refused(cause) == before + 1, name
        await webhook.answers()


UNCOUNTABLE = {
    "JobSet with thousands of parts": "more than 18 items",
    "SparkApplication with thousands of sidecars": "too many for its expressions: at most",
}


async def test_what_expressions_cannot_look_at_is_refused_and_a_status_is_left_out(
    tmp_path: Path,
) -> None:
    """An API server sends a new object with the status that its tenant wrote, and drops that later."""
    async with target(tmp_path) as webhook:
        for name in (*UNCOUNTABLE, "JobSet with thousands of statuses"):
            kind, fields, _ = HOSTILE[name]
            obj = made(kind, fields)
            obj["metadata"]["labels"] = {QUEUE: "mine"}
            status, response = await webhook.send(review(obj))
            assert (status, response["allowed"]) == (200, name not in UNCOUNTABLE), name
            if name in UNCOUNTABLE:
                assert UNCOUNTABLE[name] in response["status"]["message"]
            else:
                assert b"suspend" in b64decode(response["patch"])
        await webhook.answers()


async def test_long_strings_that_made_regular_expressions_quadratic_are_answered(
    tmp_path: Path,
) -> None:
    text = "a" * MIB
    objects = [
        {**run(), "spec": {"pipelineRef": {"name": text}}},
        run(timeouts={"pipeline": "1" * MIB}),
        run(params=[{"name": "p", "value": "$(" * (MIB // 2)}]),
        run(params=[{"name": text, "value": "$(params." + text + ")"}]),
        {**run(), "metadata": {"name": "p", "labels": {text: text}}},
        run(params=[{"name": "build-platforms", "value": ["/_" * 200_000] * 2}]),
    ]
    async with target(tmp_path) as webhook:
        for obj in objects:
            status, _ = await webhook.send(review(obj))
            assert status == 200
        await webhook.answers()


@pytest.mark.parametrize("unit", [b"[],", b'{"a":0},', b'"",'])
async def test_dense_body_is_refused_by_its_uid_before_it_is_parsed(
    tmp_path: Path, unit: bytes
) -> None:
    begin = (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",'
        b'"request":{"uid":"u-7","object":{"a":['
    )
    async with target(tmp_path) as webhook:
        for path in (MUTATE_PATH, VALIDATE_PATH):
            status, response = await webhook.send(begin + unit * 1_100_000 + b"0]}}}", path)
            assert (status, response["uid"], response["allowed"]) == (200, "u-7", False)


async def test_finalizers_of_an_object_over_budget_can_be_removed(tmp_path: Path) -> None:
    huge = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "spec": nested(60)}
    dying = {**huge, "metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    async with target(tmp_path) as webhook:
        update = {"operation": "UPDATE", "oldObject": huge}
        _, response = await webhook.send(review(dying, **update), VALIDATE_PATH)
        assert response["allowed"] is True
        _, response = await webhook.send(review(huge, **update), VALIDATE_PATH)
        assert response["allowed"] is False


async def test_compressed_body_is_refused(tmp_path: Path) -> None:
    async with target(tmp_path) as webhook:
        body = gzip.compress(b" " * 100 * MIB)
        status, response = await webhook.send(body, **{"content-encoding": "gzip"})
        assert status == 415
        assert "uncompressed" in response["text"]


async def test_announced_length_beyond_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    async with target(tmp_path) as webhook:
        reader, writer = await webhook.open()
        writer.write(
            f"POST {MUTATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: {10**12}\r\n\r\n".encode()
        )
        assert b" 413 " in await reader.readline()
        writer.close()


async def test_body_in_tiny_chunks_is_refused_and_in_large_chunks_accepted(tmp_path: Path) -> None:
    async with target(tmp_path) as webhook:
        reader, writer = await webhook.open()
        writer.write(
            f"POST {MUTATE_PATH} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        writer.write(b"1\r\nx\r\n" * 3_000)
        assert b" 400 " in await reader.readline()
        writer.close()

        async def chunks() -> AsyncIterator[bytes]:
            body = review(run())
            for start in range(0, len(body), 50):
                yield body[start : start + 50]

        async with webhook.client.post(webhook.url + MUTATE_PATH, data=chunks()) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("path", [MUTATE_PATH, VALIDATE_PATH])
async def test_unfinished_bodies_stay_within_their_bytes_and_give_way(
    tmp_path: Path, path: str
) -> None:
    async with target(tmp_path, bytes_in_flight=4 * MIB) as webhook:
        before = refused("bytes in flight")
        slow = [await webhook.unfinished(path, MIB) for _ in range(8)]
        await eventually(lambda: refused("bytes in flight") >= before + 4)
        assert in_flight() <= 4 * MIB
        # An honest review of half the budget is answered while they hold the rest.
        large = run(params=[{"name": "p", "value": "x" * 2 * MIB}])
        status, response = await webhook.send(review(large))
        assert (status, response["allowed"]) == (200, True)
        for writer in slow:
            writer.close()
        await eventually(lambda: in_flight() == 0)


async def test_unfinished_conversions_stay_within_their_bytes(tmp_path: Path) -> None:
    async with target(tmp_path) as webhook:
        slow = [asyncio.create_task(webhook.unfinished(CONVERT_PATH, 60 * MIB)) for _ in range(4)]
        await eventually(lambda: refused("bytes in flight") > 0 or in_flight() > 100 * MIB)
        assert in_flight() <= 160 * MIB
        await webhook.answers()
        for task in slow:
            task.cancel()
        done = await asyncio.gather(*slow, return_exceptions=True)
        for writer in done:
            if isinstance(writer, asyncio.StreamWriter):
                writer.close()


async def test_slow_body_meets_its_deadline(tmp_path: Path) -> None:
    async with target(tmp_path, body_seconds=0.3) as webhook:
        before = refused("body deadline")
        reader, writer = await webhook.open()
        writer.write(
            f"POST {MUTATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: 99\r\n\r\nx".encode()
        )
        assert b" 408 " in await reader.readline()
        assert b"SLUICE_WEBHOOK_BODY_SECONDS" in await reader.read()  # then it is closed
        assert refused("body deadline") == before + 1
        writer.close()
        await eventually(lambda: in_flight() == 0)


async def test_flood_of_one_namespace_leaves_room_for_another(tmp_path: Path) -> None:
    heavy = review(platforms(400), namespace="greedy")
    async with target(tmp_path) as webhook:
        await webhook.answers()
        flood = [asyncio.create_task(webhook.send(heavy)) for _ in range(60)]
        answers = await asyncio.gather(
            *(webhook.send(review(platforms(300), namespace=f"honest-{n}")) for n in range(3))
        )
        assert all(response["allowed"] for _, response in answers)
        results = [response for _, response in await asyncio.gather(*flood)]
    codes = [each["status"]["code"] for each in results if not each["allowed"]]
    assert codes
    assert set(codes) == {429}
