"""NATS comes back with a log from a backup, by which a job waits that was admitted since."""

from datetime import timedelta

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import WorkloadState
from shared.telemetry import probes
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.unit.patcher.stage import NOON, Setup

WAITED = NOON - timedelta(minutes=1)


async def admitted_since(setup: Setup, *, sees: str) -> WorkloadState:
    """A job that runs, and a bus by which it waits, with its objects as they were then or are now."""
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "waiting", decided_at=WAITED)
    await eventually(lambda: setup.workload(state))
    before = await setup.job(), await setup.workload(state)
    await setup.decide(state, "admitted")

    async def runs() -> bool:
        return not (await setup.job())["spec"]["suspend"]

    await eventually(runs)
    after = await setup.job(), await setup.workload(state)
    await setup.kill_patcher()
    await setup.bus.stop()
    setup.server = MemoryServer()
    setup.bus = MemoryBus(setup.server, instance="test")
    await setup.bus.start()
    job, workload = before if sees == "then" else after
    assert workload is not None
    await setup.observe(kinds.JOB, job)
    await setup.observe(kinds.WORKLOAD, workload)
    await setup.bus.publish(state)
    await setup.decide(state, "waiting", decided_at=WAITED)
    return state


@pytest.mark.parametrize("sees", ["then", "now"])
async def test_job_that_was_admitted_since_runs_on(setup: Setup, sees: str) -> None:
    state = await admitted_since(setup, sees=sees)
    fired = probes.DECISION_OUTDATED.fired
    await setup.start_patcher()
    await eventually(lambda: probes.DECISION_OUTDATED.fired > fired)
    assert not (await setup.job())["spec"]["suspend"]
    assert (await setup.conditions(state))["Admitted"] == "True"

    await setup.decide(state, "evicted", term=2)  # Quota has read what the Workload records.
    await eventually(lambda: _is_held(setup))


@pytest.mark.parametrize("sees", ["then", "now"])
async def test_job_that_was_stopped_since_waits_on(setup: Setup, sees: str) -> None:
    state = await admitted_since(setup, sees=sees)
    await setup.kube.patch(kinds.JOB, "default", "train", {"spec": {"suspend": True}})
    await setup.start_patcher()

    async def waits() -> bool:
        return (await setup.conditions(state)).get("QuotaReserved") == "False"

    await eventually(waits)


async def _is_held(setup: Setup) -> bool:
    return bool((await setup.job())["spec"]["suspend"])
