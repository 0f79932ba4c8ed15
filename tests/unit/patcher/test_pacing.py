"""Low-priority writes slow down while many decisions are written."""

import asyncio

import pytest

from services.patcher.cluster.pacing import (
    BUSY_PER_SECOND,
    BUSY_SLOWDOWN,
    RETRY_SECONDS,
    Backlog,
    RateLimiter,
    WriteLoad,
    drain,
)
from services.patcher.jobs.repeated_changes import FORGET_SECONDS, FREE, RepeatedChanges
from services.patcher.metrics import UNDONE
from shared.bus.port import LaterError
from shared.kube.port import NotFoundError, RefusedError, ThrottledError, UnavailableError
from shared.testing.builders import workload
from shared.testing.world.loop import run_virtual


def turns(
    pace: RateLimiter, load: WriteLoad, *, decisions_per_second: float, seconds: float
) -> int:
    """Count the turns of `seconds` while decisions are written all the time."""

    async def decide() -> None:
        while decisions_per_second:
            load.record_write()
            await asyncio.sleep(1 / decisions_per_second)

    async def main() -> int:
        deciding = asyncio.create_task(decide())
        await asyncio.sleep(5)
        count, until = 0, asyncio.get_running_loop().time() + seconds
        while True:
            await pace.wait()
            if asyncio.get_running_loop().time() > until:
                deciding.cancel()
                return count
            count += 1

    return run_virtual(main())


@pytest.mark.parametrize(
    ("decisions_per_second", "expected"),
    [
        pytest.param(0, 200, id="idle: as fast as it may"),
        pytest.param(BUSY_PER_SECOND / 2, 200, id="a few decisions: as fast as it may"),
        pytest.param(BUSY_PER_SECOND * 3, 200 / BUSY_SLOWDOWN, id="many decisions: a tenth of it"),
    ],
)
def test_low_priority_writes_slow_down_for_decisions(
    decisions_per_second: float, expected: float
) -> None:
    load = WriteLoad()
    counted = turns(
        RateLimiter(20, load=load), load, decisions_per_second=decisions_per_second, seconds=10
    )
    assert counted == pytest.approx(expected, abs=2)


UNTIL_GRANTED = RefusedError('User "patcher" cannot patch resource "pods"', status=403)
AGAIN = {
    "it kept changing": LaterError("keeps changing"),
    "the API server asked for a pause": ThrottledError("slower", retry_after_seconds=7),
    "the API server did not answer": UnavailableError("no answer"),
    "an operator has to grant a right": UNTIL_GRANTED,
}
NEVER = {
    "it is invalid": RefusedError("spec: invalid", status=422),
    "it is gone": NotFoundError("gone"),
}


@pytest.mark.parametrize(
    ("error", "succeeds"),
    [*((error, True) for error in AGAIN.values()), *((error, False) for error in NEVER.values())],
    ids=[*AGAIN, *NEVER],
)
def test_write_that_may_succeed_later_is_tried_again_after_a_pause(
    error: Exception, succeeds: bool
) -> None:
    fails, written = 3, list[tuple[str, float]]()

    async def write(key: str, _value: None) -> None:
        nonlocal fails
        if key == "bad" and fails:
            fails -= 1
            raise error
        written.append((key, asyncio.get_running_loop().time()))

    async def main() -> None:
        backlog: Backlog[str, None] = Backlog()
        backlog.put("bad", None)
        backlog.put("good", None)
        limiter = RateLimiter(1_000, burst=10)
        draining = asyncio.create_task(drain(backlog, write, limiter, what="test"))
        await asyncio.sleep(100)
        draining.cancel()

    run_virtual(main())
    assert [key for key, _ in written] == (["good", "bad"] if succeeds else ["good"])
    if succeeds:
        assert written[-1][1] >= 3 * RETRY_SECONDS


@pytest.mark.parametrize(
    ("longest", "expected"),
    [(60.0, [1, 2, 4, 8, 16, 32, 60, 60]), (1.0, [1] * 8)],
    ids=["released", "held"],
)
def test_change_that_is_undone_each_time_is_repeated_with_growing_pauses(
    longest: float, expected: list[float]
) -> None:
    counted = UNDONE.labels("released")._value
    before = counted.get()

    async def main() -> list[float]:
        changes = RepeatedChanges(done="released", pause_seconds_max=longest)
        state, pauses = workload("w"), list[float]()
        for _ in range(FREE):
            changes.check(state, "1")
            changes.record(state, "1")
        for _ in expected:
            with pytest.raises(LaterError, match=r"released \d+ times, which was undone") as later:
                changes.check(state, "1")
            pauses.append(later.value.delay_seconds or 0.0)
            await asyncio.sleep(pauses[-1])
            changes.check(state, "1")
            changes.record(state, "1")
        changes.check(state, "2")
        changes.check(workload("other", uid="u-other"), "1")
        await asyncio.sleep(FORGET_SECONDS + 1)
        changes.record(state, "1")
        changes.check(state, "1")
        return pauses

    assert run_virtual(main()) == expected
    assert counted.get() - before == len(expected)
