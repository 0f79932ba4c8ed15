"""TaskRuns that belong to no admitted run: what they are believed, and how many hosts they get."""

import asyncio

import pytest

from tests.unit.provisioner.harness import HOST_CONFIG, task_run
from tests.unit.provisioner.test_reservations import (
    ONE,
    RUN,
    QuotaHarness,
    task_run_of_run,
)

MANY = {
    **HOST_CONFIG,
    "dynamic.linux-arm64.max-instances": "9",
    "host.power-1.concurrency": "8",
}
USAGE = {"linux-ppc64le": "1"}


def test_task_run_that_names_reserved_run_does_not_take_its_slot() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", USAGE)
            await harness.wait_for_check("Ready")
            await harness.observe_task_run(task_run_of_run("forged", "linux/ppc64le"))
            await asyncio.sleep(30)
            waiting = await harness.wait_for("forged", "waiting")
            assert waiting.message == "the PipelineRun is not admitted yet"
            assert waiting.workload == "", "quota gives nothing back for it"
            assert await harness.recorded_slots("linux/ppc64le") == [(RUN, "held")]
            await harness.publish_admission("admitted", USAGE)
            await harness.list_as_made("forged")
            assert (await harness.wait_for("forged", "ready")).workload == RUN

        harness.run_with_check(scenario, config=ONE)


@pytest.mark.parametrize("state", ["evicted", "released", "waiting"])
def test_task_run_that_names_run_without_quota_takes_no_reserved_slot(state: str) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", USAGE, uid="run-2")
            await harness.wait_for_check("Ready")
            await harness.publish_admission(state, name="other", uid="run-1")  # type: ignore[arg-type]
            await harness.observe_task_run(task_run_of_run("forged", "linux/ppc64le"))
            await asyncio.sleep(30)
            assert (await harness.wait_for("forged", "waiting")).workload == ""
            assert await harness.recorded_slots("linux/ppc64le") == [(RUN, "held")]

        harness.run_with_check(scenario, config=ONE)


def test_task_run_stays_with_its_run_after_run_lost_quota() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("admitted", USAGE)
            build = task_run_of_run("build", "linux/ppc64le")
            await harness.observe_build(build)
            assert (await harness.wait_for("build", "ready")).workload == RUN
            await harness.publish_admission("released", USAGE)
            await harness.finish_task_run(build)
            assert (await harness.wait_for("build", "released")).workload == RUN

        harness.run_with_check(scenario)


def test_direct_task_runs_of_namespace_have_limited_number_of_hosts() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 2}

        async def scenario() -> None:
            platforms = ("linux/ppc64le", "linux/arm64", "linux/ppc64le", "linux/arm64")
            builds = [task_run(f"b{n}", name, created=n) for n, name in enumerate(platforms)]
            for build in builds[:2]:
                await harness.observe_task_run(build)
                await harness.wait_for(build["metadata"]["name"], "ready")
            for build in builds[2:]:
                await harness.observe_task_run(build)
            for name in ("b2", "b3"):
                waiting = await harness.wait_for(name, "waiting")
                assert waiting.message == (
                    "namespace team-a: TaskRuns that belong to no admitted PipelineRun have as many "
                    "hosts as they may have at a time (SLUICE_DIRECT_TASK_RUNS_MAX)"
                )
            await harness.observe_task_run(task_run("other", "linux/ppc64le", namespace="team-b"))
            await harness.publish_admission("admitted", USAGE)
            await harness.observe_build(task_run_of_run("of-run", "linux/ppc64le"))
            await harness.wait_for("of-run", "ready")
            await harness.finish_task_run(builds[1])
            await asyncio.sleep(60)
            ready = {state.name for state in await harness.history() if state.state == "ready"}
            assert ready >= {"b0", "b1", "of-run", "other"}
            assert len(ready & {"b2", "b3"}) == 1
            await harness.finish_task_run(builds[0])
            await asyncio.sleep(60)
            ready = {state.name for state in await harness.history() if state.state == "ready"}
            assert ready >= {"b2", "b3"}

        harness.run_with_check(scenario, config=MANY)


def test_limit_counts_hosts_that_are_given_back_and_holds_after_restart() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 1}

        async def scenario() -> None:
            await harness.observe_task_run(task_run("first"))
            await harness.wait_for("first", "ready")
            harness.cloud.terminate_seconds = 100
            await harness.finish_task_run(task_run("first"))
            await harness.observe_task_run(task_run("second"))
            await asyncio.sleep(20)
            await harness.wait_for("second", "waiting")
            await harness.wait_for("second", "ready", seconds=200)

        harness.run_with_check(scenario, config=MANY)


def test_only_task_runs_of_admitted_runs_get_hosts_if_so_set() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"task_runs_need_admitted_run": True}

        async def scenario() -> None:
            await harness.observe_task_run(task_run("direct", "linux/ppc64le"))
            failed = await harness.wait_for("direct", "failed")
            assert "metadata.ownerReferences: the TaskRun belongs to no admitted" in failed.message
            await harness.observe_build(task_run_of_run("build", "linux/ppc64le"))
            await asyncio.sleep(30)
            waiting = await harness.wait_for("build", "waiting")
            assert waiting.message == "the PipelineRun that owns the TaskRun is not admitted"
            await harness.publish_admission("admitted", USAGE)
            await harness.wait_for("build", "ready")

        harness.run_with_check(scenario)
