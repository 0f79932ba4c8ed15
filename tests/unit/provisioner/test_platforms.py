"""Local, static and pool platforms, and platforms that cannot be served."""

import asyncio

import pytest

from shared.contracts.kube.kinds import CONFIG_MAP
from tests.unit.provisioner.harness import HOST_CONFIG, NAMESPACE, ProvisionerHarness, task_run


def test_local_platform_builds_in_own_pod() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build", "linux/x86_64"))
            ready = await harness.wait_for("build", "ready")
            assert (ready.host, ready.secret) == ("localhost", {"host": "localhost"})
            await harness.finish_task_run(task_run("build", "linux/x86_64"))
            await harness.wait_for("build", "released")

        harness.run(scenario)


ERRORS = {
    "linux/riscv64": "Error allocating host: no hosts configured for platform linux/riscv64",
    "Linux/arm64": "platform must be in format 'label/label' where each label follows Kubernetes "
    "RFC 1035 label name format",
}


@pytest.mark.parametrize(("platform", "error"), ERRORS.items())
def test_unknown_or_invalid_platform_fails_with_message(platform: str, error: str) -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build", platform))
            failed = await harness.wait_for("build", "failed")
            shown = platform if platform == "linux/riscv64" else "[UNKNOWN]"
            assert failed.secret == {"error": f"{error}\n\nContext info:\nPlatform: {shown}\n"}

        harness.run(scenario)


def test_missing_host_configuration_fails_task_run_and_names_config_map() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            metadata = {"name": "host-config", "namespace": NAMESPACE, "uid": "config"}
            await harness.observe(CONFIG_MAP, {"metadata": metadata}, deleted=True)
            await asyncio.sleep(1)
            await harness.observe_task_run(task_run("build"))
            failed = await harness.wait_for("build", "failed")
            assert failed.message == (
                "failed to read host config: there is no ConfigMap multi-platform-controller/host-config"
            )

        harness.run(scenario, config={})


def test_fifty_task_runs_on_one_static_host_are_served_by_age() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            config = {**HOST_CONFIG, "host.power-1.concurrency": "1"}
            await harness.configure(config)
            builds = {
                f"b{n:02}": task_run(f"b{n:02}", "linux/ppc64le", created=n) for n in range(50)
            }
            await harness.observe_task_run(builds["b00"])
            await harness.wait_for("b00", "ready")
            for build in reversed(builds.values()):  # The youngest is seen first.
                await harness.observe_task_run(build)
            for name, build in builds.items():
                await harness.wait_for(name, "ready")
                await harness.finish_task_run(build)
            served = [state.name for state in await harness.history() if state.state == "ready"]
            assert served == list(builds)

        harness.run(scenario)


def test_pool_machine_is_shared_and_terminated_at_maximum_age_once_idle() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            builds = [task_run(f"b{n}", "linux/s390x", created=n) for n in range(3)]
            for build in builds[:2]:
                await harness.observe_task_run(build)
            first = await harness.wait_for("b0", "ready")
            second = await harness.wait_for("b1", "ready")
            assert first.host == second.host
            for build in builds[:2]:
                await harness.finish_task_run(build)
            await harness.wait_for("b0", "released")
            assert harness.living_machines() == [first.host]
            await harness.observe_task_run(builds[2])
            assert (await harness.wait_for("b2", "ready")).host == first.host
            await asyncio.sleep(15 * 60)
            assert harness.living_machines() == [first.host], "it is old, but a build runs on it"
            await harness.finish_task_run(builds[2])
            await asyncio.sleep(120)
            assert harness.living_machines() == []

        harness.run(scenario)


def test_machine_of_removed_platform_is_terminated_after_its_task_run() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            ready = await harness.wait_for("build", "ready")
            await harness.configure({"local-platforms": "local"})
            await asyncio.sleep(5)
            assert harness.living_machines() == [ready.host]
            await harness.finish_task_run(task_run("build"))
            await harness.wait_for("build", "released")
            assert harness.living_machines() == []

        harness.run(scenario)


def test_platform_with_configuration_error_is_served_with_last_good_version() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await asyncio.sleep(1)
            await harness.configure(HOST_CONFIG | {"dynamic.linux-arm64.max-instances": "many"})
            await asyncio.sleep(1)
            await harness.observe_task_run(task_run("build"))
            await harness.wait_for("build", "ready")

        harness.run(scenario)
