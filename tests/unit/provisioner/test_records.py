"""Records and leadership: deleted TaskRuns, leaks, two leaders, views."""

import asyncio

import pytest

from services.provisioner.providers.port import (
    Order,
    ProviderRefusedError,
)
from shared.bus.port import Entry, FencedError, LaterError
from shared.contracts.kube.kinds import TASK_RUN
from shared.contracts.messages.hosts import HostSlot, PlatformState
from shared.contracts.messages.observed import Synced
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.provisioner.harness import ProvisionerHarness, task_run

REFUSED = ProviderRefusedError("fake", "launch", "m", "no such image")


@pytest.mark.parametrize("state", ["waiting", "launching", "ready", "failed"])
@pytest.mark.parametrize("how", ["marked for deletion", "gone without a word"])
def test_deleted_task_run_leaves_no_machine_and_empty_record(state: str, how: str) -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            others = [task_run(f"other{n}", created=n) for n in range(2)]
            if state == "waiting":
                for other in others:
                    await harness.observe_task_run(other)
            if state == "failed":
                harness.cloud.fail_next("launch", REFUSED)
            build = task_run("build", created=9)
            await harness.observe_task_run(build)
            await harness.wait_for("build", state)
            if how == "marked for deletion":
                marked = task_run("build", created=9, deletionTimestamp="2026-01-01T00:00:00Z")
                await harness.observe_task_run(marked)
            else:
                await harness.observe(TASK_RUN, build, deleted=True)
            await harness.wait_for("build", "released")
            for other in others:
                await harness.finish_task_run(other)
            await asyncio.sleep(10)
            assert harness.living_machines() == []
            assert await harness.is_record_empty("linux/arm64")

        harness.run(scenario)


def test_sweep_terminates_machine_without_record() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for name, owner in (("lost", "hub"), ("not ours", "other")):
                harness.cloud.launch(
                    Order(
                        name=name,
                        owner=owner,
                        platform="linux/arm64",
                        tag="prod",
                        tags={},
                        parameters={},
                    )
                )
            await asyncio.sleep(65)
            assert harness.living_machines() == []
            assert [vm.name for vm in harness.cloud.alive("other")] == ["not ours"]

        harness.run(scenario)


def test_sweep_frees_slot_of_vanished_machine() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for n in range(3):
                await harness.observe_task_run(task_run(f"b{n}", created=n))
            ready = await harness.wait_for("b0", "ready")
            harness.cloud.lose(ready.host)
            await harness.wait_for("b2", "ready")
            published = await harness.published_state("b0")
            assert published == ready, "what was said to the build stays said"

        harness.run(scenario)


def test_no_decision_before_watcher_has_listed_cluster() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("build"))
            await asyncio.sleep(10)
            assert harness.provisioner is not None
            assert harness.provisioner.ready() == "the watcher has not listed cluster hub yet"
            assert await harness.published_state("build") is None
            await harness.bus.publish(
                Synced(cluster="hub", epoch="1", kinds=[], at=harness.world.now())
            )
            await harness.wait_for("build", "ready")
            assert harness.provisioner.ready() is None

        harness.run(scenario, listed=False)


def test_two_leaders_at_once_never_exceed_machine_maximum() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            for n in range(8):
                await harness.observe_task_run(task_run(f"b{n}", created=n))
                # It thinks for longer than its lease lasts, and does not know that it was replaced.
                harness.world.partition("provisioner", "bus", seconds=2)
                await asyncio.sleep(2.5)
                assert len(harness.living_machines()) <= 2
            for n in range(8):
                await harness.wait_for(f"b{n}", "ready")
                await harness.finish_task_run(task_run(f"b{n}", created=n))
                assert len(harness.living_machines()) <= 2

        harness.run(scenario, replicas=2)


@pytest.mark.parametrize("seed", range(8))
def test_of_two_concurrent_records_first_in_log_wins(seed: int) -> None:
    with ProvisionerHarness(seed=seed) as harness:

        async def scenario() -> None:
            await asyncio.sleep(1)
            builds = [task_run(f"b{n}", "linux/ppc64le", created=n) for n in range(3)]
            others = PlatformState(
                cluster="hub",
                platform="linux/ppc64le",
                seats=[
                    HostSlot(
                        uid=f"uid-b{n}",
                        namespace="team-a",
                        name=f"b{n}",
                        host="power-1",
                        address="10.0.0.1",
                    )
                    for n in (1, 2)  # Not the oldest: ours would decide otherwise.
                ],
                at=harness.world.now(),
            )
            seen = [harness.observe_task_run(build) for build in builds]
            written = harness.bus.publish(others, expect_subject=0)
            results = await asyncio.gather(*seen, written, return_exceptions=True)
            await asyncio.sleep(20)
            record = await harness.platform_record("linux/ppc64le")
            assert record is not None
            first = {"b0", "b1"} if isinstance(results[-1], FencedError) else {"b1", "b2"}
            assert {seat.name for seat in record.seats} == first
            ready = {state.name for state in await harness.history() if state.state == "ready"}
            assert ready == first, "nobody was told of a place that the log does not give"

        harness.run(scenario)


async def end_builds(harness: ProvisionerHarness, *names: str) -> None:
    """Let TaskRuns have their host, and end."""
    for name in names:
        build = task_run(name, "local")
        await harness.observe_task_run(build)
        await harness.wait_for(name, "ready")
        await harness.finish_task_run(build)
        await harness.wait_for(name, "released")


def test_released_state_of_deleted_task_run_leaves_the_view() -> None:
    with ProvisionerHarness() as harness:

        async def scenario() -> None:
            await end_builds(harness, "stays", "goes", "last")
            await harness.observe(TASK_RUN, task_run("goes", "local"), deleted=True)
            await asyncio.sleep(700)
            assert await harness.task_runs_in_view() == ["last", "stays"], (
                "its finalizer may still have to go"
            )

        harness.run(scenario)


def test_released_state_stays_in_the_view_until_the_patcher_has_passed_it() -> None:
    with ProvisionerHarness() as harness:
        away = True

        async def handle(entry: Entry) -> None:
            if away and entry.subject.endswith(".goes"):
                raise LaterError("the API server does not answer", delay_seconds=5)

        async def scenario() -> None:
            nonlocal away
            patcher = MemoryBus(harness.server, instance="patcher")
            patcher.work("HOSTS", "patcher-hub-host", handle, filters=("sluice.host.hub.>",))
            await patcher.start()
            await end_builds(harness, "goes", "last")
            await harness.observe(TASK_RUN, task_run("goes", "local"), deleted=True)
            await asyncio.sleep(800)
            assert await harness.task_runs_in_view() == ["goes", "last"]
            away = False
            await asyncio.sleep(130)
            assert await harness.task_runs_in_view() == ["last"]

        harness.run(scenario)
