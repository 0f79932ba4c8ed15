"""The admission check `sluicegate.dev/machines`: a run starts when its machines are there."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import pytest

from services.provisioner.providers.port import ProviderRefusedError
from shared.contracts.kube.kinds import ADMISSION_CHECK, PIPELINE_RUN, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.hosts import PlatformOffer
from shared.testing.waiting import first_value
from tests.unit.provisioner.harness import HOST_CONFIG, ProvisionerHarness, task_run

RUN: Final = workload_name(kind="PipelineRun", group="tekton.dev", name="release", uid="run-1")
ONE: Final = {
    **HOST_CONFIG,
    "dynamic.linux-arm64.max-instances": "1",
    "host.power-1.concurrency": "1",
}


class QuotaHarness(ProvisionerHarness):
    """A harness that publishes an AdmissionCheck and the decisions of quota."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._number = 0
        self._made: list[str] = []
        """TaskRuns that the run lists."""

    def run_with_check(
        self,
        scenario: Callable[[], Coroutine[Any, Any, None]],
        *,
        config: dict[str, str] = HOST_CONFIG,
        controller: str = "sluicegate.dev/machines",
    ) -> None:
        async def checked() -> None:
            spec = {"controllerName": controller}
            metadata = {"name": "machines", "uid": "check"}
            await self.observe(ADMISSION_CHECK, {"metadata": metadata, "spec": spec})
            await scenario()

        self.run(checked, config=config)

    async def publish_admission(
        self,
        state: AdmissionState,
        usage: Mapping[str, str] | None = None,
        *,
        name: str = RUN,
        uid: str = "run-1",
        traceparent: str | None = None,
    ) -> Admission:
        """Publish a decision about a run."""
        self._number += 1
        admission = Admission(
            cluster="hub", namespace="team-a", name=name, uid=uid, state=state, term=1,
            number=self._number, decided_at=self.world.now(), checks=["machines"],
            pod_sets=[PodSetAssignment(name="pod-set-1", count=1, flavors={}, usage=dict(usage or {}))],
            traceparent=traceparent,
        )  # fmt: skip
        await self.bus.publish(admission)
        return admission

    async def observe_build(self, obj: Object) -> None:
        """Let the watcher observe a TaskRun that Tekton made for the run, and that the run lists."""
        await self.observe_task_run(obj)
        await self.list_as_made(obj["metadata"]["name"])

    async def list_as_made(self, *names: str) -> None:
        """Let the watcher observe that the run lists these TaskRuns, too, as those that it made."""
        self._made += names
        children = [
            {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": name} for name in self._made
        ]
        await self.observe(PIPELINE_RUN, pipeline_run({"childReferences": children}))

    async def check_state(self, name: str = RUN) -> CheckState | None:
        entry = self.server.latest("CHECKS", f"sluice.check.hub.team-a.{name}.machines.provisioner")
        return CheckState.decode(entry.data) if entry else None

    async def wait_for_check(
        self, state: str, *, name: str = RUN, seconds: float = 120
    ) -> CheckState:
        async def answered() -> CheckState | None:
            published = await self.check_state(name)
            return published if published is not None and published.state == state else None

        return await first_value(
            answered, f"{name} is not {state}", seconds=seconds, look_seconds=0.1
        )

    async def recorded_slots(self, platform: str = "linux/arm64") -> list[tuple[str, str]]:
        record = await self.platform_record(platform)
        return [(seat.name, seat.state) for seat in record.seats] if record else []


def pipeline_run(status: Object, *, uid: str = "run-1", name: str = "release") -> Object:
    """The run, with that status."""
    metadata = {"name": name, "namespace": "team-a", "uid": uid}
    return {"metadata": metadata, "spec": {}, "status": status}


def task_run_of_run(name: str, platform: str = "linux/arm64", *, created: int = 0) -> Object:
    """A TaskRun that names the run as its owner."""
    owner = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "name": "release",
        "uid": "run-1",
    }
    return task_run(name, platform, created=created, ownerReferences=[owner])


def test_check_is_ready_when_machines_run_and_task_runs_get_them() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission(
                "reserved", {"linux-arm64": "1", "linux-ppc64le": "1", "cpu": "3"}
            )
            pending = await harness.wait_for_check("Pending")
            assert "linux/arm64: machine prod-" in pending.message
            ready = await harness.wait_for_check("Ready")
            (machine,) = harness.living_machines()
            assert ready.message == (
                f"machines are ready: linux/arm64 on {machine}, linux/ppc64le on power-1"
            )
            assert await harness.recorded_slots() == [(RUN, "held")]
            await harness.publish_admission(
                "admitted", {"linux-arm64": "1", "linux-ppc64le": "1", "cpu": "3"}
            )
            build = task_run_of_run("build")
            began = asyncio.get_running_loop().time()
            await harness.observe_build(build)
            host = await harness.wait_for("build", "ready")
            assert host.host == machine
            assert asyncio.get_running_loop().time() - began < 1, "it did not wait for a machine"
            assert await harness.recorded_slots() == [("build", "ready")]
            assert (host.workload, host.slots) == (RUN, {"linux-arm64": "1"})
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")
            assert harness.living_machines() == []
            assert await harness.recorded_slots("linux/ppc64le") == [(RUN, "held")]
            await harness.publish_admission("released")
            await asyncio.sleep(1)
            assert await harness.recorded_slots("linux/ppc64le") == []

        harness.run_with_check(scenario)


def test_reserved_slot_is_not_given_to_older_task_run() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {"linux-ppc64le": "1"})
            await harness.wait_for_check("Ready")
            await harness.publish_admission("admitted", {"linux-ppc64le": "1"})
            await harness.observe_task_run(task_run("older", "linux/ppc64le", created=0))
            waiting = await harness.wait_for("older", "waiting")
            assert waiting.message == "all hosts of linux/ppc64le are busy"
            build = task_run_of_run("build", "linux/ppc64le", created=60)
            await harness.observe_build(build)
            await harness.wait_for("build", "ready")
            await harness.finish_task_run(build)
            await harness.wait_for("older", "ready")

        harness.run_with_check(scenario, config=ONE)


def test_reservation_and_task_runs_share_one_queue() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            first = task_run("first")
            await harness.observe_task_run(first)
            await harness.wait_for("first", "ready")
            await harness.publish_admission("reserved", {"linux-arm64": "1"})
            pending = await harness.wait_for_check("Pending")
            assert pending.message == (
                "linux/arm64: 1 of 1 maxInstances running for prod, waiting for existing tasks to finish"
            )
            late = task_run("late", created=59 * 60)
            await harness.observe_task_run(late)
            await harness.finish_task_run(first)
            await harness.wait_for_check("Ready")
            await harness.wait_for("late", "waiting")

        harness.run_with_check(scenario, config=ONE)


def test_run_admitted_before_machine_is_up_gets_that_machine() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            harness.cloud.boot_seconds = 30
            await harness.publish_admission("reserved", {"linux-arm64": "1"})
            await harness.wait_for_check("Pending")
            # Somebody took the check out of the queue.
            await harness.publish_admission("admitted", {"linux-arm64": "1"})
            await harness.observe_build(task_run_of_run("build"))
            host = await harness.wait_for("build", "ready")
            assert list(harness.cloud.machines) == [host.host]

        harness.run_with_check(scenario)


@pytest.mark.parametrize("state", ["evicted", "waiting", "released"])
def test_reserved_slots_end_with_quota(state: AdmissionState) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {"linux-arm64": "2"})
            await harness.wait_for_check("Ready")
            assert len(harness.living_machines()) == 2
            await harness.publish_admission(state)
            await asyncio.sleep(30)
            assert harness.living_machines() == []
            record = await harness.platform_record("linux/arm64")
            assert record is not None
            assert (record.seats, record.machines, record.attempts) == ([], [], {})

        harness.run_with_check(scenario)


def test_refused_machine_answers_retry_and_next_reservation_orders_another() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            harness.cloud.fail_next(
                "launch", ProviderRefusedError("fake", "launch", "it", "no such image")
            )
            first = await harness.publish_admission("reserved", {"linux-arm64": "1"})
            retry = await harness.wait_for_check("Retry")
            assert retry.message == "linux/arm64: Error allocating host: no such image"
            assert (retry.requeue_after_seconds, retry.attempt) == (60, first.number)
            await harness.publish_admission("evicted")
            await harness.publish_admission("waiting")
            await asyncio.sleep(60)
            second = await harness.publish_admission("reserved", {"linux-arm64": "1"})
            ready = await harness.wait_for_check("Ready")
            assert ready.attempt == second.number

        harness.run_with_check(scenario)


def test_reservation_beyond_capacity_is_rejected() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {"linux-arm64": "3"})
            published = await harness.wait_for_check("Rejected")
            assert published.message == "linux/arm64: 3 places are asked for, and there are 2"

        harness.run_with_check(scenario)


def test_reservation_of_removed_platform_answers_retry() -> None:
    with QuotaHarness() as harness:
        harness.cloud.boot_seconds = 40

        async def scenario() -> None:
            await harness.publish_admission("reserved", {"linux-arm64": "1"})
            await harness.wait_for_check("Pending")
            await harness.configure({**HOST_CONFIG, "dynamic-platforms": ""})
            published = await harness.wait_for_check("Retry")
            assert "no hosts configured for platform linux/arm64" in published.message
            await harness.publish_admission("evicted")
            await asyncio.sleep(60)
            assert harness.living_machines() == []

        harness.run_with_check(scenario)


@pytest.mark.parametrize(
    "usage",
    [{}, {"cpu": "4", "tekton.dev/pipelineruns": "1"}, {"linux-x86-64": "1"}],
    ids=["nothing", "what is no machine", "builds in the pod itself"],
)
def test_reservation_without_machines_is_ready_at_once(usage: dict[str, str]) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", usage)
            assert (await harness.wait_for_check("Ready")).message == "no machine is asked for"

        harness.run_with_check(scenario)


def test_check_of_another_controller_is_not_answered() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {"linux-arm64": "1"})
            await asyncio.sleep(60)
            assert await harness.check_state() is None
            assert harness.living_machines() == []

        harness.run_with_check(scenario, controller="kueue.x-k8s.io/provisioning-request")


@pytest.mark.parametrize("after", [0.05, 0.5, 1, 2, 3, 5])
def test_crash_at_any_time_gives_one_machine_and_one_answer(after: float) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {"linux-arm64": "1"})
            await asyncio.sleep(after)
            harness.world.crash("provisioner", down_seconds=5)
            await harness.wait_for_check("Ready")
            assert len(harness.cloud.machines) == 1
            await harness.publish_admission("admitted", {"linux-arm64": "1"})
            harness.world.crash("provisioner", down_seconds=5)
            await harness.observe_build(task_run_of_run("build"))
            await harness.wait_for("build", "ready")
            assert len(harness.cloud.machines) == 1

        harness.run_with_check(scenario)


def test_offer_lists_platforms_and_configuration_errors() -> None:
    with QuotaHarness() as harness:

        async def offer() -> PlatformOffer | None:
            entry = harness.server.latest("HOSTS", "sluice.offer.hub._._")
            return PlatformOffer.decode(entry.data) if entry else None

        async def scenario() -> None:
            await asyncio.sleep(1)
            first = await offer()
            assert first is not None
            assert first.platforms == {
                "linux/arm64": "linux-arm64", "linux/ppc64le": "linux-ppc64le",
                "linux/s390x": "linux-s390x", "linux/x86_64": "linux-x86-64",
                "local": "local", "localhost": "localhost",
            }  # fmt: skip
            await harness.configure(
                {**HOST_CONFIG, "dynamic-platforms": "linux/arm64,linux/riscv64"}
            )
            await asyncio.sleep(1)
            second = await offer()
            assert second is not None
            assert list(second.problems) == ["linux/riscv64"]
            assert "linux/riscv64" not in second.platforms

        harness.run_with_check(scenario)
