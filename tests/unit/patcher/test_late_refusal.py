"""A release that was on its way when its refusal was told, or when pods joined, comes to nothing."""

from contextlib import aclosing

import pytest

from shared.bus.port import CaughtUp, LaterError
from shared.contracts.kube.kinds import POD, Object
from shared.contracts.messages.outcomes import Outcome
from shared.kube.port import RefusedError
from tests.unit.patcher.test_late_release import HELD, Replica, Stage, staged


async def reported(stage: Stage) -> list[tuple[str, str]]:
    """Action and result of each outcome, oldest first."""
    found: list[tuple[str, str]] = []
    async with aclosing(stage.bus.replay(Outcome.stream)) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            outcome = Outcome.decode(item.data)
            found.append((outcome.action, outcome.result))
    return found


def refusing(replica: Replica) -> None:
    """Let the cluster refuse the next release of this replica for good."""

    async def refuse() -> None:
        raise RefusedError("denied by somebody's webhook", status=400, reason="BadRequest")

    replica.kube.meanwhile = refuse


@pytest.mark.parametrize("name", HELD)
async def test_release_behind_the_report_of_its_refusal_leaves_the_job_held(
    name: str,
) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")

    async def be_refused() -> None:
        refusing(stage.second)
        await stage.release(stage.second, admitted)

    stage.first.kube.meanwhile = be_refused
    await stage.release(stage.first, admitted)
    assert not await stage.runs()
    assert await reported(stage) == [("release", "refused")] * 2
    await stage.release(stage.first, await stage.decide("admitted"))
    assert await stage.runs(), "the next admission lets it go"


@pytest.mark.parametrize("name", HELD)
async def test_refusal_is_not_reported_where_another_replica_has_released_the_job(
    name: str,
) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")

    async def release_and_refuse() -> None:
        await stage.release(stage.second, admitted)
        raise RefusedError("denied by somebody's webhook", status=400, reason="BadRequest")

    stage.first.kube.meanwhile = release_and_refuse
    with pytest.raises(LaterError, match="released meanwhile"):
        await stage.release(stage.first, admitted)
    assert await stage.runs()
    assert await reported(stage) == [("release", "applied")]


async def test_pod_that_joins_a_group_behind_its_stop_is_not_let_go_by_a_late_release() -> None:
    stage = await staged("a pod of a group")
    admitted = await stage.decide("admitted")
    await stage.stop(stage.second, await stage.decide("evicted"))
    kube = stage.first.kube
    await kube.delete(POD, "team", "one")
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": stage.metadata,
        "spec": stage.spec,
    }
    await kube.create(POD, pod)
    await stage.observe(stage.first)
    with pytest.raises(LaterError, match="is not the last one"):
        await stage.release(stage.first, admitted)
    assert not await stage.runs()
