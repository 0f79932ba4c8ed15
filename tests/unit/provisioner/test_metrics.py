"""Metrics with the reference's names (`research/tekton.md` 2.11), without its mistakes (2.12)."""

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from services.provisioner.app import assemble
from services.provisioner.metrics import IDLE_NAMESPACES_MAX, Metrics
from services.provisioner.providers.port import ProviderRefusedError
from services.provisioner.settings import ProvisionerSettings
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext
from tests.unit.provisioner.stage import PerilousProvider, Stage, task_run
from tests.unit.provisioner.test_places import TWO, Places

HISTOGRAMS = ("host_allocation_time", "wait_time", "task_run_time")
COUNTERS = (
    "provisioning_failures",
    "provisioning_successes",
    "cleanup_failures",
    "host_allocation_failures",
)
GAUGES = ("platform_pool_size", "running_tasks", "waiting_tasks")


class Measured(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.server, instance=context.instance)
        running = assemble(
            settings=ProvisionerSettings(cluster="hub"),
            bus=bus,
            providers={"fake": PerilousProvider(self.cloud, self)},
            now=context.now,
            random=context.random,
            metrics=self.metrics,
        )
        await bus.start()
        await running.run()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"multi_platform_controller_{name}", labels)


def test_all_of_them_are_called_as_dashboards_call_them() -> None:
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


def test_gauges_go_back_to_nothing_when_all_is_over() -> None:
    with Measured() as stage:

        async def drive() -> None:
            builds = [task_run(f"b{n}", created=n) for n in range(3)]
            for build in builds:
                await stage.run_task(build)
            await stage.until("b1", "ready")
            of_team = {"platform": "linux-arm64", "taskrun_namespace": "team-a"}
            await asyncio.sleep(5)
            assert stage.value("running_tasks", **of_team) == 2
            assert stage.value("waiting_tasks", **of_team) == 1
            for build in builds:
                await stage.finish(build)
            await stage.until("b2", "released")
            await asyncio.sleep(70)
            assert stage.value("running_tasks", **of_team) == 0
            assert stage.value("waiting_tasks", **of_team) == 0
            assert stage.value("platform_pool_size", platform="linux-arm64") == 0
            assert stage.value("task_run_time_count", platform="linux-arm64") == 2
            assert stage.value("host_allocation_time_count", platform="linux-arm64") == 2
            assert stage.value("provisioning_successes", platform="linux-arm64") == 0, (
                "nobody prepares a host that is pretended"
            )

        stage.play(drive)


def test_a_wait_is_no_part_of_an_allocation_and_a_run_is_all_from_its_beginning() -> None:
    with Measured() as stage:

        async def drive() -> None:
            of = {"platform": "linux-arm64"}
            builds = [task_run(f"b{n}") for n in range(3)]
            for build in builds[:2]:
                await stage.run_task(build)
                await stage.until(build["metadata"]["name"], "ready")
            first_two = stage.value("host_allocation_time_sum", **of) or 0
            await stage.run_task(builds[2])
            await asyncio.sleep(100)
            await stage.finish(builds[0])
            await stage.until("b2", "ready")
            took = (stage.value("host_allocation_time_sum", **of) or 0) - first_two
            assert took < 50
            assert (stage.value("wait_time_sum", **of) or 0) >= 100
            before = stage.value("task_run_time_sum", **of) or 0
            await stage.finish(builds[2])
            await stage.until("b2", "released")
            assert (stage.value("task_run_time_sum", **of) or 0) - before > 100

        stage.play(drive)


def test_each_visit_to_a_host_counts_once_as_what_it_was() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.refusing.add("power-1")
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            ready = await stage.until("build", "ready")
            assert ready.host == "power-2"
            of = {"platform": "linux-ppc64le"}
            assert stage.value("provisioning_failures", **of) == 1
            assert stage.value("provisioning_successes", **of) == 1
            assert stage.value("host_allocation_failures", **of) == 0
            stage.fleet.refusing.clear()
            stage.fleet.silent.add("power-2")
            await stage.finish(build)
            await stage.until("build", "released", seconds=900)
            assert stage.value("cleanup_failures", **of) == 1
            assert stage.value("task_run_time_count", **of) == 1

        stage.act(drive, config=TWO)


def test_namespaces_that_come_and_go_do_not_add_up() -> None:
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


def test_who_is_not_the_one_any_more_does_not_say_how_platforms_stand() -> None:
    with Measured() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            await stage.until("build", "ready")
            of_team = {"platform": "linux-arm64", "taskrun_namespace": "team-a"}
            assert stage.value("running_tasks", **of_team) == 1
            lease = "provisioner-hub"
            stage.server.release(lease, stage.server._leases[lease].holder)
            assert stage.server.acquire(lease, "another", ttl_seconds=600)
            await asyncio.sleep(60)
            assert stage.value("running_tasks", **of_team) is None
            assert stage.value("host_allocation_time_count", platform="linux-arm64") == 1

        stage.play(drive)


def test_a_failure_counts_once_and_is_no_success() -> None:
    with Measured() as stage:

        async def drive() -> None:
            refused = ProviderRefusedError("fake", "launch", "it", "no such image")
            stage.cloud.fail_next("launch", refused)
            await stage.run_task(task_run("build"))
            await stage.until("build", "failed")
            await asyncio.sleep(130)
            assert stage.value("host_allocation_failures", platform="linux-arm64") == 1
            assert stage.value("provisioning_successes", platform="linux-arm64") == 0
            assert stage.value("host_allocation_time_count", platform="linux-arm64") is None

        stage.play(drive)


def test_a_platform_that_a_user_invents_makes_no_series_of_its_own() -> None:
    with Measured() as stage:

        async def drive() -> None:
            for number in range(3):
                await stage.run_task(task_run(f"b{number}", f"linux/mine{number}"))
                await stage.until(f"b{number}", "failed")
            assert stage.value("host_allocation_failures", platform="unknown") == 3
            assert b"mine" not in generate_latest(stage.registry)

        stage.play(drive)


def test_what_a_sweep_finds_is_counted_by_its_reason() -> None:
    with Measured() as stage:

        async def drive() -> None:
            pool = task_run("build", "linux/s390x")
            await stage.run_task(pool)
            ready = await stage.until("build", "ready")
            await stage.finish(pool)
            await asyncio.sleep(11 * 60)
            assert stage.value("swept_machines", reason="old") == 1
            assert ready.host not in stage.alive()
            build = task_run("lost")
            await stage.run_task(build)
            stage.cloud.lose((await stage.until("lost", "ready")).host)
            await asyncio.sleep(65)
            assert stage.value("swept_machines", reason="vanished") == 1

        stage.play(drive)
