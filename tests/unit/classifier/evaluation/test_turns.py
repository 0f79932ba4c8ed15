"""Large reviews: one at a time, the namespaces in turn."""

import asyncio

import pytest

from services.classifier.evaluation.turns import Turns
from services.classifier.refusal import RefusedError
from services.classifier.webhook.reviewer import LIGHT_BYTES_MAX, LIGHT_TOKENS_MAX, Reviewer
from shared.testing.world.loop import run_virtual
from tests.unit.classifier.webhook.reviews import RULES, review

PATIENT = 120.0


async def test_namespaces_take_turns_one_review_at_a_time() -> None:
    turns, order, inside = Turns(wait_seconds=PATIENT), list[str](), list[str]()

    async def large(namespace: str) -> None:
        async with turns.turn(namespace):
            inside.append(namespace)
            await asyncio.sleep(0)
            assert inside == [namespace]
            inside.clear()
            order.append(namespace)

    await asyncio.gather(*map(large, ["greedy", "greedy", "greedy", "honest", "greedy"]))

    assert order == ["greedy", "greedy", "honest", "greedy", "greedy"]


async def test_too_many_of_one_namespace_are_refused_and_another_one_waits() -> None:
    turns = Turns(waiting_max=2, wait_seconds=PATIENT)

    async def large(namespace: str) -> str:
        try:
            async with turns.turn(namespace):
                await asyncio.sleep(0)
        except RefusedError as error:
            return f"{error.code} {error.cause}"
        return "reviewed"

    wanted = ["greedy"] * 5 + ["honest"]
    found = await asyncio.gather(*map(large, wanted))

    assert found == ["reviewed"] * 3 + ["429 busy"] * 2 + ["reviewed"]


async def test_who_gives_up_keeps_nobody_waiting() -> None:
    turns = Turns(wait_seconds=PATIENT)

    async def large() -> None:
        async with turns.turn("a"):
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(large()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    await large()


@pytest.mark.parametrize("first", ["the turn", "the end"])
async def test_turn_of_a_review_that_ends_at_that_moment_goes_to_the_next(first: str) -> None:
    turns, reviewed = Turns(wait_seconds=PATIENT), list[str]()

    async def large(name: str) -> None:
        async with turns.turn("a"):
            reviewed.append(name)

    async with turns.turn("a"):
        ending, waiting = (asyncio.create_task(large(name)) for name in ("ending", "waiting"))
        await asyncio.sleep(0)
        if first == "the end":
            ending.cancel()
        turns._next()
        ending.cancel()
        async with asyncio.timeout(PATIENT):
            await waiting
    assert reviewed == ["waiting"]


def test_next_turn_comes_after_as_much_time_as_the_last_one_took() -> None:
    async def starts() -> list[float]:
        turns, loop, found = Turns(wait_seconds=PATIENT), asyncio.get_running_loop(), list[float]()

        async def large() -> None:
            async with turns.turn("a"):
                found.append(loop.time())
                await asyncio.sleep(3)

        await asyncio.gather(large(), large(), large())
        return [one - found[0] for one in found]

    assert run_virtual(starts()) == [0, 6, 12]


FILLINGS = {"small": "x", "large": "x" * LIGHT_BYTES_MAX, "dense": "," * (LIGHT_TOKENS_MAX + 1)}


@pytest.mark.parametrize("size", FILLINGS)
async def test_small_review_passes_while_large_ones_wait(size: str) -> None:
    turns = Turns(waiting_max=0)
    reviewer = Reviewer(turns=turns)
    filling = FILLINGS[size]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": {"a": filling}}}
    async with turns.turn("other"):
        reply = await reviewer.mutate(review({**job, "spec": {}}), RULES, None)

    assert ("namespace 'ns': 0 large reviews wait" in reply.message) == (size != "small")
    assert reply.cause == ("" if size == "small" else "busy")
