"""The hub's patcher writes clusterName and nominatedClusterNames as Kueue's webhook accepts them."""

from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from services.classifier.validation import validate
from services.patcher.cluster.pacing import WriteLoad
from services.patcher.cluster.writer import Writer
from services.patcher.multikueue.hub_status import HubStatusWriter
from services.patcher.multikueue.placement import Placement
from services.simulator.local import LocalKube
from shared.bus.port import NeverError
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.admissions import AdmissionState
from shared.contracts.messages.spokes import HubStatus
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.kube.port import Patch, RefusedError
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup


class Guarded(LocalKube):
    """A cluster whose webhook looks at each status that is written to a Workload."""

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Patch, *, subresource: str | None = None
    ) -> Object:  # fmt: skip
        if kind == kinds.WORKLOAD and subresource == "status" and isinstance(patch, list):
            old = await self.get(kind, namespace, name)
            problems = validate({**old, "status": patch[-1]["value"]}, old)
            if problems:
                raise RefusedError("; ".join(map(str, problems)), status=422)
        return await super().patch(kind, namespace, name, patch, subresource=subresource)


def home(state: WorkloadState, **more: Any) -> HubStatus:
    target = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid=state.uid)
    return HubStatus(
        cluster="hub", namespace="default", name=state.name, uid=state.uid, target=target,
        **{"nominated": [], "at": NOON, **more},
    )  # fmt: skip


async def shows(setup: Setup, state: WorkloadState, expected: Object) -> bool:
    status = (await setup.workload(state) or {}).get("status") or {}
    shown = {key: status.get(key) for key in ("clusterName", "nominatedClusterNames")}
    return bool({key: value for key, value in shown.items() if value} == expected)


WAYS: dict[str, list[tuple[dict[str, Any], Object]]] = {
    "nominated, then chosen": [
        ({"nominated": ["east", "west"]}, {"nominatedClusterNames": ["east", "west"]}),
        ({"spoke": "west"}, {"clusterName": "west"}),
    ],
    "chosen, and the nomination was never seen": [({"spoke": "west"}, {"clusterName": "west"})],
    "chosen again, elsewhere, and what was between was never seen": [
        ({"spoke": "west"}, {"clusterName": "west"}),
        ({"spoke": "east"}, {"clusterName": "east"}),
        ({"nominated": ["west"]}, {"nominatedClusterNames": ["west"]}),
        ({}, {}),
    ],
    "others nominate": [
        ({"nominated": None, "spoke": "west"}, {"clusterName": "west"}),
        ({"nominated": None}, {}),
    ],
}


@pytest.mark.parametrize("steps", WAYS.values(), ids=list(WAYS))
async def test_cluster_name_is_written_in_the_order_that_kueues_webhook_accepts(
    steps: list[tuple[dict[str, Any], Object]],
) -> None:
    setup = Setup()
    setup.patchers_kube = Guarded(setup.api)
    await setup.bus.start()
    await make_check(setup)
    await setup.start_patcher()
    try:
        state = await setup.submit()
        await setup.decide(state, "reserved", checks=["multikueue"])
        await eventually(partial(setup.workload, state))
        for said, expected in steps:
            await setup.bus.publish(home(state, **said))
            await eventually(partial(shows, setup, state, expected))
    finally:
        await setup.kill_patcher()


async def make_check(setup: Setup, controller: str = MULTIKUEUE) -> None:
    metadata = {"name": "multikueue"}
    spec = {"controllerName": controller}
    await setup.kube.create(kinds.ADMISSION_CHECK, {"metadata": metadata, "spec": spec})


DONE: Object = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}


@pytest.fixture
async def placed() -> AsyncIterator[tuple[Setup, WorkloadState]]:
    """A workload that quota admitted on the spoke `east`."""
    setup = Setup()
    await setup.bus.start()
    await make_check(setup)
    await setup.start_patcher()
    state = await setup.submit()
    await setup.decide(state, "admitted", checks=["multikueue"], spoke="east")
    await eventually(partial(is_listed, setup, state))
    yield setup, state
    await setup.kill_patcher()


async def is_listed(setup: Setup, state: WorkloadState) -> bool:
    status = (await setup.workload(state) or {}).get("status") or {}
    return bool(status.get("admissionChecks"))


async def has_ended(setup: Setup) -> bool:
    return bool((await setup.job()).get("status"))


async def test_end_on_a_spoke_whose_quota_was_taken_back_ends_the_workload_of_the_hub(
    placed: tuple[Setup, WorkloadState],
) -> None:
    setup, state = placed
    await setup.decide(state, "evicted", checks=["multikueue"], reason="Preempted")
    await setup.decide(state, "waiting", reason="Preempted")
    await eventually(partial(has_no_quota, setup, state))
    await setup.bus.publish(home(state, status=DONE))
    await eventually(partial(has_ended, setup))


async def has_no_quota(setup: Setup, state: WorkloadState) -> bool:
    return (await setup.conditions(state)).get("QuotaReserved") == "False"


async def test_status_from_another_spoke_than_quota_admitted_it_on_is_not_written(
    placed: tuple[Setup, WorkloadState],
) -> None:
    """The later message is handled after the first: they have one subject."""
    setup, state = placed
    await setup.bus.publish(home(state, spoke="west", status=DONE))
    await setup.bus.publish(home(state, spoke="east"))
    await eventually(partial(shows, setup, state, {"clusterName": "east"}))
    assert not await has_ended(setup)


LAST_DECISIONS: dict[str, tuple[AdmissionState, bool]] = {
    "it waits": ("waiting", True),
    "its quota was taken back for good": ("released", False),
}


@pytest.mark.parametrize(("last", "refused"), LAST_DECISIONS.values(), ids=list(LAST_DECISIONS))
async def test_late_status_of_a_job_that_is_gone_is_refused_unless_its_quota_is_given_back(
    last: AdmissionState, refused: bool
) -> None:
    """The last decision about what is gone names no checks, as for a job that was never placed."""
    setup = Setup()
    await setup.bus.start()
    await make_check(setup)
    patcher = await setup.start_patcher()
    try:
        state = await setup.submit()
        await setup.decide(state, "waiting", pod_sets=[])
        await eventually(partial(setup.workload, state))
        job = await setup.job()
        await setup.kube.delete(kinds.JOB, "default", "train")
        await setup.bus.publish(observed_object(kinds.JOB, job, deleted=True))
        await setup.decide(state, last, pod_sets=[])
        placement = Placement(bus=setup.bus, kube=setup.kube, cache=patcher.cache)
        writer = HubStatusWriter(
            kube=setup.kube,
            writer=Writer(kube=setup.kube, cache=patcher.cache, load=WriteLoad()),
            cache=patcher.cache,
            placement=placement,
            now=lambda: NOON,
        )
        with pytest.raises(NeverError, match="no MultiKueue check") if refused else nullcontext():
            await writer.write_workload(home(state, status=DONE))
    finally:
        await setup.kill_patcher()
