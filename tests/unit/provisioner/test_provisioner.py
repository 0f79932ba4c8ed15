"""The whole service in virtual time: messages in, machines and messages out."""

import asyncio

import pytest

from services.provisioner.machines.controller import LAUNCH_FAILURES_MAX
from services.provisioner.providers.fake import Action
from services.provisioner.providers.port import (
    Order,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
)
from shared.bus.port import FencedError
from shared.contracts.kube.kinds import CONFIG_MAP, TASK_RUN
from shared.contracts.messages.effects import HostSlot, HostState, PlatformState
from shared.contracts.messages.observed import Synced
from tests.unit.provisioner.stage import HOST_CONFIG, NAMESPACE, Stage, task_run


def test_a_dynamic_platform_gets_a_machine_for_the_task_run_and_gives_it_back() -> None:
    with Stage() as stage:

        async def drive() -> None:
            build = task_run("build")
            await stage.run_task(build)
            launching = await stage.until("build", "launching")
            ready = await stage.until("build", "ready")
            assert ready.host == launching.host
            assert ready.secret == {
                "host": f"u-b4de4c6dcae1e1499596fd77b398@{ready.address}",
                "user-dir": "/home/u-b4de4c6dcae1e1499596fd77b398",
            }
            assert stage.alive() == [ready.host]
            await stage.finish(build)
            released = await stage.until("build", "released")
            assert released.secret is None
            assert stage.alive() == [], "it is said only when the machine is gone"
            assert await empty(stage, "linux/arm64")

        stage.play(drive)


async def empty(stage: Stage, platform: str) -> bool:
    record = await stage.record(platform)
    assert record is not None
    return (record.seats, record.machines, record.attempts) == ([], [], {})


def test_the_intent_is_written_before_the_provider_is_called() -> None:
    with Stage() as stage:

        async def drive() -> None:
            seen: list[tuple[list[str], list[str]]] = []

            def look(order: Order) -> None:
                # Nothing is asserted here: what a provider raises is caught, and the order repeated.
                record = stage.server.latest("HOSTS", stage.record_subject("linux/arm64"))
                published = stage.server.latest("HOSTS", "sluice.host.hub.team-a.build")
                machines = PlatformState.decode(record.data).machines if record else []
                states: list[str] = [HostState.decode(published.data).state] if published else []
                del order
                seen.append(([machine.name for machine in machines], states))

            stage.on_launch = look
            await stage.run_task(task_run("build"))
            ready = await stage.until("build", "ready")
            assert seen == [([ready.host], ["launching"])]

        stage.play(drive)


def test_a_local_platform_builds_in_the_pod() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build", "linux/x86_64"))
            ready = await stage.until("build", "ready")
            assert (ready.host, ready.secret) == ("localhost", {"host": "localhost"})
            await stage.finish(task_run("build", "linux/x86_64"))
            await stage.until("build", "released")

        stage.play(drive)


ERRORS = {
    "linux/riscv64": "Error allocating host: no hosts configured for platform linux/riscv64",
    "Linux/arm64": "platform must be in format 'label/label' where each label follows Kubernetes "
    "RFC 1035 label name format",
}


@pytest.mark.parametrize(("platform", "error"), ERRORS.items())
def test_a_platform_that_there_is_not_fails_at_once_with_the_text(
    platform: str, error: str
) -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build", platform))
            failed = await stage.until("build", "failed")
            shown = platform if platform == "linux/riscv64" else "[UNKNOWN]"
            assert failed.secret == {"error": f"{error}\n\nContext info:\nPlatform: {shown}\n"}

        stage.play(drive)


def test_without_a_host_configuration_a_task_run_fails_with_its_name() -> None:
    with Stage() as stage:

        async def drive() -> None:
            metadata = {"name": "host-config", "namespace": NAMESPACE, "uid": "config"}
            await stage.see(CONFIG_MAP, {"metadata": metadata}, deleted=True)
            await asyncio.sleep(1)
            await stage.run_task(task_run("build"))
            failed = await stage.until("build", "failed")
            assert failed.message == (
                "failed to read host config: there is no ConfigMap multi-platform-controller/host-config"
            )

        stage.play(drive, config={})


def test_fifty_waiters_on_one_static_host_are_served_in_the_order_of_their_age() -> None:
    with Stage() as stage:

        async def drive() -> None:
            config = {**HOST_CONFIG, "host.power-1.concurrency": "1"}
            await stage.configure(config)
            builds = {
                f"b{n:02}": task_run(f"b{n:02}", "linux/ppc64le", created=n) for n in range(50)
            }
            await stage.run_task(builds["b00"])
            await stage.until("b00", "ready")
            for build in reversed(builds.values()):  # The youngest is seen first.
                await stage.run_task(build)
            for name, build in builds.items():
                await stage.until(name, "ready")
                await stage.finish(build)
            served = [state.name for state in await stage.history() if state.state == "ready"]
            assert served == list(builds)

        stage.play(drive)


def test_no_more_machines_than_the_maximum_ever_run_and_everybody_gets_one_in_turn() -> None:
    with Stage() as stage:

        async def drive() -> None:
            builds = [task_run(f"b{n}", created=n) for n in range(6)]
            for build in builds:
                await stage.run_task(build)
            await asyncio.sleep(1)
            waiting = await stage.host("b5")
            assert waiting is not None
            assert waiting.message == (
                "2 of 2 maxInstances running for prod, waiting for existing tasks to finish"
            )
            order: list[str] = []
            for build in builds:
                name = build["metadata"]["name"]
                await stage.until(name, "ready")
                assert len(stage.alive()) <= 2
                order.append(name)
                await asyncio.sleep(3)
                await stage.finish(build)
            await stage.until("b5", "released")
            assert stage.alive() == []

        stage.play(drive)


def test_a_pool_s_machine_is_shared_kept_while_young_and_ended_when_old() -> None:
    with Stage() as stage:

        async def drive() -> None:
            builds = [task_run(f"b{n}", "linux/s390x", created=n) for n in range(3)]
            for build in builds[:2]:
                await stage.run_task(build)
            first = await stage.until("b0", "ready")
            second = await stage.until("b1", "ready")
            assert first.host == second.host
            for build in builds[:2]:
                await stage.finish(build)
            await stage.until("b0", "released")
            assert stage.alive() == [first.host]
            await stage.run_task(builds[2])
            assert (await stage.until("b2", "ready")).host == first.host
            await asyncio.sleep(15 * 60)
            assert stage.alive() == [first.host], "it is old, but a build runs on it"
            await stage.finish(builds[2])
            await asyncio.sleep(120)
            assert stage.alive() == []

        stage.play(drive)


BUSY = ProviderBusyError("fake", "launch", "m", "throttled")
UNCLEAR = ProviderError("fake", "launch", "m", "connection reset")
REFUSED = ProviderRefusedError("fake", "launch", "m", "no such image")


def test_a_busy_provider_is_asked_again() -> None:
    with Stage() as stage:

        async def drive() -> None:
            for _ in range(LAUNCH_FAILURES_MAX + 2):
                stage.cloud.fail_next("launch", BUSY)
            await stage.run_task(task_run("build"))
            await stage.until("build", "ready")
            assert len(stage.alive()) == 1
            assert len(stage.cloud.machines) == 1, "busy is no failure: it is the same order"

        patient = {"dynamic.linux-arm64.allocation-timeout": "600"}
        stage.play(drive, config=HOST_CONFIG | patient)


def test_a_provider_that_fails_after_it_did_what_was_asked_is_not_asked_for_a_second_machine() -> (
    None
):
    with Stage() as stage:

        async def drive() -> None:
            stage.cloud.fail_next("launch", UNCLEAR, after=True)
            await stage.run_task(task_run("build"))
            ready = await stage.until("build", "ready")
            assert list(stage.cloud.machines) == [ready.host]

        stage.play(drive)


def test_three_unclear_failures_are_told() -> None:
    with Stage() as stage:

        async def drive() -> None:
            for _ in range(3):
                stage.cloud.fail_next("launch", UNCLEAR)
            await stage.run_task(task_run("build"))
            failed = await stage.until("build", "failed")
            assert failed.message == "Error allocating host: connection reset"
            assert stage.world.now().minute == 0, "not before 40 s, not after a minute"

        stage.play(drive)


def test_a_refusal_is_told_at_once_and_what_may_have_come_of_it_is_cleaned_up() -> None:
    with Stage() as stage:

        async def drive() -> None:
            stage.cloud.fail_next("launch", REFUSED, after=True)
            await stage.run_task(task_run("build"))
            failed = await stage.until("build", "failed", seconds=5)
            assert failed.message == "Error allocating host: no such image"
            await asyncio.sleep(5)
            assert stage.alive() == []
            await stage.finish(task_run("build"))
            await stage.until("build", "released")

        stage.play(drive)


def test_a_machine_that_comes_up_broken_is_replaced_and_after_three_the_task_run_is_told() -> None:
    with Stage() as stage:
        stage.cloud.broken_rate = 1.0

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            failed = await stage.until("build", "failed")
            assert "3 machines failed to start" in failed.message
            assert len(stage.cloud.machines) == 3
            await asyncio.sleep(5)
            assert stage.alive() == []

        stage.play(drive)


def test_a_machine_that_never_gets_an_address_is_given_up_after_the_time_out() -> None:
    with Stage() as stage:
        stage.cloud.boot_seconds = 10_000

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            began = stage.world.now()
            failed = await stage.until("build", "failed")
            assert failed.message == (
                "Error allocating host: timed out waiting for instance address"
            )
            assert 60 <= (stage.world.now() - began).total_seconds() < 62
            await asyncio.sleep(5)
            assert stage.alive() == []

        stage.play(drive)


def test_a_provider_that_hangs_is_a_provider_that_fails() -> None:
    with Stage() as stage:
        stage.cloud.call_seconds = 40

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            failed = await stage.until("build", "failed")
            assert "passed" in failed.message or "timed out" in failed.message
            stage.cloud.call_seconds = 0.05
            await asyncio.sleep(120)
            assert stage.alive() == []

        stage.play(drive)


@pytest.mark.parametrize("state", ["waiting", "launching", "ready", "failed"])
@pytest.mark.parametrize("how", ["marked for deletion", "gone without a word"])
def test_a_task_run_that_is_deleted_leaves_nothing_behind(state: str, how: str) -> None:
    with Stage() as stage:

        async def drive() -> None:
            others = [task_run(f"other{n}", created=n) for n in range(2)]
            if state == "waiting":
                for other in others:
                    await stage.run_task(other)
            if state == "failed":
                stage.cloud.fail_next("launch", REFUSED)
            build = task_run("build", created=9)
            await stage.run_task(build)
            await stage.until("build", state)
            if how == "marked for deletion":
                marked = task_run("build", created=9, deletionTimestamp="2026-01-01T00:00:00Z")
                await stage.run_task(marked)
            else:
                await stage.see(TASK_RUN, build, deleted=True)
            await stage.until("build", "released")
            for other in others:
                await stage.finish(other)
            await asyncio.sleep(10)
            assert stage.alive() == []
            assert await empty(stage, "linux/arm64")

        stage.play(drive)


def test_a_task_run_with_the_name_of_an_earlier_one_gets_its_own_machine() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            first = await stage.until("build", "ready")
            await stage.run_task(task_run("build", uid="another"))
            await asyncio.sleep(5)
            second = await stage.until("build", "ready")
            assert second.uid == "another"
            assert second.host != first.host
            await asyncio.sleep(5)
            assert stage.alive() == [second.host]

        stage.play(drive)


def test_a_machine_is_ended_though_its_platform_left_the_configuration() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            ready = await stage.until("build", "ready")
            await stage.configure({"local-platforms": "local"})
            await asyncio.sleep(5)
            assert stage.alive() == [ready.host]
            await stage.finish(task_run("build"))
            await stage.until("build", "released")
            assert stage.alive() == []

        stage.play(drive)


def test_a_platform_with_a_mistake_is_served_as_before_the_mistake() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await asyncio.sleep(1)
            await stage.configure(HOST_CONFIG | {"dynamic.linux-arm64.max-instances": "many"})
            await asyncio.sleep(1)
            await stage.run_task(task_run("build"))
            await stage.until("build", "ready")

        stage.play(drive)


def test_a_machine_without_a_record_is_ended_by_the_next_sweep() -> None:
    with Stage() as stage:

        async def drive() -> None:
            for name, owner in (("lost", "hub"), ("not ours", "other")):
                stage.cloud.launch(
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
            assert stage.alive() == []
            assert [vm.name for vm in stage.cloud.alive("other")] == ["not ours"]

        stage.play(drive)


def test_a_machine_that_vanishes_under_a_build_frees_its_place_at_the_next_sweep() -> None:
    with Stage() as stage:

        async def drive() -> None:
            for n in range(3):
                await stage.run_task(task_run(f"b{n}", created=n))
            ready = await stage.until("b0", "ready")
            stage.cloud.lose(ready.host)
            await stage.until("b2", "ready")
            published = await stage.host("b0")
            assert published == ready, "what was said to the build stays said"

        stage.play(drive)


@pytest.mark.parametrize("after", [0.0, 0.2, 0.6, 1.5, 4.0])
def test_a_crash_at_any_time_leads_to_one_machine_and_one_secret(after: float) -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            await asyncio.sleep(after)
            stage.world.crash("provisioner", down_seconds=5)
            ready = await stage.until("build", "ready")
            assert stage.alive() == [ready.host]
            assert list(stage.cloud.machines) == [ready.host]
            stage.world.crash("provisioner")
            await stage.finish(task_run("build"))
            await asyncio.sleep(10)
            stage.world.restart("provisioner")
            await stage.until("build", "released")
            assert stage.alive() == []

        stage.play(drive)


def test_nothing_is_decided_before_the_cluster_has_been_listed() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            await asyncio.sleep(10)
            assert stage.provisioner is not None
            assert stage.provisioner.ready() == "the watcher has not listed cluster hub yet"
            assert await stage.host("build") is None
            await stage.bus.publish(
                Synced(cluster="hub", epoch="1", kinds=[], at=stage.world.now())
            )
            await stage.until("build", "ready")
            assert stage.provisioner.ready() is None

        stage.play(drive, listed=False)


def test_a_second_provisioner_with_the_lease_of_the_first_breaks_no_limit() -> None:
    with Stage() as stage:

        async def drive() -> None:
            for n in range(8):
                await stage.run_task(task_run(f"b{n}", created=n))
                # It thinks for longer than its lease lasts, and does not know that it was replaced.
                stage.world.partition("provisioner", "bus", seconds=2)
                await asyncio.sleep(2.5)
                assert len(stage.alive()) <= 2
            for n in range(8):
                await stage.until(f"b{n}", "ready")
                await stage.finish(task_run(f"b{n}", created=n))
                assert len(stage.alive()) <= 2

        stage.play(drive, replicas=2)


@pytest.mark.parametrize("seed", range(8))
def test_of_two_who_give_places_away_at_once_the_first_in_the_log_counts(seed: int) -> None:
    with Stage(seed=seed) as stage:

        async def drive() -> None:
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
                at=stage.world.now(),
            )
            seen = [stage.run_task(build) for build in builds]
            written = stage.bus.publish(others, expect_subject=0)
            results = await asyncio.gather(*seen, written, return_exceptions=True)
            await asyncio.sleep(20)
            record = await stage.record("linux/ppc64le")
            assert record is not None
            first = {"b0", "b1"} if isinstance(results[-1], FencedError) else {"b1", "b2"}
            assert {seat.name for seat in record.seats} == first
            ready = {state.name for state in await stage.history() if state.state == "ready"}
            assert ready == first, "nobody was told of a place that the log does not give"

        stage.play(drive)


def test_the_end_of_a_task_run_leaves_the_view_when_nobody_needs_it_any_more() -> None:
    with Stage() as stage:

        async def drive() -> None:
            for name in ("stays", "goes"):
                build = task_run(name, "local")
                await stage.run_task(build)
                await stage.until(name, "ready")
                await stage.finish(build)
                await stage.until(name, "released")
            await stage.see(TASK_RUN, task_run("goes", "local"), deleted=True)
            await asyncio.sleep(700)
            assert await stage.view() == ["stays"], "its finalizer may still have to go"

        stage.play(drive)


def test_a_machine_that_vanishes_while_it_starts_is_replaced() -> None:
    with Stage() as stage:
        stage.cloud.boot_seconds = 30

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            first = await stage.until("build", "launching")
            await asyncio.sleep(3)
            stage.cloud.lose(first.host)
            ready = await stage.until("build", "ready")
            assert ready.host != first.host
            assert stage.alive() == [ready.host]

        stage.play(drive)


@pytest.mark.parametrize("action", ["launch", "find", "terminate", "list"])
def test_a_provider_that_throttles_delays_and_harms_nothing(action: Action) -> None:
    with Stage() as stage:

        async def drive() -> None:
            for _ in range(2):
                stage.cloud.fail_next(action, ProviderBusyError("fake", action, "it", "slow down"))
            build = task_run("build")
            await stage.run_task(build)
            await stage.until("build", "ready")
            assert len(stage.cloud.machines) == 1
            await asyncio.sleep(65)
            await stage.finish(build)
            await stage.until("build", "released")
            assert stage.alive() == []

        stage.play(drive)
