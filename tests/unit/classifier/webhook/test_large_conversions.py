"""Lists are converted by a process of their own: they hold nobody up, and take no more than they may."""

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest

from services.classifier.conversion import convert as convert_module
from services.classifier.evaluation import pool as pools
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.webhook.conversion_review import answer_conversion
from services.classifier.webhook.review import Outcome, Reply
from services.classifier.webhook.reviewing import large
from services.classifier.webhook.reviewing.reviewer import LIGHT_BYTES_MAX, Reviewer
from shared.testing.waiting import PATIENCE_SECONDS, eventually

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
    pool = EvaluationPool(light_workers=1, wait_seconds=PATIENCE_SECONDS)
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


LIMITS: dict[str, dict[str, float]] = {
    "cpu": {"CONVERSION_CPU_SECONDS": 0.02, "CONVERSION_CPU_SECONDS_OF_A_MIB": 0},
    "memory": {"CONVERSION_MEMORY_BYTES": 2**20},
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_list_that_costs_too_much_is_refused_by_its_uid(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in LIMITS[limit].items():
        monkeypatch.setattr(large if limit == "cpu" else pools, name, most)
    pool = EvaluationPool(light_workers=1, wait_seconds=PATIENCE_SECONDS)
    pool.start()
    try:
        reply = await Reviewer(pool=pool).convert(review(*MANY * 8))
    finally:
        await pool.close()
    response = orjson.loads(reply.body)["response"]
    assert (response["uid"], response["result"]["status"]) == ("u-1", "Failure")
    assert "ask for it in pages" in response["result"]["message"]
    assert (reply.cause, reply.outcome) == ("conversion", Outcome.REFUSED)


async def test_a_process_begins_with_the_first_list_and_ends_with_one_that_is_very_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = EvaluationPool(light_workers=1, wait_seconds=PATIENCE_SECONDS)
    pool.start()
    [child] = pool._conversions._children
    reviewer = Reviewer(pool=pool)
    try:
        await reviewer.convert(review(*MANY[:10]))
        assert child._process is None, "a small list is converted at once"
        await reviewer.convert(REVIEWS["a long list"])
        first = child._process
        await reviewer.convert(REVIEWS["a long list"])
        assert first is not None
        assert child._process is first
        monkeypatch.setattr(pools, "KEPT_AFTER_BYTES_MAX", 1000)
        await reviewer.convert(REVIEWS["a long list"])
        await eventually(lambda: child._process is None)
    finally:
        await pool.close()


def placed(number: int, domains: int) -> dict[str, Any]:
    """A Workload that is small, and large in the other version."""
    level = {"universal": "node"}
    slices = [{"domainCount": domains, "podCounts": {"universal": 1}, "valuesPerLevel": [level]}]
    assignments = [
        {"name": f"p{n}", "topologyAssignment": {"levels": ["host"], "slices": slices}}
        for n in range(number)
    ]
    return {**workload(1), "status": {"admission": {"podSetAssignments": assignments}}}


async def test_small_object_that_becomes_large_is_converted_apart_and_cut_off() -> None:
    """Ten lines may stand for a million domains."""
    pool = EvaluationPool(light_workers=1, wait_seconds=PATIENCE_SECONDS)
    pool.start()
    try:
        reviewer = Reviewer(pool=pool)
        few = await reviewer.convert(review(placed(1, 3)))
        many = await reviewer.convert(review(placed(300, 100_000)))
        after = await reviewer.convert(review(placed(1, 3)))
    finally:
        await pool.close()
    assert few.body == after.body == answer_conversion(review(placed(1, 3))).body
    assert (many.cause, many.outcome) == ("conversion", Outcome.REFUSED)


ESCAPED = review(placed(1, 3)).replace(b"domainCount", b"\\u0064omainCount")


@pytest.mark.parametrize("body", [review(placed(1, 3)), ESCAPED], ids=["plain", "escaped"])
async def test_what_may_become_large_is_not_converted_in_the_event_loop(body: bytes) -> None:
    nobody_serves = EvaluationPool(light_workers=1, wait_seconds=PATIENCE_SECONDS)
    asked = Reviewer(pool=nobody_serves).convert(body)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asked, 0.05)


def test_each_name_of_a_list_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: Counter[str] = Counter()
    name_of = convert_module._name

    def counting(item: Any) -> str:
        looked[name_of(item)] += 1
        return name_of(item)

    monkeypatch.setattr(convert_module, "_name", counting)
    pod_sets = [{"name": f"p{number}", "count": 1} for number in range(500)]
    assert answer_conversion(review(workload(1, podSets=pod_sets))).outcome is Outcome.MUTATED
    assert max(looked.values()) <= 10
