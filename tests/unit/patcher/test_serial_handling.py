"""Messages about one workload are handled one after the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import ORDER
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.unit.patcher.stage import NOON, HeldKube, Setup


class Spoke(Setup):
    """A setup with a copy of a job of another cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = self.patchers_kube = HeldKube(self.kube, lambda kind, _: kind == kinds.JOB)
        self.settings = {"hub": "far"}
        self._ordered = 0

    async def copy(self) -> WorkloadState:
        state = await self.submit()
        metadata = {
            "labels": {ORIGIN: "multikueue", PREBUILT_WORKLOAD: state.name},
            "annotations": {ORDER: "far/7"},
        }
        job = await self.kube.patch(kinds.JOB, "default", "train", {"metadata": metadata})
        await self.observe(kinds.JOB, job)
        return state

    async def choose(self, state: WorkloadState) -> None:
        """The order that starts it; or the same one again, as after a change of its class."""
        self._ordered += 1
        await self.bus.publish(
            Dispatch(
                spoke="hub", cluster="far", namespace="default", name=state.name, uid="u",
                state="chosen", number=7, at=NOON + timedelta(seconds=self._ordered),
            )
        )  # fmt: skip

    async def evict(self, state: WorkloadState) -> None:
        """Until the patcher has heard of it."""
        await self.decide(state, "evicted", reason="WorkloadDeleted")
        await eventually(lambda: self._knows(state, "evicted"))

    async def admit(self, state: WorkloadState) -> None:
        await self.decide(state, "admitted")
        await eventually(lambda: self._knows(state, "admitted"))

    async def _knows(self, state: WorkloadState, decided: str) -> bool:
        assert self.patcher is not None
        admission = self.patcher.cache.admission(state.namespace, state.name)
        return admission is not None and admission.state == decided

    async def stopped(self) -> bool:
        actions = [outcome.action for outcome in await self.outcomes()]
        return {"release", "suspend"} <= set(actions)


@pytest.fixture
async def spoke() -> AsyncIterator[Spoke]:
    subject = Spoke()
    await subject.bus.start()
    await subject.start_patcher()
    await subject.flavor()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


async def started_by_an_order(spoke: Spoke, state: WorkloadState) -> None:
    await spoke.admit(state)
    await spoke.choose(state)
    await spoke.slow.on_its_way.wait()
    await spoke.evict(state)


async def looked_at_for_an_order(spoke: Spoke, state: WorkloadState) -> None:
    await spoke.choose(state)
    await spoke.admit(state)
    await spoke.slow.on_its_way.wait()
    await spoke.evict(state)
    await spoke.choose(state)


Course = Callable[[Spoke, WorkloadState], Awaitable[None]]

COURSES: dict[str, Course] = {
    "an order starts it, and a decision stops it": started_by_an_order,
    "a decision starts it, and an order finds it evicted": looked_at_for_an_order,
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES.keys())
async def test_stop_is_reported_only_after_the_pending_release(
    spoke: Spoke, course: Course
) -> None:
    state = await spoke.copy()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await course(spoke, state)
    await asyncio.sleep(0.1)
    spoke.slow.arrives.set()
    await eventually(spoke.stopped)
    actions = [outcome.action for outcome in await spoke.outcomes()]
    assert actions[:2] == ["release", "suspend"]
    assert (await spoke.job())["spec"]["suspend"]
