"""A dynamic platform: one machine for each TaskRun, from order to termination."""

import asyncio

import pytest

from services.provisioner.naming import build_user_name
from services.provisioner.providers.port import (
    Order,
)
from shared.contracts.messages.hosts import HostState, PlatformState
from tests.unit.provisioner.harness import ProvisionerHarness, task_run


def test_dynamic_platform_orders_machine_and_terminates_it_after_task_run() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            build = task_run("build")
            await harness.observe_task_run(build)
            launching = await harness.wait_for("build", "launching")
            ready = await harness.wait_for("build", "ready")
            assert ready.host == launching.host
            user = build_user_name(uid="uid-build", host=ready.host)
            assert ready.secret == {
                "host": f"{user}@{ready.address}",
                "user-dir": f"/home/{user}",
            }
            assert harness.living_machines() == [ready.host]
            await harness.finish_task_run(build)
            released = await harness.wait_for("build", "released")
            assert released.secret is None
            assert harness.living_machines() == [], "it is said only when the machine is gone"
            assert await harness.is_record_empty("linux/arm64")

        harness.run(scenario)


def test_record_is_written_before_provider_is_called() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            seen: list[tuple[list[str], list[str]]] = []

            def look(order: Order) -> None:
                # Nothing is asserted here: what a provider raises is caught, and the order repeated.
                record = harness.server.latest("HOSTS", harness.record_subject("linux/arm64"))
                published = harness.server.latest("HOSTS", "sluice.host.hub.team-a.build")
                machines = PlatformState.decode(record.data).machines if record else []
                states: list[str] = [HostState.decode(published.data).state] if published else []
                del order
                seen.append(([machine.name for machine in machines], states))

            harness.on_launch = look
            await harness.observe_task_run(task_run("build"))
            ready = await harness.wait_for("build", "ready")
            assert seen == [([ready.host], ["launching"])]

        harness.run(scenario)


def test_machines_never_exceed_maximum_and_task_runs_are_served_by_age() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            builds = [task_run(f"b{n}", created=n) for n in range(6)]
            for build in builds:
                await harness.observe_task_run(build)
            await asyncio.sleep(1)
            waiting = await harness.published_state("b5")
            assert waiting is not None
            assert waiting.message == (
                "2 of 2 maxInstances running for prod, waiting for existing tasks to finish"
            )
            order: list[str] = []
            for build in builds:
                name = build["metadata"]["name"]
                await harness.wait_for(name, "ready")
                assert len(harness.living_machines()) <= 2
                order.append(name)
                await asyncio.sleep(3)
                await harness.finish_task_run(build)
            await harness.wait_for("b5", "released")
            assert harness.living_machines() == []

        harness.run(scenario)


def test_machine_that_vanishes_while_starting_is_replaced() -> None:
    with ProvisionerHarness() as harness:
        harness.cloud.boot_seconds = 30

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            first = await harness.wait_for("build", "launching")
            await asyncio.sleep(3)
            harness.cloud.lose(first.host)
            ready = await harness.wait_for("build", "ready")
            assert ready.host != first.host
            assert harness.living_machines() == [ready.host]

        harness.run(scenario)


def test_new_task_run_with_reused_name_gets_new_machine() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            first = await harness.wait_for("build", "ready")
            await harness.observe_task_run(task_run("build", uid="another"))
            await asyncio.sleep(5)
            second = await harness.wait_for("build", "ready")
            assert second.uid == "another"
            assert second.host != first.host
            await asyncio.sleep(5)
            assert harness.living_machines() == [second.host]

        harness.run(scenario)


@pytest.mark.parametrize("after", [0.0, 0.2, 0.6, 1.5, 4.0])
def test_crash_at_any_time_gives_one_machine_and_one_secret(after: float) -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            await asyncio.sleep(after)
            harness.world.crash("provisioner", down_seconds=5)
            ready = await harness.wait_for("build", "ready")
            assert harness.living_machines() == [ready.host]
            assert list(harness.cloud.machines) == [ready.host]
            harness.world.crash("provisioner")
            await harness.finish_task_run(task_run("build"))
            await asyncio.sleep(10)
            harness.world.restart("provisioner")
            await harness.wait_for("build", "released")
            assert harness.living_machines() == []

        harness.run(scenario)
