"""Users of build hosts: whose they are, when they are removed, and why a host was not entered."""

import asyncio
from typing import Any

from services.provisioner.naming import build_user_name, legacy_user_name
from shared.contracts.messages import hosts
from shared.contracts.messages.hosts import HostState, PlatformState
from tests.unit.provisioner.harness import SSH_CONFIG, TWO_HOSTS, HostHarness, task_run

PLATFORM = "linux/ppc64le"
KEY_REFUSED = "its host key is not one of the accepted keys"
ACCESS = hosts.HostAccess(user="root", secret="power-ssh")
OLD_USER = legacy_user_name(namespace="team-a", name="build")


def user_of(state: HostState) -> str:
    """The user with which a TaskRun logs in to its host."""
    return (state.secret or {})["host"].partition("@")[0]


def old_slot(uid: str, state: Any) -> hosts.HostSlot:
    """A slot as a version recorded it that derived the user from the name."""
    return hosts.HostSlot(
        uid=uid, namespace="team-a", name="build", host="power-1", address="10.0.0.1",
        state=state, access=ACCESS, sealed="box" if state == "ready" else "",
    )  # fmt: skip


def test_cleaning_for_earlier_task_run_spares_user_of_later_one_of_same_name() -> None:
    config = {**TWO_HOSTS, "host.power-1.concurrency": "2"}
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.broken.add("power-1")
            first = task_run("build", PLATFORM, uid="uid-1")
            await harness.observe_task_run(first)
            assert (await harness.wait_for("build", "ready", seconds=900)).host == "power-2"
            await harness.finish_task_run(first)
            await harness.wait_for("build", "released")

            harness.fleet.broken.clear()
            await harness.observe_task_run(task_run("build", PLATFORM, uid="uid-2"))
            ready = await harness.wait_for("build", "ready")
            assert ready.host == "power-1"
            await asyncio.sleep(300)
            assert list(harness.fleet.on("power-1")) == [user_of(ready)]

        harness.run_with_patcher(scenario, config=config)


def test_records_of_earlier_version_clean_no_user_that_another_slot_has() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.on("power-1")[OLD_USER] = "key"
            build = task_run("build", PLATFORM, uid="uid-2")
            await harness.observe_task_run(build)
            seats = [old_slot("uid-1@power-1", "cleaning"), old_slot("uid-2", "ready")]
            await harness.bus.publish(
                PlatformState(cluster="hub", platform=PLATFORM, seats=seats, at=harness.world.now())
            )
            await harness.publish_key()
            await harness.publish_synced()
            ready = await harness.wait_for("build", "ready")
            await asyncio.sleep(60)
            assert (user_of(ready), list(harness.fleet.on("power-1"))) == (OLD_USER, [OLD_USER])
            record = await harness.platform_record(PLATFORM)
            assert record is not None
            assert [seat.uid for seat in record.seats] == ["uid-2"]

            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")
            assert harness.user_count() == 0

        harness.run(scenario, config=SSH_CONFIG, listed=False)


def test_user_that_earlier_term_may_have_made_is_removed_from_refusing_host() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.on("power-1")[OLD_USER] = "key"
            harness.fleet.refusing.add("power-1")
            await harness.observe_task_run(task_run("build", PLATFORM, uid="uid-1"))
            await harness.bus.publish(
                PlatformState(
                    cluster="hub", platform=PLATFORM, seats=[old_slot("uid-1", "preparing")],
                    at=harness.world.now(),
                )
            )  # fmt: skip
            await harness.publish_key()
            await harness.publish_synced()
            assert (await harness.wait_for("build", "ready")).host == "power-2"
            record = await harness.platform_record(PLATFORM)
            assert record is not None
            seats = {seat.host: seat.state for seat in record.seats}
            assert seats == {"power-1": "cleaning", "power-2": "ready"}
            harness.fleet.refusing.clear()
            await asyncio.sleep(300)
            assert harness.fleet.on("power-1") == {}

        harness.run(scenario, config=TWO_HOSTS, listed=False)


def test_host_with_a_refused_key_is_free_once_the_key_is_corrected() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.host_keys["power-1"] = "right"
            await harness.observe_task_run(task_run("build", PLATFORM))
            failed = await harness.wait_for("build", "failed")
            assert failed.message == (
                "Error allocating host: all available hosts for the platform have failed: power-1 "
                f"(power-1 failed: {KEY_REFUSED})"
            )
            assert KEY_REFUSED in (failed.secret or {})["error"]
            record = await harness.platform_record(PLATFORM)
            assert record is not None
            assert record.seats == [], "nobody entered the host, so nothing is to be cleaned"
            await harness.configure({**SSH_CONFIG, "host.power-1.host-key": "right"})
            await harness.observe_task_run(task_run("next", PLATFORM))
            await harness.wait_for("next", "ready", seconds=5)

        harness.run_with_patcher(scenario, config={**SSH_CONFIG, "host.power-1.host-key": "wrong"})


def test_host_is_cleaned_with_key_that_was_corrected_meanwhile() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            build = task_run("build", PLATFORM)
            await harness.observe_task_run(build)
            await harness.wait_for("build", "ready")
            harness.fleet.host_keys["power-1"] = "new"
            await harness.finish_task_run(build)
            await asyncio.sleep(200)
            assert harness.user_count() == 1
            await harness.configure({**SSH_CONFIG, "host.power-1.host-key": "new"})
            await harness.wait_for("build", "released", seconds=5)
            assert harness.user_count() == 0

        harness.run_with_patcher(scenario, config={**SSH_CONFIG, "host.power-1.host-key": "old"})


def test_reason_of_refused_host_reaches_task_run_that_moves_on() -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            harness.fleet.refusing.add("power-1")
            await harness.observe_task_run(task_run("build", PLATFORM))
            ready = await harness.wait_for("build", "ready")
            assert (ready.host, ready.failed_hosts) == ("power-2", ["power-1"])
            messages = [state.message for state in await harness.history()]
            expected = f"preparing host power-2, because power-1 failed: {KEY_REFUSED}"
            assert expected in messages

        harness.run_with_patcher(scenario, config=TWO_HOSTS)


def test_host_with_two_names_has_two_users_of_one_task_run() -> None:
    # It failed under one name, is cleaned under it, and is used under the other at the same time.
    assert build_user_name(uid="uid-a", host="x") != build_user_name(uid="uid-a", host="y")
