"""From a slot on a host to the key in a secret: preparation, failures, cleaning."""

import asyncio
import base64
from typing import Any

import pytest

from shared.contracts.kube.kinds import TASK_RUN
from tests.unit.provisioner.harness import (
    SSH_CONFIG,
    TWO_HOSTS,
    HostHarness,
    done,
    task_run,
    unseal,
)


def test_slot_gets_key_that_host_accepts_sealed_for_patcher() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            ready = await harness.wait_for("build", "ready")
            assert sorted(ready.secret or {}) == ["host", "user-dir"]
            private_key = unseal(ready)["id_rsa"]
            assert private_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
            [public_key] = harness.fleet.on("power-1").values()
            inner = base64.b64decode("".join(private_key.splitlines()[1:-1]))
            assert base64.b64decode(public_key.split()[1]) in inner

            await harness.finish_task_run(build)
            released = await harness.wait_for("build", "released")
            assert (released.sealed, harness.user_count()) == (None, 0)

        harness.run_with_patcher(scenario)


def test_exclusive_machine_is_prepared_and_terminated_without_cleaning() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            ready = await harness.wait_for("build", "ready")
            assert "id_rsa" in unseal(ready)
            await harness.finish_task_run(task_run("build"))
            await harness.wait_for("build", "released")
            assert harness.living_machines() == []

        harness.run_with_patcher(scenario)


def test_key_is_not_delivered_before_patcher_publishes_its_key() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build", "linux/ppc64le"))
            await asyncio.sleep(600)
            waiting = await harness.published_state("build")
            assert waiting is not None
            assert (waiting.state, waiting.message) == ("launching", "preparing host power-1")
            await harness.publish_key()
            await harness.wait_for("build", "ready")

        harness.run(scenario, config=SSH_CONFIG)


def test_refusing_host_is_replaced_by_next_one() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.refusing.add("power-1")
            await harness.observe_task_run(task_run("build", "linux/ppc64le"))
            ready = await harness.wait_for("build", "ready", seconds=5)
            assert (ready.host, ready.failed_hosts) == ("power-2", ["power-1"])

        harness.run_with_patcher(scenario, config=TWO_HOSTS)


def test_machine_that_cannot_be_prepared_is_terminated_and_fails_task_run() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            launching = await harness.wait_for("build", "launching")
            harness.fleet.silent.add(launching.host)
            failed = await harness.wait_for("build", "failed", seconds=600)
            assert failed.message == "Error allocating host: failed to provision host: no answer"
            await asyncio.sleep(60)
            assert harness.living_machines() == []

        harness.run_with_patcher(scenario)


def test_host_unreachable_for_a_minute_is_used_afterwards() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.silent.add("power-1")
            await harness.observe_task_run(task_run("build", "linux/ppc64le"))
            await asyncio.sleep(60)
            harness.fleet.silent.clear()
            await harness.wait_for("build", "ready", seconds=10)

        harness.run_with_patcher(scenario)


def test_slot_is_not_reused_while_its_user_cannot_be_removed() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            first, second = (task_run(name, "linux/ppc64le") for name in ("first", "second"))
            await harness.observe_task_run(first)
            await harness.wait_for("first", "ready")
            await harness.observe_task_run(second)
            harness.fleet.silent.add("power-1")
            await harness.finish_task_run(first)
            await asyncio.sleep(500)
            assert (await harness.wait_for("second", "waiting")).message == (
                "all hosts of linux/ppc64le are busy"
            )
            harness.fleet.silent.clear()
            await harness.wait_for("second", "ready")
            assert harness.user_count() == 1

        harness.run_with_patcher(scenario)


def test_host_removed_from_configuration_is_still_cleaned() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            await harness.wait_for("build", "ready")
            await harness.configure({"local-platforms": "local"})
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")
            assert harness.user_count() == 0

        harness.run_with_patcher(scenario)


def test_task_run_deleted_during_preparation_leaves_no_user() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.call_seconds = 5
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            await harness.wait_for("build", "launching")
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")
            assert harness.user_count() == 0

        harness.run_with_patcher(scenario)


@pytest.mark.parametrize("how", ["marked for deletion", "gone without a word"])
def test_task_run_deleted_during_cleaning_leaves_no_user(
    how: str,
) -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            await harness.wait_for("build", "ready")
            harness.fleet.silent.add("power-1")
            await harness.finish_task_run(build)
            await asyncio.sleep(60)
            if how == "marked for deletion":
                marks: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
                await harness.observe_task_run(done(task_run("build", "linux/ppc64le", **marks)))
            else:
                await harness.observe(TASK_RUN, done(build), deleted=True)
            await asyncio.sleep(10)
            ready = await harness.published_state("build")
            assert ready is not None
            assert ready.state == "ready", "it is not released before nobody is there"
            harness.fleet.silent.clear()
            await harness.wait_for("build", "released")
            assert harness.user_count() == 0

        harness.run_with_patcher(scenario)


def test_fifty_task_runs_on_one_prepared_host_are_served_by_age() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            holder = task_run("holder", "linux/ppc64le", created=59)
            await harness.observe_task_run(holder)
            await harness.wait_for("holder", "ready")
            builds = [task_run(f"b{age:02}", "linux/ppc64le", created=age) for age in range(50)]
            for build in reversed(builds):
                await harness.observe_task_run(build)
            await harness.finish_task_run(holder)
            for build in builds:
                await harness.wait_for(build["metadata"]["name"], "ready", seconds=30)
                assert harness.user_count() == 1
                await harness.finish_task_run(build)
            order = [state.name for state in await harness.history() if state.state == "ready"]
            assert order == ["holder", *(build["metadata"]["name"] for build in builds)]

        harness.run_with_patcher(scenario)


def test_macos_machine_gives_key_of_its_image() -> None:
    macs = {
        "dynamic-platforms": "macos-mac2metal/arm64",
        **{f"dynamic.macos-mac2metal-arm64.{key}": value for key, value in (
            ("type", "fake"), ("max-instances", "1"), ("check-interval", "1"), ("ssh-secret", "macs"))},
    }  # fmt: skip
    with HostHarness() as harness:

        async def scenario() -> None:
            build = task_run("build", "macos-mac2metal/arm64")
            await harness.observe_task_run(build)
            ready = await harness.wait_for("build", "ready")
            assert ready.secret == {
                "host": f"konflux-builder@{ready.address}",
                "user-dir": "/Users/konflux-builder",
            }
            assert unseal(ready)["id_rsa"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
            assert harness.user_count() == 0, "nobody was made there"
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")
            assert harness.living_machines() == []

        harness.run_with_patcher(scenario, config=macs)


def test_host_with_hanging_ssh_is_replaced_after_prepare_timeout() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.hanging.add("power-1")
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            ready = await harness.wait_for("build", "ready", seconds=900)
            assert (ready.host, ready.failed_hosts) == ("power-2", ["power-1"])
            waited = asyncio.get_running_loop().time()
            assert 180 < waited < 300, "not forever, and not at the first silence"

        harness.run_with_patcher(scenario, config=TWO_HOSTS)


def test_host_with_hanging_ssh_frees_slot_after_clean_timeout() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            build = task_run("build", "linux/ppc64le")
            await harness.observe_task_run(build)
            await harness.wait_for("build", "ready")
            harness.fleet.hanging.add("power-1")
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released", seconds=3600)
            record = await harness.platform_record("linux/ppc64le")
            assert record is not None
            assert record.seats == []

        harness.run_with_patcher(scenario)
