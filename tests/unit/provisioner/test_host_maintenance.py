"""Static hosts are visited daily: updates, and removal of unknown users."""

import asyncio

from tests.unit.provisioner.harness import (
    TWO_HOSTS,
    HostHarness,
    task_run,
)


def test_static_hosts_are_maintained_daily_one_after_another() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            await asyncio.sleep(59)
            assert harness.fleet.visits == []
            await asyncio.sleep(5)
            assert harness.fleet.visits == ["power-1"]
            await asyncio.sleep(600)
            assert harness.fleet.visits == ["power-1", "power-2"]
            await asyncio.sleep(86_400 - 600)
            assert harness.fleet.visits == ["power-1", "power-2", "power-1"]

        harness.run_with_patcher(scenario, config=TWO_HOSTS)


def test_maintenance_removes_unknown_user_and_keeps_user_with_slot() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.on("power-1")["u-lost"] = "key"
            harness.fleet.touched["power-1", "u-lost"] = 0.0
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            await harness.wait_for("build", "ready")
            await asyncio.sleep(86_400 + 120)
            assert [user[:2] for user in harness.fleet.on("power-1")] == ["u-"]
            assert "u-lost" not in harness.fleet.on("power-1")

        harness.run_with_patcher(scenario)


def test_unreachable_host_is_maintained_next_day_and_does_not_block_others() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.silent.add("power-1")
            await asyncio.sleep(700)
            assert harness.fleet.visits == ["power-2"]
            harness.fleet.silent.clear()
            await asyncio.sleep(86_400)
            assert harness.fleet.visits == ["power-2", "power-1", "power-2"]

        harness.run_with_patcher(scenario, config=TWO_HOSTS)
