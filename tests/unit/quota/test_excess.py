"""What a running job asks for beyond its admission."""

import asyncio
from typing import Any

import pytest

from services.quota.wire.outbound import eviction_cause
from shared.contracts.messages.admissions import PodSetAssignment
from shared.contracts.messages.workloads import PodSet
from shared.testing.builders import admission, workload
from tests.unit.quota.service_setup import Setup, became

GIVEN = PodSetAssignment(name="main", count=2, flavors={"cpu": "f"}, usage={"cpu": "2"})


@pytest.mark.parametrize(
    ("requests", "ignores", "says"),
    [
        ({"cpu": "1"}, False, None),
        ({"cpu": "2"}, True, "2 cpu for each of 2 pods in main, admitted 2 for all"),
        ({"cpu": "1", "memory": "1Gi"}, False, "1Gi memory for each of 2 pods in main, admitted 0"),
        ({"cpu": "1", "memory": "1Gi"}, True, None),
        ({"cpu": "1", "memory": "0"}, False, None),
    ],
    ids=["none", "more", "undeclared", "undeclared and ignored", "nothing of it"],
)
def test_larger_pods_are_stopped_for(
    requests: dict[str, str], ignores: bool, says: str | None
) -> None:
    pods = [PodSet(name="main", count=2, requests=requests)]
    state = workload("x", phase="running", held=False, enlarged=True, pod_sets=pods)
    decided = admission(state, pod_sets=[GIVEN])
    found = eviction_cause(state, decided, ignore_undeclared=ignores)
    assert (found is not None) == (says is not None)
    assert says is None or (found is not None and says in found[1])


RUNS: dict[str, Any] = {"phase": "running", "pods_active": True, "held": False}


@pytest.mark.parametrize("restarts", [False, True])
async def test_pods_beyond_the_admission_hold_quota_until_they_are_gone(
    setup: Setup, *, restarts: bool
) -> None:
    """Whether it is stopped for them or not, and under the next leader."""
    await setup.cluster(cpus=4)
    await setup.start_quota()
    await setup.workload("x", cpu="1")
    await became(setup, "x", "admitted")
    await setup.workload("x", version="5", running_pods={"main": 4}, outgrown={"main": 3}, **RUNS)
    await became(setup, "x", "evicted")
    await setup.outcome(await setup.last("x"), "suspend", "applied", version="6")
    ending = {**RUNS, "held": True, "running_pods": {"main": 3}}
    await setup.workload("x", version="6", **ending)
    if restarts:
        await setup.stop_quota()
        await setup.start_quota("b")
    await setup.workload("larger", cpu="2")
    await became(setup, "larger", "waiting")
    await setup.workload("y", cpu="1")
    await became(setup, "y", "admitted")
    await asyncio.sleep(0.1)
    assert await setup.states("larger") == ["waiting"], "three pods of x run, and y"
    await setup.workload("x", version="7", held=True)
    await became(setup, "larger", "admitted")
