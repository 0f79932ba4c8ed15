"""A console with a busy queue, with and without authorisation."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.console.questions import CQ, ROOT, Json, positions
from tests.integration.console_stage import Place, console


async def busy(place: Place) -> None:
    """Two of four CPUs are in use; one of others waits before two of the team's."""
    site = place.site
    await site.queue(cpu=2)
    await site.workload("runs", cpu="2", age=99)
    await site.workload("theirs", cpu="2", age=60, namespace="others")
    await site.workload("first", cpu="2", age=40)
    await site.workload("second", cpu="1", age=20, priority=-1)
    await site.synced()


def is_busy(body: Json) -> bool:
    """Whether those wait who are to wait; before the first decision another three do."""
    return [name for name, *_ in positions(body)] == ["others/theirs", "team/first", "team/second"]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with console(people=True) as place:
        await busy(place)
        await place.until(CQ, 200, is_busy, token=ROOT)
        yield place


@pytest.fixture
async def at_home() -> AsyncIterator[Place]:
    async with console(people=False) as place:
        await busy(place)
        await place.until(CQ, 200, is_busy)
        yield place
