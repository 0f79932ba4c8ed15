"""A Workload that outlives its job: its user keeps it, and no admission stays on record in it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import Setup

FRIEND = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}
NEXT = {"apiVersion": "batch/v1", "kind": "Job", "name": "next", "uid": "n", "controller": True}
KEPT: dict[str, dict[str, Any]] = {
    "by a finalizer": {"finalizers": [RESOURCE_IN_USE, "example.com/keep"]},
    "by a finalizer, without ours": {"finalizers": ["example.com/keep"]},
    "by an owner that is no controller": {"ownerReferences": [FRIEND]},
    "by the job that is to have it next": {"ownerReferences": [NEXT]},
    "by the next job and a finalizer": {
        "ownerReferences": [NEXT],
        "finalizers": ["example.com/keep"],
    },
}


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    await subject.start_patcher()
    await subject.flavor()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


@pytest.mark.parametrize("metadata", KEPT.values(), ids=KEPT)
async def test_kept_workload_of_a_gone_job_has_no_admission_on_record(
    setup: Setup, metadata: dict[str, Any]
) -> None:
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: released(setup))
    kept = await setup.kube.patch(kinds.WORKLOAD, "default", state.name, {"metadata": metadata})
    await setup.observe(kinds.WORKLOAD, kept)
    await setup.kube.delete(kinds.JOB, "default", "train")
    await setup.bus.publish(state.gone())

    async def finished_and_let_go() -> bool:
        workload = await setup.workload(state)
        assert workload is not None
        is_held = RESOURCE_IN_USE in workload["metadata"].get("finalizers", [])
        return (await setup.conditions(state)).get("Finished") == "True" and not is_held

    await eventually(finished_and_let_go)
    conditions = await setup.conditions(state)
    assert (conditions["QuotaReserved"], conditions["Admitted"]) == ("False", "False")
    workload = await setup.workload(state)
    assert workload is not None
    assert "admission" not in workload["status"]


async def released(setup: Setup) -> bool:
    return (await setup.job())["spec"]["suspend"] is False
