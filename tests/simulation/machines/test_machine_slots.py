"""Quota and machines are one: slots, admission check and refusal, with all services in one world."""

import asyncio

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import REQUESTS_PREFIX
from shared.contracts.messages.checks import CheckState
from tests.conformance.seeds.stage import Stage, pipeline_run, pool, story
from tests.simulation.machines.machine_park import SERVICES, Park, dynamic

QUEUE = "pipelines-queue"
CONFIG = {"dynamic-platforms": "linux/arm64", **dynamic("linux/arm64", 1)}


def build(name: str, platform: str = "linux/arm64", *, seconds: float = 30) -> Object:
    """A build on a machine, and tests without one after it, for as long."""
    steps = [{"name": "work", "image": "builder"}]
    tasks = [
        {"name": "build", "taskSpec": {"steps": steps}, "params": [{"name": "PLATFORM", "value": platform}]},
        {"name": "test", "taskSpec": {"steps": steps}, "runAfter": ["build"]},
    ]  # fmt: skip
    asked = {f"{REQUESTS_PREFIX}{platform.replace('/', '-')}": "1"}
    return pipeline_run(name, annotations=asked, pipelineSpec={"tasks": tasks}, seconds=seconds)


async def task_run(stage: Stage, name: str) -> Object | None:
    for one in (await stage.kube.list(kinds.TASK_RUN, namespace="team-a")).items:
        if one["metadata"]["name"] == name:
            return one
    return None


@story(services=SERVICES)
async def test_machine_slot_is_freed_while_the_rest_of_its_run_continues(
    stage: Stage,
) -> None:
    park = Park(stage.system)
    await park.open(CONFIG)
    slots = {"tekton.dev/pipelineruns": 10, "linux-arm64": 1}
    await stage.create(*pool("builds", slots, local=QUEUE))
    first = await stage.create(build("first", seconds=60))
    await stage.until_admitted(first)
    second = await stage.create(build("second"))
    await stage.until_waits(second, "linux-arm64")

    await stage.until_admitted(second)
    assert not await stage.finished(first), "its tests are still running"
    (machine, *_) = park.cloud.machines.values()
    assert machine.gone_at is not None, "the machine was gone before its slot was given on"
    await stage.until_finished(first, second)
    third = await stage.create(build("third"))
    fourth = await stage.create(build("fourth"))
    await stage.until(lambda: _one_of(stage, third, fourth))
    assert not await stage.is_admitted(third, fourth), "what came back is not given out twice"


async def _one_of(stage: Stage, *objects: Object) -> bool:
    return any([await stage.is_admitted(one) for one in objects])


@story(services=SERVICES)
async def test_with_the_check_a_run_starts_when_its_machine_is_up(stage: Stage) -> None:
    park = Park(stage.system)
    park.cloud.boot_seconds = 40
    await park.open(CONFIG)
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "machines"},
        "spec": {"controllerName": "sluicegate.dev/machines"},
    }
    slots = {"tekton.dev/pipelineruns": 10, "linux-arm64": 1}
    strategy = {"admissionChecks": [{"name": "machines"}]}
    await stage.create(check, *pool("builds", slots, local=QUEUE, admissionChecksStrategy=strategy))
    run = await stage.create(build("first", seconds=60))

    async def reserved() -> bool:
        return bool((await stage.condition(run, "QuotaReserved")).get("status") == "True")

    await stage.until(reserved)
    await stage.settle(5)
    assert not await stage.runs(run)
    (said,) = stage.system.server.streams["CHECKS"].messages.values()
    check_state = CheckState.decode(said.data)
    assert check_state.state == "Pending"
    assert "is starting" in check_state.message
    (shown,) = (await stage.workload(run))["status"]["admissionChecks"]
    assert (shown["name"], shown["state"]) == ("machines", "Pending")
    assert shown["message"] == check_state.message

    await stage.until_admitted(run)
    (shown,) = (await stage.workload(run))["status"]["admissionChecks"]
    assert shown["state"] == "Ready", "who is admitted has all its checks"
    began = stage.now()
    await stage.until(lambda: _has_host(stage, "first-build"), seconds=10)
    assert stage.now() - began < 5, "its machine was there"
    await stage.until_finished(run)
    assert len(park.cloud.machines) == 1


async def _has_host(stage: Stage, name: str) -> bool:
    found = await task_run(stage, name)
    labels = found["metadata"].get("labels") or {} if found else {}
    return "build.appstudio.redhat.com/assigned-host" in labels


@story(services=SERVICES)
async def test_run_waits_while_no_machine_has_its_platform(
    stage: Stage,
) -> None:
    park = Park(stage.system)
    await park.open(CONFIG)
    await asyncio.sleep(2)
    slots = {"tekton.dev/pipelineruns": 10, "linux-arm64": 1, "linux-riscv64": 1}
    await stage.create(*pool("builds", slots, local=QUEUE))
    run = await stage.create(build("first", "linux/riscv64"))

    text = "platform linux/riscv64 cannot be had: no hosts configured for linux/riscv64"
    await stage.until_waits(run, text)
    assert not await stage.runs(run)
    listed = {"dynamic-platforms": "linux/arm64,linux/riscv64"}
    await park.configure({**CONFIG, **listed, **dynamic("linux/riscv64", 1)})
    await stage.until_finished(run)
