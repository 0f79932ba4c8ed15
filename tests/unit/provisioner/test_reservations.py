"""The admission check `sluicegate.dev/machines`: a run starts when its machines are there."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import pytest

from services.provisioner.providers.port import ProviderRefusedError
from shared.bus.port import CaughtUp
from shared.contracts.kube.kinds import ADMISSION_CHECK, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.effects import CheckState, PlatformOffer
from tests.unit.provisioner.stage import HOST_CONFIG, Stage, task_run

RUN: Final = workload_name(kind="PipelineRun", group="tekton.dev", name="release", uid="run-1")
ONE: Final = {
    **HOST_CONFIG,
    "dynamic.linux-arm64.max-instances": "1",
    "host.power-1.concurrency": "1",
}


class Checked(Stage):
    """A stage on which a hand plays quota."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._number = 0

    def act(
        self,
        drive: Callable[[], Coroutine[Any, Any, None]],
        *,
        config: dict[str, str] = HOST_CONFIG,
        controller: str = "sluicegate.dev/machines",
    ) -> None:
        async def checked() -> None:
            spec = {"controllerName": controller}
            metadata = {"name": "machines", "uid": "check"}
            await self.see(ADMISSION_CHECK, {"metadata": metadata, "spec": spec})
            await drive()

        self.play(checked, config=config)

    async def decide(
        self,
        state: AdmissionState,
        usage: Mapping[str, str] | None = None,
        *,
        name: str = RUN,
        uid: str = "run-1",
    ) -> Admission:
        """Quota says something about a run."""
        self._number += 1
        admission = Admission(
            cluster="hub", namespace="team-a", name=name, uid=uid, state=state, term=1,
            number=self._number, decided_at=self.world.now(), checks=["machines"],
            pod_sets=[PodSetAssignment(name="pod-set-1", count=1, flavors={}, usage=dict(usage or {}))],
        )  # fmt: skip
        await self.bus.publish(admission)
        return admission

    async def answer(self, name: str = RUN) -> CheckState | None:
        entry = self.server.latest("CHECKS", f"sluice.check.hub.team-a.{name}.machines")
        return CheckState.decode(entry.data) if entry else None

    async def answered(self, state: str, *, name: str = RUN, seconds: float = 120) -> CheckState:
        async with asyncio.timeout(seconds):
            while True:
                published = await self.answer(name)
                if published is not None and published.state == state:
                    return published
                await asyncio.sleep(0.1)

    async def seats(self, platform: str = "linux/arm64") -> list[tuple[str, str]]:
        record = await self.record(platform)
        return [(seat.name, seat.state) for seat in record.seats] if record else []


def of_run(name: str, platform: str = "linux/arm64", *, created: int = 0) -> Object:
    """A TaskRun of the run."""
    owner = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "name": "release",
        "uid": "run-1",
    }
    return task_run(name, platform, created=created, ownerReferences=[owner])


def test_a_run_is_let_start_when_its_machines_are_up_and_its_task_runs_get_them() -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {"linux-arm64": "1", "linux-ppc64le": "1", "cpu": "3"})
            pending = await stage.answered("Pending")
            assert "linux/arm64: machine prod-" in pending.message
            ready = await stage.answered("Ready")
            (machine,) = stage.alive()
            assert ready.message == (
                f"machines are ready: linux/arm64 on {machine}, linux/ppc64le on power-1"
            )
            assert await stage.seats() == [(RUN, "held")]
            await stage.decide("admitted", {"linux-arm64": "1", "linux-ppc64le": "1", "cpu": "3"})
            build = of_run("build")
            began = asyncio.get_running_loop().time()
            await stage.run_task(build)
            host = await stage.until("build", "ready")
            assert host.host == machine
            assert asyncio.get_running_loop().time() - began < 1, "it did not wait for a machine"
            assert await stage.seats() == [("build", "ready")]
            assert (host.workload, host.slots) == (RUN, {"linux-arm64": "1"})
            await stage.finish(build)
            await stage.until("build", "released")
            assert stage.alive() == []
            assert await stage.seats("linux/ppc64le") == [(RUN, "held")]
            await stage.decide("released")
            await asyncio.sleep(1)
            assert await stage.seats("linux/ppc64le") == []

        stage.act(drive)


def test_a_kept_place_is_given_to_nobody_else_though_he_came_first() -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {"linux-ppc64le": "1"})
            await stage.answered("Ready")
            await stage.decide("admitted", {"linux-ppc64le": "1"})
            await stage.run_task(task_run("older", "linux/ppc64le", created=0))
            waiting = await stage.until("older", "waiting")
            assert waiting.message == "all hosts of linux/ppc64le are busy"
            build = of_run("build", "linux/ppc64le", created=60)
            await stage.run_task(build)
            await stage.until("build", "ready")
            await stage.finish(build)
            await stage.until("older", "ready")

        stage.act(drive, config=ONE)


def test_a_run_that_waits_for_a_machine_stands_in_the_same_line_as_task_runs() -> None:
    with Checked() as stage:

        async def drive() -> None:
            first = task_run("first")
            await stage.run_task(first)
            await stage.until("first", "ready")
            await stage.decide("reserved", {"linux-arm64": "1"})
            pending = await stage.answered("Pending")
            assert pending.message == (
                "linux/arm64: 1 of 1 maxInstances running for prod, waiting for existing tasks to finish"
            )
            late = task_run("late", created=59 * 60)
            await stage.run_task(late)
            await stage.finish(first)
            await stage.answered("Ready")
            await stage.until("late", "waiting")

        stage.act(drive, config=ONE)


def test_a_run_that_starts_before_its_machine_is_up_gets_that_machine() -> None:
    with Checked() as stage:

        async def drive() -> None:
            stage.cloud.boot_seconds = 30
            await stage.decide("reserved", {"linux-arm64": "1"})
            await stage.answered("Pending")
            # Somebody took the check out of the queue.
            await stage.decide("admitted", {"linux-arm64": "1"})
            await stage.run_task(of_run("build"))
            host = await stage.until("build", "ready")
            assert list(stage.cloud.machines) == [host.host]

        stage.act(drive)


@pytest.mark.parametrize("state", ["evicted", "waiting", "released"])
def test_what_was_kept_for_a_run_goes_with_its_quota(state: AdmissionState) -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {"linux-arm64": "2"})
            await stage.answered("Ready")
            assert len(stage.alive()) == 2
            await stage.decide(state)
            await asyncio.sleep(30)
            assert stage.alive() == []
            record = await stage.record("linux/arm64")
            assert record is not None
            assert (record.seats, record.machines, record.attempts) == ([], [], {})

        stage.act(drive)


def test_a_machine_that_is_refused_gives_the_quota_back_and_is_tried_again_with_another() -> None:
    with Checked() as stage:

        async def drive() -> None:
            stage.cloud.fail_next(
                "launch", ProviderRefusedError("fake", "launch", "it", "no such image")
            )
            first = await stage.decide("reserved", {"linux-arm64": "1"})
            retry = await stage.answered("Retry")
            assert retry.message == "linux/arm64: Error allocating host: no such image"
            assert (retry.requeue_after_seconds, retry.attempt) == (60, first.number)
            await stage.decide("evicted")
            await stage.decide("waiting")
            await asyncio.sleep(60)
            second = await stage.decide("reserved", {"linux-arm64": "1"})
            ready = await stage.answered("Ready")
            assert ready.attempt == second.number

        stage.act(drive)


def test_a_run_that_asks_for_more_than_there_will_ever_be_is_rejected() -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {"linux-arm64": "3"})
            published = await stage.answered("Rejected")
            assert published.message == "linux/arm64: 3 places are asked for, and there are 2"

        stage.act(drive)


def test_a_platform_that_leaves_the_configuration_does_not_let_its_runs_start() -> None:
    with Checked() as stage:
        stage.cloud.boot_seconds = 40

        async def drive() -> None:
            await stage.decide("reserved", {"linux-arm64": "1"})
            await stage.answered("Pending")
            await stage.configure({**HOST_CONFIG, "dynamic-platforms": ""})
            published = await stage.answered("Retry")
            assert "no hosts configured for platform linux/arm64" in published.message
            await stage.decide("evicted")
            await asyncio.sleep(60)
            assert stage.alive() == []

        stage.act(drive)


@pytest.mark.parametrize(
    "usage",
    [{}, {"cpu": "4", "tekton.dev/pipelineruns": "1"}, {"linux-x86-64": "1"}],
    ids=["nothing", "what is no machine", "builds in the pod itself"],
)
def test_a_run_that_needs_no_machine_is_let_start_at_once(usage: dict[str, str]) -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", usage)
            assert (await stage.answered("Ready")).message == "no machine is asked for"

        stage.act(drive)


def test_somebody_elses_check_is_left_alone() -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {"linux-arm64": "1"})
            await asyncio.sleep(60)
            assert await stage.answer() is None
            assert stage.alive() == []

        stage.act(drive, controller="kueue.x-k8s.io/provisioning-request")


@pytest.mark.parametrize("after", [0.05, 0.5, 1, 2, 3, 5])
def test_a_crash_at_any_time_leads_to_one_machine_and_one_answer(after: float) -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {"linux-arm64": "1"})
            await asyncio.sleep(after)
            stage.world.crash("provisioner", down_seconds=5)
            await stage.answered("Ready")
            assert len(stage.cloud.machines) == 1
            await stage.decide("admitted", {"linux-arm64": "1"})
            stage.world.crash("provisioner", down_seconds=5)
            await stage.run_task(of_run("build"))
            await stage.until("build", "ready")
            assert len(stage.cloud.machines) == 1

        stage.act(drive)


def test_what_a_check_said_is_forgotten_when_its_run_is_over() -> None:
    with Checked() as stage:

        async def drive() -> None:
            await stage.decide("reserved", {})
            await stage.answered("Ready")
            await stage.decide("released")
            await asyncio.sleep(800)
            async for entry in stage.bus.watch("CHECKS"):
                assert isinstance(entry, CaughtUp), "the view is empty"
                break

        stage.act(drive)


def test_everybody_is_told_which_platforms_there_are_and_what_is_wrong() -> None:
    with Checked() as stage:

        async def offer() -> PlatformOffer | None:
            entry = stage.server.latest("HOSTS", "sluice.offer.hub._._")
            return PlatformOffer.decode(entry.data) if entry else None

        async def drive() -> None:
            await asyncio.sleep(1)
            first = await offer()
            assert first is not None
            assert first.platforms == {
                "linux/arm64": "linux-arm64", "linux/ppc64le": "linux-ppc64le",
                "linux/s390x": "linux-s390x", "linux/x86_64": "linux-x86-64",
                "local": "local", "localhost": "localhost",
            }  # fmt: skip
            await stage.configure({**HOST_CONFIG, "dynamic-platforms": "linux/arm64,linux/riscv64"})
            await asyncio.sleep(1)
            second = await offer()
            assert second is not None
            assert list(second.problems) == ["linux/riscv64"]
            assert "linux/riscv64" not in second.platforms

        stage.act(drive)
