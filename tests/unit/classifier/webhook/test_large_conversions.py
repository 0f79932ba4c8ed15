"""Lists are converted by a process of their own: they hold nobody up, and take no more than they may."""

import asyncio
from typing import Any

import orjson
import pytest

from services.classifier.evaluation import pool as pools
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.webhook.conversion_review import answer_conversion
from services.classifier.webhook.review import Outcome, Reply
from services.classifier.webhook.reviewing.reviewer import LIGHT_BYTES_MAX, Reviewer
from shared.testing.waiting import eventually

OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


def workload(number: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": NEW,
        "kind": "Workload",
        "metadata": {"name": f"w-{number}", "namespace": "ns"},
        "spec": {"queueName": "main", "podSets": [], **spec},
    }


def review(*objects: Any, wanted: str = OLD) -> bytes:
    request = {"uid": "u-1", "desiredAPIVersion": wanted, "objects": objects}
    made = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return orjson.dumps(made)


MANY = [workload(number) for number in range(2_000)]
REVIEWS = {
    "a long list": review(*MANY),
    "a list with one object that nobody can convert": review(*MANY, {"kind": "Workload"}),
    "a list in a version that there is not": review(*MANY, wanted="kueue.x-k8s.io/v9"),
    "no review": b'{"kind":"ConversionReview","request":{"objects":[' + b"1," * LIGHT_BYTES_MAX,
    "no JSON at all": b"x" * 2 * LIGHT_BYTES_MAX,
}


async def convert(body: bytes) -> tuple[Reply, Reply]:
    """The reply, and that to a long list after it."""
    pool = EvaluationPool(light_workers=1)
    pool.start()
    try:
        reviewer = Reviewer(pool=pool)
        return await reviewer.convert(body), await reviewer.convert(REVIEWS["a long list"])
    finally:
        await pool.close()


@pytest.mark.parametrize("named", REVIEWS)
async def test_list_is_converted_apart_as_it_would_be_here(named: str) -> None:
    wanted = answer_conversion(REVIEWS[named])
    found, after = await convert(REVIEWS[named])
    assert (found.body, found.outcome) == (wanted.body, wanted.outcome)
    assert (found.message, found.cause) == (wanted.message, wanted.cause)
    assert after.outcome is Outcome.MUTATED


@pytest.mark.parametrize("limit", [{"CPU_SECONDS": 0.2}, {"MEMORY_BYTES": 2**20}], ids=str)
async def test_list_that_costs_too_much_is_refused_by_its_uid(
    limit: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in limit.items():
        monkeypatch.setattr(pools, f"CONVERSION_{name}", most)
    pool = EvaluationPool(light_workers=1)
    pool.start()
    try:
        reply = await Reviewer(pool=pool).convert(review(*MANY * 8))
    finally:
        await pool.close()
    response = orjson.loads(reply.body)["response"]
    assert (response["uid"], response["result"]["status"]) == ("u-1", "Failure")
    assert "ask for it in pages" in response["result"]["message"]
    assert (reply.cause, reply.outcome) == ("conversion", Outcome.REFUSED)


async def test_no_process_waits_for_lists_that_nobody_asks_for() -> None:
    pool = EvaluationPool(light_workers=1)
    pool.start()
    [child] = pool._conversions._children
    converted = asyncio.create_task(Reviewer(pool=pool).convert(REVIEWS["a long list"]))
    await asyncio.sleep(0)
    assert child._process is None
    assert (await converted).outcome is Outcome.MUTATED
    await eventually(lambda: child._process is None)
    await pool.close()
