"""Evaluation in child processes: cut off by the kernel, two lanes, turns for namespaces."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.classifier.cel import CelEngine, Programs, SetLabel
from services.classifier.evaluation.expressions import MUTATIONS_MAX, Evaluation
from services.classifier.evaluation.fair_queue import Source
from services.classifier.evaluation.frames import Frame, Job, Setup
from services.classifier.evaluation.pool import EvaluationPool, TooHeavyError
from services.classifier.refusal import RefusedError, WebhookRule
from shared.testing.waiting import PATIENCE_SECONDS

ENGINE = CelEngine()
EVALUATOR = "services.classifier.evaluation.worker"
LIGHT = "import sys, services.classifier.evaluation.worker; print(*sys.modules)"
QUICK = "priority('p')"
# Work that counts as one loop step and copies a string of the tenant's size and content.
GROWS = "annotation('a', string(size(replace(pacEventType, 'a', pacEventType))))"
LOOPS = (
    "pipelineRun.l.map(x, pipelineRun.l.filter(y, pacEventType.contains(x + y + 'zz')))"
    ".size() > 100000 ? label('a', 'b') : label('a', 'c')"
)


def evaluation(namespace: str = "ns", event: str = "push", **fields: Any) -> Evaluation:
    return Evaluation(
        object={"metadata": {}, **fields},
        is_run=False,
        namespace=namespace,
        pac_event_type=event,
        pac_test_event_type="",
    )


def programs(*expressions: str) -> Programs:
    return ENGINE.compile(expressions)


@asynccontextmanager
async def pool(**options: Any) -> AsyncIterator[EvaluationPool]:
    made = EvaluationPool(**{"wait_seconds": PATIENCE_SECONDS, **options})
    made.start()
    try:
        yield made
    finally:
        await made.close()


def cut_off(cause: str) -> float:
    labels = {"lane": "light", "cause": cause}
    return REGISTRY.get_sample_value("sluicegate_webhook_cut_off_total", labels) or 0.0


async def test_the_pool_returns_what_the_expressions_return() -> None:
    async with pool() as made:
        found = await made.evaluate(programs(QUICK, "resource('a', 2)"), evaluation(), size=1)
    assert len(found) == 2
    assert isinstance(found[0], SetLabel)


async def test_new_rules_are_compiled_before_the_next_evaluation() -> None:
    async with pool(light_workers=1) as made:
        for value in ("b", "c"):
            rules = programs(f"label('a', '{value}')")
            found = await made.evaluate(rules, evaluation(), size=1)
            assert found == [SetLabel(key="a", value=value)]


async def test_failing_expression_keeps_its_message() -> None:
    async with pool(light_workers=1) as made:
        with pytest.raises(RefusedError, match="no such key: nope") as error:
            await made.evaluate(programs("label('a', pipelineRun.nope)"), evaluation(), size=1)
    assert error.value.rule is WebhookRule.EXPRESSION


async def test_string_function_in_many_loops_is_cut_off_and_the_lane_goes_on() -> None:
    costly = evaluation("greedy", event="a" * 400_000, l=["a" * 40] * 90)
    before = cut_off("cpu")
    async with pool() as made:
        for _ in range(3):
            with pytest.raises(TooHeavyError):
                await made.evaluate(programs(LOOPS), costly, size=1)
        found = await made.evaluate(programs(QUICK), evaluation("other"), size=1)
        assert len(found) == 1
        with pytest.raises(TooHeavyError):
            await made.evaluate(programs(QUICK), evaluation("greedy"), size=1)
        assert await made.evaluate(programs(QUICK), evaluation("greedy"), size=1, address="other")
    assert cut_off("cpu") - before == 1, "its namespace has the heavy lane from then on"


async def test_memory_beyond_the_limit_is_cut_off_and_the_lane_goes_on() -> None:
    before = cut_off("memory")
    async with pool(memory_bytes=64 * 2**20, light_workers=1) as made:
        with pytest.raises(TooHeavyError):
            await made.evaluate(programs(GROWS), evaluation(event="a" * 10_000), size=1)
        assert await made.evaluate(programs(QUICK), evaluation("other"), size=1)
    assert cut_off("memory") - before == 1


async def test_too_many_mutations_are_refused() -> None:
    many = [str(n) for n in range(600)]
    twice = "pipelineRun.l.map(x, label('a' + x, 'b'))"
    async with pool(light_workers=1) as made:
        with pytest.raises(RefusedError, match=f"at most {MUTATIONS_MAX}") as error:
            await made.evaluate(programs(twice, twice), evaluation(l=many), size=1)
    assert error.value.rule is WebhookRule.MUTATIONS


async def test_one_namespace_may_not_fill_a_lane() -> None:
    async with pool(light_workers=1, bytes_waiting_max=20_000) as made:
        rules = programs(QUICK)

        async def ask(namespace: str) -> str:
            try:
                await made.evaluate(rules, evaluation(namespace), size=1_000)
            except RefusedError as error:
                return error.cause
            return "done"

        flood = [asyncio.create_task(ask("greedy")) for _ in range(50)]
        await asyncio.sleep(0)
        honest = asyncio.create_task(ask("honest"))
        done: list[str] = []
        honest.add_done_callback(lambda _: done.append("honest"))
        for task in flood:
            task.add_done_callback(lambda task: done.append(task.result()))
        await asyncio.gather(honest, *flood)
        assert await honest == "done"
    assert done.count(WebhookRule.BUSY.label) >= 28
    # Twenty of the greedy one waited before; the honest one waited for one of them at most.
    assert done[: done.index("honest")].count("done") <= 2


async def test_place_of_a_review_that_timed_out_in_the_queue_is_free() -> None:
    nobody_serves = EvaluationPool(bytes_waiting_max=1_000, wait_seconds=0.01)
    for _ in range(2):
        with pytest.raises(RefusedError) as error:
            await nobody_serves.evaluate(programs(QUICK), evaluation(), size=1_000)
        assert error.value.rule is WebhookRule.LATE


async def test_child_that_cannot_read_what_it_must_know_answers_nothing() -> None:
    told = Setup("v1", lambda: {"documents": [{"metadata": {"name": "a"}}]})
    work = Job(
        source=Source("", "ns"),
        frame=Frame({"do": "validate"}, b"{}"),
        size=2,
        setups={"integrations": told},
    )
    async with pool() as made:
        for _ in range(2):
            with pytest.raises(RefusedError, match=r"is missing.*try again") as error:
                await made.answer(work)
            assert error.value.rule is WebhookRule.NO_PROCESS


async def test_lane_goes_on_after_no_process_could_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, tries = asyncio.create_subprocess_exec, list[str]()

    async def fails_first(*given: Any, **how: Any) -> asyncio.subprocess.Process:
        if EVALUATOR in given:
            tries.append("tried")
            if len(tries) <= 2:
                raise BlockingIOError(11, "Resource temporarily unavailable")
        return await start(*given, **how)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails_first)
    async with pool(light_workers=1) as made:
        with pytest.raises(RefusedError, match="temporarily unavailable: try again") as error:
            await made.evaluate(programs(QUICK), evaluation(), size=1)
        assert error.value.rule is WebhookRule.NO_PROCESS
        assert await made.evaluate(programs(QUICK), evaluation(), size=1)


async def test_children_end_with_the_pool() -> None:
    async with pool() as made:
        await made.evaluate(programs(QUICK), evaluation(), size=1)
        children = [child for lane in (made._light, made._heavy) for child in lane._children]
        processes = [child._process for child in children]
    assert all(process is None or process.returncode is not None for process in processes)


async def test_children_end_with_a_pool_whose_closing_is_cancelled() -> None:
    async with pool() as made:
        await made.evaluate(programs(QUICK), evaluation(), size=1)
        children = [child for lane in (made._light, made._heavy) for child in lane._children]
        processes = [one for child in children if (one := child._process) is not None]
        closing = asyncio.create_task(made.close())
        for _ in range(3):  # Until each child's task waits for the end of its process.
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert processes
        for process in processes:
            await process.wait()


def test_a_child_that_only_evaluates_loads_no_models_of_kinds() -> None:
    """Each of two holds what it loads; `make bench-rest` measures it."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert {"pydantic", "structlog", "prometheus_client"}.isdisjoint(done.stdout.split())
