"""The bytes of bodies that wait for their answers, and of answers that nobody reads."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request

from services.classifier.webhook.bodies import BodyBudget, UnreadableBodyError
from shared.contracts.webhook import CONVERT_PATH
from shared.testing.waiting import eventually
from tests.unit.classifier.webhook.test_attacks import MIB, PATIENT, in_flight, target


def request_of(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [], "client": ("192.0.2.1", 1)}
    return Request(scope, receive)


async def test_complete_body_that_waits_gives_way_to_another_namespace() -> None:
    """Of one namespace the first keep their bytes."""
    budget = BodyBudget(bytes_max=1_000, seconds=PATIENT)
    answers: list[str] = []

    async def ask(namespace: str, size: int) -> None:
        body = orjson.dumps({"namespace": namespace}).ljust(size)
        try:
            async with budget.read(request_of(body), 1_000):
                answers.append(f"{namespace} is read")
                await asyncio.Event().wait()
        except UnreadableBodyError as error:
            answers.append(f"{namespace}: {error.cause}")

    tasks = []
    for namespace, size in (("greedy", 450), ("greedy", 450), ("greedy", 400), ("honest", 300)):
        tasks.append(asyncio.create_task(ask(namespace, size)))
        for _ in range(9):
            await asyncio.sleep(0)
    assert answers[:3] == ["greedy is read", "greedy is read", "greedy: bytes in flight"]
    assert sorted(answers[3:]) == ["greedy: bytes in flight", "honest is read"]
    assert budget.size == 750
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.size == 0


def conversion(mib: int) -> bytes:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"x": "x" * MIB}}
    wanted = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta1", "objects": [queue] * mib}
    made = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": wanted}
    return orjson.dumps(made)


async def test_question_counts_until_its_answer_is_read(tmp_path: Path) -> None:
    body = conversion(32)  # More than the buffers in between take.
    async with target(tmp_path) as webhook:
        reader, writer = await webhook.open()
        head = f"POST {CONVERT_PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        assert b" 200 " in await reader.readline()
        assert b"Success" in await reader.readuntil(b"convertedObjects")
        await webhook.answers()
        assert in_flight() >= len(body)
        writer.transport.abort()
        await eventually(lambda: in_flight() == 0)
