"""A stop that another replica has carried out before leaves alone what was admitted since."""

import pytest

from shared.bus.port import LaterError
from shared.testing.builders import admission
from tests.unit.patcher.test_late_release import HELD, SUSPENDED, staged


@pytest.mark.parametrize("name", HELD)
async def test_stop_that_was_carried_out_before_leaves_what_was_admitted_since(name: str) -> None:
    stage = await staged(name)
    evicted = await stage.decide("evicted")
    await stage.stop(stage.second, evicted)
    await stage.release(stage.second, await stage.decide("admitted"))
    assert await stage.runs()
    with pytest.raises(LaterError, match="is not the last one"):
        await stage.stop(stage.first, evicted)
    assert await stage.runs()


@pytest.mark.parametrize("name", SUSPENDED)
async def test_stop_that_was_on_its_way_leaves_what_was_admitted_since(name: str) -> None:
    stage = await staged(name)
    await stage.release(stage.first, await stage.decide("admitted"))
    evicted = await stage.decide("evicted")
    await stage.observe(stage.second)

    async def stop_and_run() -> None:
        await stage.stop(stage.second, evicted)
        assert not await stage.runs()
        await stage.release(stage.second, await stage.decide("admitted"))

    stage.first.kube.meanwhile = stop_and_run
    with pytest.raises(LaterError, match="is not the last one"):
        await stage.stop(stage.first, evicted)
    assert await stage.runs()


@pytest.mark.parametrize("name", SUSPENDED)
async def test_hold_for_an_older_reason_leaves_what_was_admitted_since(name: str) -> None:
    stage = await staged(name)
    waiting = await stage.decide("waiting")
    await stage.release(stage.second, await stage.decide("admitted"))
    seen = stage.state.replace(held=False)
    with pytest.raises(LaterError, match="is not the last one"):
        await stage.first.jobs.hold(seen, waiting)
    assert await stage.runs()


@pytest.mark.parametrize("name", SUSPENDED)
async def test_hold_that_was_on_its_way_leaves_the_mark_of_a_stop(name: str) -> None:
    """Its user starts a job that waits. It is evicted and admitted while that is noticed."""
    stage = await staged(name)
    await stage.release(stage.second, admission(stage.state, "admitted"))  # In the user's place.
    waiting = await stage.decide("waiting")
    await stage.observe(stage.first)

    async def stop_and_run() -> None:
        await stage.stop(stage.second, await stage.decide("evicted"))
        await stage.release(stage.second, await stage.decide("admitted"))

    stage.first.kube.meanwhile = stop_and_run
    with pytest.raises(LaterError, match="is not the last one"):
        await stage.first.jobs.hold(stage.state.replace(held=False), waiting)
    assert await stage.runs()
