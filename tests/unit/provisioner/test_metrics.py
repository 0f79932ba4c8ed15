"""Metrics have the names of multi-platform-controller, without its counting errors."""

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from services.provisioner.metrics import IDLE_NAMESPACES_MAX, Metrics
from services.provisioner.providers.port import ProviderRefusedError
from tests.unit.provisioner.harness import TWO_HOSTS, HostHarness, ProvisionerHarness, task_run

HISTOGRAMS = ("host_allocation_time", "wait_time", "task_run_time")
COUNTERS = (
    "provisioning_failures",
    "provisioning_successes",
    "cleanup_failures",
    "host_allocation_failures",
)
GAUGES = ("platform_pool_size", "running_tasks", "waiting_tasks")


def test_metrics_have_names_of_multi_platform_controller() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.placed("linux/arm64", seconds=3, waited=1, prepared=True)
    metrics.task_run_ended("linux/arm64", seconds=30)
    metrics.set_platform("linux/arm64", hosts=2, running=["team-a"], waiting=["team-b"])
    metrics.allocation_failed("linux/arm64")
    metrics.provisioning_failed("linux/arm64")
    metrics.cleanup_failed("linux/arm64")
    lines = generate_latest(registry).decode().splitlines()
    for name in (*(f"{name}_count" for name in HISTOGRAMS), *COUNTERS):
        assert f'multi_platform_controller_{name}{{platform="linux-arm64"}} 1.0' in lines
    assert 'multi_platform_controller_platform_pool_size{platform="linux-arm64"} 2.0' in lines
    for name, running, waiting in (("running_tasks", 1, 0), ("waiting_tasks", 0, 1)):
        for namespace, value in (("team-a", running), ("team-b", waiting)):
            labels = f'platform="linux-arm64",taskrun_namespace="{namespace}"'
            assert f"multi_platform_controller_{name}{{{labels}}} {value}.0" in lines


def test_gauges_return_to_zero_after_last_task_run() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            builds = [task_run(f"b{n}", created=n) for n in range(3)]
            for build in builds:
                await harness.observe_task_run(build)
            await harness.wait_for("b1", "ready")
            of_team = {"platform": "linux-arm64", "taskrun_namespace": "team-a"}
            await asyncio.sleep(5)
            assert harness.metric("running_tasks", **of_team) == 2
            assert harness.metric("waiting_tasks", **of_team) == 1
            for build in builds:
                await harness.finish_task_run(build)
            await harness.wait_for("b2", "released")
            await asyncio.sleep(70)
            assert harness.metric("running_tasks", **of_team) == 0
            assert harness.metric("waiting_tasks", **of_team) == 0
            assert harness.metric("platform_pool_size", platform="linux-arm64") == 0
            assert harness.metric("task_run_time_count", platform="linux-arm64") == 2
            assert harness.metric("host_allocation_time_count", platform="linux-arm64") == 2
            assert harness.metric("provisioning_successes", platform="linux-arm64") == 0, (
                "nobody prepares a host that is pretended"
            )

        harness.run(scenario)


def test_allocation_time_excludes_waiting_and_run_time_includes_it() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            of = {"platform": "linux-arm64"}
            builds = [task_run(f"b{n}") for n in range(3)]
            for build in builds[:2]:
                await harness.observe_task_run(build)
                await harness.wait_for(build["metadata"]["name"], "ready")
            first_two = harness.metric("host_allocation_time_sum", **of) or 0
            await harness.observe_task_run(builds[2])
            await asyncio.sleep(100)
            await harness.finish_task_run(builds[0])
            await harness.wait_for("b2", "ready")
            took = (harness.metric("host_allocation_time_sum", **of) or 0) - first_two
            assert took < 50
            assert (harness.metric("wait_time_sum", **of) or 0) >= 100
            before = harness.metric("task_run_time_sum", **of) or 0
            await harness.finish_task_run(builds[2])
            await harness.wait_for("b2", "released")
            assert (harness.metric("task_run_time_sum", **of) or 0) - before > 100

        harness.run(scenario)


def test_each_preparation_and_cleaning_is_counted_once() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.refusing.add("power-1")
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            ready = await harness.wait_for("build", "ready")
            assert ready.host == "power-2"
            of = {"platform": "linux-ppc64le"}
            assert harness.metric("provisioning_failures", **of) == 1
            assert harness.metric("provisioning_successes", **of) == 1
            assert harness.metric("host_allocation_failures", **of) == 0
            harness.fleet.refusing.clear()
            harness.fleet.silent.add("power-2")
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released", seconds=900)
            assert harness.metric("cleanup_failures", **of) == 1
            assert harness.metric("task_run_time_count", **of) == 1

        harness.run_with_patcher(scenario, config=TWO_HOSTS)


def test_number_of_namespace_labels_is_bounded() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for number in range(1_000):
        metrics.set_platform("linux/arm64", hosts=1, running=["stays"], waiting=[f"pull-{number}"])
    text = generate_latest(registry).decode()
    for name, value in (
        ("stays", 1.0),
        ("pull-999", 0.0),
        (f"pull-{999 - IDLE_NAMESPACES_MAX}", 0.0),
    ):
        assert f'running_tasks{{platform="linux-arm64",taskrun_namespace="{name}"}} {value}' in text
    assert 'pull-1"' not in text
    assert text.count("waiting_tasks{") == IDLE_NAMESPACES_MAX + 2


def test_replica_that_lost_the_lease_exposes_no_gauges() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            await harness.wait_for("build", "ready")
            of_team = {"platform": "linux-arm64", "taskrun_namespace": "team-a"}
            assert harness.metric("running_tasks", **of_team) == 1
            lease = "provisioner-hub"
            harness.server.release(lease, harness.server._leases[lease].holder)
            assert harness.server.acquire(lease, "another", ttl_seconds=600)
            await asyncio.sleep(60)
            assert harness.metric("running_tasks", **of_team) is None
            assert harness.metric("host_allocation_time_count", platform="linux-arm64") == 1

        harness.run(scenario)


def test_failed_allocation_is_counted_once_and_is_no_success() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            refused = ProviderRefusedError("fake", "launch", "it", "no such image")
            harness.cloud.fail_next("launch", refused)
            await harness.observe_task_run(task_run("build"))
            await harness.wait_for("build", "failed")
            await asyncio.sleep(130)
            assert harness.metric("host_allocation_failures", platform="linux-arm64") == 1
            assert harness.metric("provisioning_successes", platform="linux-arm64") == 0
            assert harness.metric("host_allocation_time_count", platform="linux-arm64") is None

        harness.run(scenario)


def test_unknown_platform_is_counted_under_common_label() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for number in range(3):
                await harness.observe_task_run(task_run(f"b{number}", f"linux/mine{number}"))
                await harness.wait_for(f"b{number}", "failed")
            assert harness.metric("host_allocation_failures", platform="unknown") == 3
            assert b"mine" not in generate_latest(harness.registry)

        harness.run(scenario)


def test_swept_machines_are_counted_by_reason() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            pool = task_run("build", "linux/s390x")
            await harness.observe_task_run(pool)
            ready = await harness.wait_for("build", "ready")
            await harness.finish_task_run(pool)
            await asyncio.sleep(11 * 60)
            assert harness.metric("swept_machines", reason="old") == 1
            assert ready.host not in harness.living_machines()
            build = task_run("lost")
            await harness.observe_task_run(build)
            harness.cloud.lose((await harness.wait_for("lost", "ready")).host)
            await asyncio.sleep(65)
            assert harness.metric("swept_machines", reason="vanished") == 1

        harness.run(scenario)
