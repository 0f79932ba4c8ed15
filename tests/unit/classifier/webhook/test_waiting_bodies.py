"""The bytes of bodies that wait for their answers, and of answers that nobody reads."""

import asyncio
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.webhook import app as webhook_module
from services.classifier.webhook.bodies import BodyBudget, UnreadableBodyError
from services.classifier.webhook.reviewing.reviewer import Reviewer
from shared.contracts.webhook import CONVERT_PATH
from shared.testing.waiting import eventually
from tests.unit.classifier.webhook.test_app import service
from tests.unit.classifier.webhook.test_attacks import MIB, PATIENT, in_flight, target


def request_of(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [], "client": ("192.0.2.1", 1)}
    return Request(scope, receive)


async def test_complete_body_that_waits_is_dropped_for_another_namespace() -> None:
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


async def test_body_that_gave_way_is_read_no_further() -> None:
    budget = BodyBudget(bytes_max=1_000, seconds=PATIENT)
    asked = 0

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 2:
            async with budget.read(request_of(b"y" * 900), 1_000):
                pass  # Its bytes are there at once, and the first ones give way.
        return {"type": "http.request", "body": b"x" * 300, "more_body": asked < 9}

    scope = {"type": "http", "method": "POST", "headers": [], "client": ("192.0.2.1", 1)}
    with pytest.raises(UnreadableBodyError, match="gave way"):
        async with budget.read(Request(scope, receive), 1_000):
            pass
    assert (asked, budget.size) == (2, 0)


async def test_body_just_past_its_deadline_is_dropped_for_another() -> None:
    budget = BodyBudget(bytes_max=1_000, seconds=0.01)
    causes: list[str] = []

    async def receive() -> dict[str, Any]:
        if budget.size:
            try:
                await asyncio.Event().wait()
            finally:
                async with budget.read(request_of(b"y" * 900), 1_000) as whole:
                    causes.append(f"{len(whole)} bytes are read")
        return {"type": "http.request", "body": b"x" * 300, "more_body": True}

    scope = {"type": "http", "method": "POST", "headers": [], "client": ("192.0.2.1", 1)}
    with pytest.raises(UnreadableBodyError) as error:
        async with budget.read(Request(scope, receive), 1_000):
            pass
    assert [*causes, error.value.cause] == ["900 bytes are read", "bytes in flight"]


def conversion(mib: int, namespace: str = "ns") -> bytes:
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"namespace": namespace},
        "spec": {"x": "x" * MIB},
    }
    wanted = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta1", "objects": [queue] * mib}
    made = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": wanted}
    return orjson.dumps(made)


async def test_list_dropped_while_it_waits_is_answered_with_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "CONVERSION_BYTES_IN_FLIGHT_MAX", 3 * MIB)
    nobody_serves = EvaluationPool(wait_seconds=PATIENT)
    async with service(tmp_path, reviewer=Reviewer(pool=nobody_serves)) as webhook:

        async def convert(namespace: str) -> tuple[int, str]:
            sent = webhook.client.post(
                webhook.url + CONVERT_PATH, data=BytesIO(conversion(2, namespace))
            )
            async with sent as answer:
                return answer.status, await answer.text()

        first = asyncio.create_task(convert("greedy"))
        await eventually(lambda: in_flight() > 2 * MIB)
        second = asyncio.create_task(convert("honest"))
        status, text = await first
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
    assert (status, text.startswith("the body gave way to others")) == (503, True)


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
