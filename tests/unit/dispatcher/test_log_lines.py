"""Whom the dispatcher's log lines are about: each carries the workload, and the number of its trace."""

import asyncio
from typing import Final

from shared.contracts.controllers import WINDOW
from shared.contracts.kube import kinds
from shared.contracts.windows import WINDOWS
from tests.unit.dispatcher.harness import NAMESPACE, Harness, job, workload_of

TRACE: Final = "ab" * 16
TRACEPARENT: Final = f"00-{TRACE}-{'cd' * 8}-01"
CARRIED: Final = {f"workload={f'{NAMESPACE}/{workload_of()}'!r}", f"trace={TRACE!r}"}
CHECK_EVENT: Final = "info: an admission check has another state"
ORDER_EVENT: Final = "info: an order to a spoke has another state"


def words_of(harness: Harness, event: str) -> set[str]:
    """What the first line of an event carries."""
    [line, *_] = [line for line in harness.world.log if event in line]
    return set(line.partition(event)[2].split())


def test_lines_about_checks_and_orders_carry_the_workload_and_its_trace() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved", traceparent=TRACEPARENT)
            await harness.until_check("Pending")

        harness.run(drive)

        assert words_of(harness, CHECK_EVENT) >= CARRIED
        assert words_of(harness, ORDER_EVENT) >= CARRIED


def test_line_about_a_check_of_windows_carries_the_workload_and_its_trace() -> None:
    with Harness(spokes=()) as harness:

        async def drive() -> None:
            metadata = {
                "name": "night",
                "uid": "night",
                "annotations": {WINDOWS: "* * * * * for 1h"},
            }
            check = {"metadata": metadata, "spec": {"controllerName": WINDOW}}
            await harness.observe(kinds.ADMISSION_CHECK, check)
            await harness.decide(job(), "reserved", "night", traceparent=TRACEPARENT)
            await asyncio.sleep(5)

        harness.run(drive)

        assert words_of(harness, CHECK_EVENT) >= {"check='night'", *CARRIED}
