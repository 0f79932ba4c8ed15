"""From a place on a host to a key in a secret, in virtual time: what goes wrong on the way, and who waits."""

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.provisioner.app import assemble
from services.provisioner.hosts.fake import FakeFleet, FakeHosts
from services.provisioner.metrics import Metrics
from services.provisioner.settings import ProvisionerSettings
from shared.contracts.kube.kinds import TASK_RUN
from shared.contracts.messages.effects import HostState, SealKey
from shared.contracts.seal import host_context, open_sealed, public_key_of
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext
from tests.unit.provisioner.stage import HOST_CONFIG, PerilousProvider, Stage, done, task_run

PATCHER_KEY = bytes(range(32))

CONFIG = {
    **HOST_CONFIG,
    "host.power-1.secret": "power-ssh",
    "host.power-1.concurrency": "1",
    "dynamic.linux-arm64.ssh-secret": "cloud-ssh",
}
TWO = {
    **CONFIG,
    **{key.replace("power-1", "power-2"): value for key, value in CONFIG.items() if "power" in key},
}


class Places(Stage):
    """A stage with hosts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fleet = FakeFleet()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.server, instance=context.instance)
        self.provisioner = assemble(
            settings=ProvisionerSettings(cluster="hub", sweep_seconds=60),
            bus=bus,
            providers={"fake": PerilousProvider(self.cloud, self)},
            hosts=FakeHosts(self.fleet),
            now=context.now,
            random=context.random,
            entropy=context.random.randbytes,
            metrics=self.metrics,
        )
        await bus.start()
        await self.provisioner.run()

    def act(
        self, drive: Callable[[], Coroutine[Any, Any, None]], *, config: dict[str, str] = CONFIG
    ) -> None:
        async def with_patcher() -> None:
            await self.publish_key()
            await drive()

        self.play(with_patcher, config=config)

    async def publish_key(self) -> None:
        key = public_key_of(PATCHER_KEY)
        await self.bus.publish(SealKey(cluster="hub", public_key=key, at=self.world.now()))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"multi_platform_controller_{name}", labels)

    def users(self) -> int:
        return sum(len(users) for users in self.fleet.users.values())


def opened(state: HostState) -> dict[str, str]:
    assert state.sealed is not None
    context = host_context(cluster="hub", namespace=state.namespace, name=state.name, uid=state.uid)
    content: dict[str, str] = json.loads(
        open_sealed(state.sealed, private_key=PATCHER_KEY, context=context)
    )
    return content


def test_who_has_a_place_gets_a_key_that_its_host_lets_in_and_only_the_patcher_reads() -> None:
    with Places() as stage:

        async def drive() -> None:
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            ready = await stage.until("build", "ready")
            assert sorted(ready.secret or {}) == ["host", "user-dir"]
            private_key = opened(ready)["id_rsa"]
            assert private_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
            [public_key] = stage.fleet.on("power-1").values()
            inner = base64.b64decode("".join(private_key.splitlines()[1:-1]))
            assert base64.b64decode(public_key.split()[1]) in inner

            await stage.finish(build)
            released = await stage.until("build", "released")
            assert (released.sealed, stage.users()) == (None, 0)

        stage.act(drive)


def test_a_machine_of_its_own_is_prepared_and_goes_with_its_user() -> None:
    with Places() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            ready = await stage.until("build", "ready")
            assert "id_rsa" in opened(ready)
            await stage.finish(task_run("build"))
            await stage.until("build", "released")
            assert stage.alive() == []

        stage.act(drive)


def test_nothing_is_handed_over_before_the_patcher_has_a_key() -> None:
    with Places() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build", "linux/ppc64le"))
            await asyncio.sleep(600)
            waiting = await stage.host("build")
            assert waiting is not None
            assert (waiting.state, waiting.message) == ("launching", "preparing host power-1")
            await stage.publish_key()
            await stage.until("build", "ready")

        stage.play(drive, config=CONFIG)


def test_a_host_that_refuses_is_left_for_the_next_one() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.refusing.add("power-1")
            await stage.run_task(task_run("build", "linux/ppc64le"))
            ready = await stage.until("build", "ready", seconds=5)
            assert (ready.host, ready.failed_hosts) == ("power-2", ["power-1"])

        stage.act(drive, config=TWO)


def test_a_user_that_was_made_before_its_host_refused_is_removed_from_there() -> None:
    with Places() as stage:

        async def drive() -> None:
            # Made by a visit of which a provisioner that died could not tell.
            stage.fleet.on("power-1")["u-b4de4c6dcae1e1499596fd77b398"] = "an earlier key"
            stage.fleet.refusing.add("power-1")
            await stage.run_task(task_run("build", "linux/ppc64le"))
            assert (await stage.until("build", "ready")).host == "power-2"
            record = await stage.record("linux/ppc64le")
            assert record is not None
            assert {seat.host: seat.state for seat in record.seats} == {
                "power-1": "cleaning",
                "power-2": "ready",
            }
            stage.fleet.refusing.clear()
            await asyncio.sleep(300)
            assert stage.fleet.on("power-1") == {}

        stage.act(drive, config=TWO)


def test_when_all_hosts_have_failed_the_task_run_is_told_which() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.refusing.update(("power-1", "power-2"))
            await stage.run_task(task_run("build", "linux/ppc64le"))
            failed = await stage.until("build", "failed")
            assert failed.message == (
                "Error allocating host: all available hosts for the platform have failed: "
                "power-1,power-2"
            )

        stage.act(drive, config=TWO)


def test_a_machine_that_cannot_be_prepared_ends_and_its_task_run_is_told() -> None:
    with Places() as stage:

        async def drive() -> None:
            await stage.run_task(task_run("build"))
            launching = await stage.until("build", "launching")
            stage.fleet.silent.add(launching.host)
            failed = await stage.until("build", "failed", seconds=600)
            assert failed.message == "Error allocating host: failed to provision host: no answer"
            await asyncio.sleep(60)
            assert stage.alive() == []

        stage.act(drive)


def test_a_host_that_is_away_for_a_minute_costs_a_minute() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.silent.add("power-1")
            await stage.run_task(task_run("build", "linux/ppc64le"))
            await asyncio.sleep(60)
            stage.fleet.silent.clear()
            await stage.until("build", "ready", seconds=10)

        stage.act(drive)


def test_the_place_of_a_user_that_cannot_be_removed_is_not_given_on_before_its_time() -> None:
    with Places() as stage:

        async def drive() -> None:
            first, second = (task_run(name, "linux/ppc64le") for name in ("first", "second"))
            await stage.run_task(first)
            await stage.until("first", "ready")
            await stage.run_task(second)
            stage.fleet.silent.add("power-1")
            await stage.finish(first)
            await asyncio.sleep(500)
            assert (await stage.until("second", "waiting")).message == (
                "all hosts of linux/ppc64le are busy"
            )
            stage.fleet.silent.clear()
            await stage.until("second", "ready")
            assert stage.users() == 1

        stage.act(drive)


def test_a_host_that_is_taken_out_of_the_configuration_is_still_cleaned() -> None:
    with Places() as stage:

        async def drive() -> None:
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            await stage.until("build", "ready")
            await stage.configure({"local-platforms": "local"})
            await stage.finish(build)
            await stage.until("build", "released")
            assert stage.users() == 0

        stage.act(drive)


def test_a_task_run_that_is_deleted_while_its_host_is_prepared_leaves_nobody_there() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.call_seconds = 5
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            await stage.until("build", "launching")
            await stage.finish(build)
            await stage.until("build", "released")
            assert stage.users() == 0

        stage.act(drive)


@pytest.mark.parametrize("how", ["marked for deletion", "gone without a word"])
def test_a_task_run_that_is_deleted_while_its_host_is_cleaned_or_fails_leaves_nobody_there(
    how: str,
) -> None:
    with Places() as stage:

        async def drive() -> None:
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            await stage.until("build", "ready")
            stage.fleet.silent.add("power-1")
            await stage.finish(build)
            await asyncio.sleep(60)
            if how == "marked for deletion":
                marks: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
                await stage.run_task(done(task_run("build", "linux/ppc64le", **marks)))
            else:
                await stage.see(TASK_RUN, done(build), deleted=True)
            await asyncio.sleep(10)
            ready = await stage.host("build")
            assert ready is not None
            assert ready.state == "ready", "it is not released before nobody is there"
            stage.fleet.silent.clear()
            await stage.until("build", "released")
            assert stage.users() == 0

        stage.act(drive)


def test_fifty_who_wait_for_one_host_are_served_in_their_order() -> None:
    with Places() as stage:

        async def drive() -> None:
            holder = task_run("holder", "linux/ppc64le", created=59)
            await stage.run_task(holder)
            await stage.until("holder", "ready")
            builds = [task_run(f"b{age:02}", "linux/ppc64le", created=age) for age in range(50)]
            for build in reversed(builds):
                await stage.run_task(build)
            await stage.finish(holder)
            for build in builds:
                await stage.until(build["metadata"]["name"], "ready", seconds=30)
                assert stage.users() == 1
                await stage.finish(build)
            order = [state.name for state in await stage.history() if state.state == "ready"]
            assert order == ["holder", *(build["metadata"]["name"] for build in builds)]

        stage.act(drive)


def test_a_mac_gives_the_key_that_its_image_made() -> None:
    macs = {
        "dynamic-platforms": "macos-mac2metal/arm64",
        **{f"dynamic.macos-mac2metal-arm64.{key}": value for key, value in (
            ("type", "fake"), ("max-instances", "1"), ("check-interval", "1"), ("ssh-secret", "macs"))},
    }  # fmt: skip
    with Places() as stage:

        async def drive() -> None:
            build = task_run("build", "macos-mac2metal/arm64")
            await stage.run_task(build)
            ready = await stage.until("build", "ready")
            assert ready.secret == {
                "host": f"konflux-builder@{ready.address}",
                "user-dir": "/Users/konflux-builder",
            }
            assert opened(ready)["id_rsa"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
            assert stage.users() == 0, "nobody was made there"
            await stage.finish(build)
            await stage.until("build", "released")
            assert stage.alive() == []

        stage.act(drive, config=macs)


def test_static_hosts_are_visited_a_minute_after_the_start_and_every_day_one_after_the_other() -> (
    None
):
    with Places() as stage:

        async def drive() -> None:
            await asyncio.sleep(59)
            assert stage.fleet.visits == []
            await asyncio.sleep(5)
            assert stage.fleet.visits == ["power-1"]
            await asyncio.sleep(600)
            assert stage.fleet.visits == ["power-1", "power-2"]
            await asyncio.sleep(86_400 - 600)
            assert stage.fleet.visits == ["power-1", "power-2", "power-1"]

        stage.act(drive, config=TWO)


def test_a_visit_removes_whom_nobody_knows_and_leaves_who_has_a_place() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.on("power-1")["u-lost"] = "key"
            stage.fleet.touched["power-1", "u-lost"] = 0.0
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            await stage.until("build", "ready")
            await asyncio.sleep(86_400 + 120)
            assert [user[:2] for user in stage.fleet.on("power-1")] == ["u-"]
            assert "u-lost" not in stage.fleet.on("power-1")

        stage.act(drive)


def test_a_host_that_cannot_be_visited_is_visited_the_next_day_and_harms_no_other() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.silent.add("power-1")
            await asyncio.sleep(700)
            assert stage.fleet.visits == ["power-2"]
            stage.fleet.silent.clear()
            await asyncio.sleep(86_400)
            assert stage.fleet.visits == ["power-2", "power-1", "power-2"]

        stage.act(drive, config=TWO)


def test_a_host_on_which_ssh_hangs_is_left_for_the_next_one() -> None:
    with Places() as stage:

        async def drive() -> None:
            stage.fleet.hanging.add("power-1")
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            ready = await stage.until("build", "ready", seconds=900)
            assert (ready.host, ready.failed_hosts) == ("power-2", ["power-1"])
            waited = asyncio.get_running_loop().time()
            assert 180 < waited < 300, "not for ever, and not at the first silence"

        stage.act(drive, config=TWO)


def test_a_host_on_which_ssh_hangs_for_ever_keeps_its_place_and_gives_it_back_after_its_time() -> (
    None
):
    with Places() as stage:

        async def drive() -> None:
            build = task_run("build", "linux/ppc64le")
            await stage.run_task(build)
            await stage.until("build", "ready")
            stage.fleet.hanging.add("power-1")
            await stage.finish(build)
            await stage.until("build", "released", seconds=3600)
            record = await stage.record("linux/ppc64le")
            assert record is not None
            assert record.seats == []

        stage.act(drive)
