"""Errors of a provider: what is retried, and what fails the TaskRun."""

import asyncio

import pytest

from services.provisioner.machines.controller import LAUNCH_FAILURES_MAX
from services.provisioner.providers.fake import Action
from services.provisioner.providers.port import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
)
from tests.unit.provisioner.harness import HOST_CONFIG, ProvisionerHarness, task_run

BUSY = ProviderBusyError("fake", "launch", "m", "throttled")


UNCLEAR = ProviderError("fake", "launch", "m", "connection reset")


REFUSED = ProviderRefusedError("fake", "launch", "m", "no such image")


def test_busy_provider_is_retried_with_same_order() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for _ in range(LAUNCH_FAILURES_MAX + 2):
                harness.cloud.fail_next("launch", BUSY)
            await harness.observe_task_run(task_run("build"))
            await harness.wait_for("build", "ready")
            assert len(harness.living_machines()) == 1
            assert len(harness.cloud.machines) == 1, "busy is no failure: it is the same order"

        patient = {"dynamic.linux-arm64.allocation-timeout": "600"}
        harness.run(scenario, config=HOST_CONFIG | patient)


def test_order_that_fails_after_taking_effect_gives_one_machine() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            harness.cloud.fail_next("launch", UNCLEAR, after=True)
            await harness.observe_task_run(task_run("build"))
            ready = await harness.wait_for("build", "ready")
            assert list(harness.cloud.machines) == [ready.host]

        harness.run(scenario)


def test_three_unknown_errors_fail_task_run() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for _ in range(3):
                harness.cloud.fail_next("launch", UNCLEAR)
            await harness.observe_task_run(task_run("build"))
            failed = await harness.wait_for("build", "failed")
            assert failed.message == "Error allocating host: connection reset"
            assert harness.world.now().minute == 0, "not before 40 s, not after a minute"

        harness.run(scenario)


def test_refused_order_fails_task_run_at_once_and_terminates_machine() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            harness.cloud.fail_next("launch", REFUSED, after=True)
            await harness.observe_task_run(task_run("build"))
            failed = await harness.wait_for("build", "failed", seconds=5)
            assert failed.message == "Error allocating host: no such image"
            await asyncio.sleep(5)
            assert harness.living_machines() == []
            await harness.finish_task_run(task_run("build"))
            await harness.wait_for("build", "released")

        harness.run(scenario)


def test_broken_machine_is_replaced_and_third_one_fails_task_run() -> None:
    with ProvisionerHarness() as harness:
        harness.cloud.broken_rate = 1.0

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            failed = await harness.wait_for("build", "failed")
            assert "3 machines failed to start" in failed.message
            assert len(harness.cloud.machines) == 3
            await asyncio.sleep(5)
            assert harness.living_machines() == []

        harness.run(scenario)


def test_machine_without_address_is_given_up_at_deadline() -> None:
    with ProvisionerHarness() as harness:
        harness.cloud.boot_seconds = 10_000

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            began = harness.world.now()
            failed = await harness.wait_for("build", "failed")
            assert failed.message == (
                "Error allocating host: timed out waiting for instance address"
            )
            assert 60 <= (harness.world.now() - began).total_seconds() < 62
            await asyncio.sleep(5)
            assert harness.living_machines() == []

        harness.run(scenario)


def test_hanging_provider_call_counts_as_failed() -> None:
    with ProvisionerHarness() as harness:
        harness.cloud.call_seconds = 40

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            failed = await harness.wait_for("build", "failed")
            assert "passed" in failed.message or "timed out" in failed.message
            harness.cloud.call_seconds = 0.05
            await asyncio.sleep(120)
            assert harness.living_machines() == []

        harness.run(scenario)


@pytest.mark.parametrize("action", ["launch", "find", "terminate", "list"])
def test_throttled_call_only_delays(action: Action) -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for _ in range(2):
                harness.cloud.fail_next(
                    action, ProviderBusyError("fake", action, "it", "slow down")
                )
            build = task_run("build")
            await harness.observe_task_run(build)
            await harness.wait_for("build", "ready")
            assert len(harness.cloud.machines) == 1
            await asyncio.sleep(65)
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")
            assert harness.living_machines() == []

        harness.run(scenario)
