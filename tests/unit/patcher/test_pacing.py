"""Low-priority writes slow down while many decisions are written."""

import asyncio

import pytest

from services.patcher.cluster.pacing import BUSY_PER_SECOND, BUSY_SLOWDOWN, RateLimiter, WriteLoad
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
