"""Only TaskRuns that their run lists are the run's, and they have no more hosts than it has quota for."""

import asyncio
from typing import Any

import pytest

from services.provisioner.task_runs.listed import ListedTaskRuns
from shared.contracts.kube.kinds import PIPELINE_RUN, TASK_RUN, Object
from shared.contracts.kube.names import TRUNCATED
from shared.testing.builders import observed_object
from tests.unit.provisioner.harness import HOST_CONFIG, task_run
from tests.unit.provisioner.test_reservations import (
    ONE,
    RUN,
    QuotaHarness,
    pipeline_run,
    task_run_of_run,
)

PPC = "linux/ppc64le"
USAGE = {"linux-ppc64le": "1"}
MANY = {**HOST_CONFIG, "host.power-1.concurrency": "8"}
CHILD = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "build"}


@pytest.mark.parametrize(
    ("status", "listed"),
    [
        pytest.param({"childReferences": [CHILD]}, True, id="as Tekton lists it"),
        pytest.param(
            {"childReferences": [{**CHILD, "pipelineTaskName": "m"}, {**CHILD, "name": "m-1"}]},
            True,
            id="one of a matrix",
        ),
        pytest.param(
            {"childReferences": [{"kind": "TaskRun", "name": "build"}]}, True, id="without group"
        ),
        pytest.param(
            {"taskRuns": {"build": {"pipelineTaskName": "b"}}}, True, id="as Tekton 0.44 lists it"
        ),
        pytest.param(
            {"childReferences": [{**CHILD, "kind": "PipelineRun"}]}, False, id="a run of that name"
        ),
        pytest.param(
            {"childReferences": [{**CHILD, "kind": "CustomRun"}]}, False, id="a custom run"
        ),
        pytest.param(
            {"childReferences": [{**CHILD, "apiVersion": "example.com/v1"}]},
            False,
            id="of another group",
        ),
        pytest.param({"childReferences": [{**CHILD, "name": "other"}]}, False, id="another name"),
        pytest.param({"childReferences": "build"}, False, id="no list"),
        pytest.param(
            {"childReferences": ["build", {"kind": "TaskRun", "name": ["build"]}]},
            False,
            id="no names",
        ),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_run_lists_the_task_runs_in_its_status(status: Object, listed: bool) -> None:
    runs = ListedTaskRuns()
    runs.observe(observed_object(PIPELINE_RUN, pipeline_run(status)))
    assert runs.lists("team-a", "run-1", "build") is listed
    assert not runs.lists("team-b", "run-1", "build")
    assert not runs.lists("team-a", "run-2", "build")


def _observed(status: Object, **more: Any) -> Any:
    return observed_object(PIPELINE_RUN, pipeline_run(status), **more)


@pytest.mark.parametrize("end", ["is deleted", "has ended", "is made anew"])
def test_names_of_a_run_are_forgotten_with_it(end: str) -> None:
    runs = ListedTaskRuns()
    assert runs.observe(_observed({"childReferences": [CHILD]})) == "run-1"
    assert runs.observe(_observed({"childReferences": [CHILD]})) is None, "nothing new"
    done = {
        "childReferences": [CHILD],
        "conditions": [{"type": "Succeeded", "status": "True"}],
    }
    again = pipeline_run({}, uid="run-2")
    runs.observe(
        {
            "is deleted": _observed({"childReferences": [CHILD]}, deleted=True),
            "has ended": _observed(done),
            "is made anew": observed_object(PIPELINE_RUN, again),
        }[end]
    )
    assert not runs.lists("team-a", "run-1", "build")


def test_run_of_which_a_part_is_left_lists_what_it_did() -> None:
    runs = ListedTaskRuns()
    runs.observe(_observed({"childReferences": [CHILD]}))
    cut = pipeline_run({})
    cut["metadata"]["annotations"] = {TRUNCATED: "left out spec and status"}
    assert runs.observe(observed_object(PIPELINE_RUN, cut)) is None
    assert runs.lists("team-a", "run-1", "build")


async def _hosts(harness: QuotaHarness) -> set[str]:
    """TaskRuns that had a host at any time."""
    return {state.name for state in await harness.history() if state.state == "ready"}


def test_task_runs_made_by_hand_are_direct_whatever_run_they_name() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 2}

        async def scenario() -> None:
            await harness.publish_admission("admitted", USAGE)
            await harness.list_as_made("build")
            for number in range(6):
                await harness.observe_task_run(task_run_of_run(f"forged-{number}", PPC))
            waiting = await harness.wait_for("forged-0", "waiting")
            assert waiting.message == "the PipelineRun does not list the TaskRun yet"
            await asyncio.sleep(300)
            assert len(await _hosts(harness)) == 2
            assert {state.workload for state in await harness.history()} == {""}
            build = task_run_of_run("build", PPC, created=60)
            await harness.observe_task_run(build)
            assert (await harness.wait_for("build", "ready", seconds=1)).workload == RUN
            await harness.finish_task_run(task_run_of_run("forged-0", PPC))
            await asyncio.sleep(60)
            assert not any(one.slots for one in await harness.history() if one.name != "build")

        harness.run_with_check(scenario, config=MANY)


def test_task_runs_made_by_hand_wait_where_only_runs_get_hosts() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"task_runs_need_admitted_run": True}

        async def scenario() -> None:
            await harness.publish_admission("admitted", USAGE)
            await harness.observe_task_run(task_run_of_run("forged", PPC))
            await asyncio.sleep(300)
            waiting = await harness.wait_for("forged", "waiting")
            assert "does not list it among those that it made" in waiting.message
            await harness.list_as_made("forged")
            await harness.wait_for("forged", "ready")

        harness.run_with_check(scenario, config=MANY)


@pytest.mark.parametrize("platform", [PPC, "linux/arm64", "linux/x86_64"])
@pytest.mark.parametrize("first", ["the TaskRun", "the list"])
def test_build_gets_its_host_as_soon_as_both_are_there(platform: str, first: str) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("admitted", {platform.replace("/", "-"): "1"})
            if first == "the list":
                await harness.list_as_made("build")
            await harness.observe_task_run(task_run_of_run("build", platform))
            if first == "the TaskRun":
                await asyncio.sleep(10)
                assert (await harness.wait_for("build", "waiting")).workload == ""
                await harness.list_as_made("build")
            assert (await harness.wait_for("build", "ready", seconds=5)).workload == RUN

        harness.run_with_check(scenario)


def test_slot_of_a_run_goes_back_when_its_own_task_run_ends() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("admitted", USAGE)
            await harness.observe_build(task_run_of_run("build", PPC))
            await harness.wait_for("build", "ready")
            forged = task_run_of_run("forged", PPC)
            await harness.observe_task_run(forged)
            await harness.wait_for("forged", "ready")
            await harness.finish_task_run(forged)
            assert (await harness.wait_for("forged", "released")).slots == {}
            await harness.finish_task_run(task_run_of_run("build", PPC))
            assert (await harness.wait_for("build", "released")).slots == {"linux-ppc64le": "1"}

        harness.run_with_check(scenario, config=MANY)


@pytest.mark.parametrize("crash", [False, True])
def test_build_that_is_made_again_has_a_host_without_quota(crash: bool) -> None:
    """Tekton makes a TaskRun again that its user deleted, under the same name."""
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 1}

        async def scenario() -> None:
            await harness.publish_admission("admitted", USAGE)
            build = task_run_of_run("build", PPC)
            await harness.observe_build(build)
            await harness.wait_for("build", "ready")
            await harness.observe(TASK_RUN, build, deleted=True)
            assert (await harness.wait_for("build", "released")).slots == {"linux-ppc64le": "1"}
            await harness.observe_task_run(task_run("direct", PPC))
            await harness.wait_for("direct", "ready")
            if crash:
                harness.world.crash("provisioner", down_seconds=5)
            again = task_run_of_run("build", PPC)
            again["metadata"]["uid"] = "uid-again"
            await harness.observe_task_run(again)
            await asyncio.sleep(30)
            waiting = await harness.wait_for("build", "waiting")
            assert (waiting.uid, waiting.workload) == ("uid-again", RUN)
            assert "the PipelineRun has no quota left for another host" in waiting.message
            await harness.finish_task_run(task_run("direct", PPC))
            await harness.wait_for("build", "ready")
            await harness.finish_task_run(again)
            assert (await harness.wait_for("build", "released")).slots == {}
            await harness.publish_admission("released")
            await asyncio.sleep(120)
            record = await harness.platform_record(PPC)
            assert record is not None
            assert record.returned == {}, "kept until the run has no quota"

        harness.run_with_check(scenario, config=MANY)


@pytest.mark.parametrize("platform", [PPC, "linux/x86_64"])
def test_run_keeps_its_slot_while_another_of_its_builds_has_it(platform: str) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            resource = platform.replace("/", "-").replace("_", "-")
            await harness.publish_admission("admitted", {resource: "1"})
            for name in ("first", "second"):
                await harness.observe_build(task_run_of_run(name, platform))
                await harness.wait_for(name, "ready")
            await harness.finish_task_run(task_run_of_run("first", platform))
            assert (await harness.wait_for("first", "released")).slots == {}
            await harness.finish_task_run(task_run_of_run("second", platform))
            assert (await harness.wait_for("second", "released")).slots == {resource: "1"}

        harness.run_with_check(scenario, config=MANY)


def test_builds_beyond_what_their_run_was_admitted_with_are_limited() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 2}

        async def scenario() -> None:
            await harness.publish_admission("admitted", {"linux-ppc64le": "2"})
            for number in range(7):
                await harness.observe_build(task_run_of_run(f"b{number}", PPC, created=number))
            await asyncio.sleep(200)
            assert await _hosts(harness) == {"b0", "b1", "b2", "b3"}
            other = task_run("direct", PPC)
            await harness.observe_task_run(other)
            await asyncio.sleep(30)
            assert (
                "SLUICE_DIRECT_TASK_RUNS_MAX"
                in (await harness.wait_for("direct", "waiting")).message
            )
            await harness.finish_task_run(task_run_of_run("b0", PPC, created=0))
            released = await harness.wait_for("b0", "released")
            assert released.slots == {}, "others of its builds have what it was admitted with"

        harness.run_with_check(scenario, config=MANY)


def test_build_whose_machine_failed_gets_the_next_one_on_the_same_quota() -> None:
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 1}

        async def scenario() -> None:
            await harness.observe_task_run(task_run("direct", PPC))
            await harness.wait_for("direct", "ready")
            await harness.publish_admission("admitted", {"linux-arm64": "1"})
            await harness.observe_build(task_run_of_run("build"))
            await harness.wait_for("build", "launching")
            harness.cloud.terminate_seconds = 100
            (name,) = harness.living_machines()
            harness.cloud.machines[name].breaks = True
            await harness.wait_for("build", "ready")

        harness.run_with_check(scenario)


def test_reserved_slot_counts_as_one_that_its_run_has() -> None:
    """A user may write into a TaskRun that a host has failed for it."""
    with QuotaHarness() as harness:
        harness.settings = {"direct_task_runs_max": 1}
        second = {k.replace("power-1", "power-2"): v for k, v in ONE.items() if "power-1" in k}

        async def scenario() -> None:
            await harness.publish_admission("reserved", USAGE)
            await harness.wait_for_check("Ready")
            await harness.publish_admission("admitted", USAGE)
            await harness.observe_task_run(task_run("direct"))
            await harness.wait_for("direct", "ready")
            build = task_run_of_run("build", PPC)
            build["metadata"]["annotations"] = {
                "build.appstudio.redhat.com/failed-hosts": "power-1"
            }
            await harness.observe_build(build)
            await asyncio.sleep(30)
            waiting = await harness.wait_for("build", "waiting")
            assert "the PipelineRun has no quota left" in waiting.message

        harness.run_with_check(scenario, config={**ONE, **second})


@pytest.mark.parametrize(
    ("end", "slots"),
    [
        pytest.param({"status": "True", "reason": "Succeeded"}, 1, id="succeeds"),
        pytest.param({"status": "False", "reason": "Failed"}, 1, id="fails"),
        pytest.param({"status": "False", "reason": "TaskRunCancelled"}, 0, id="is cancelled"),
        pytest.param({"status": "False", "reason": "TaskRunTimeout"}, 0, id="takes too long"),
        pytest.param(None, 0, id="is being deleted"),
    ],
)
def test_slot_of_a_build_in_its_own_pod_goes_back_when_the_pod_has_ended(
    end: Object | None, slots: int
) -> None:
    """The user of a pod says how long it may end; of a host, its TaskRun's end locks the user out."""
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("admitted", {"linux-x86-64": "1"})
            build = task_run_of_run("build", "linux/x86_64")
            await harness.observe_build(build)
            await harness.wait_for("build", "ready")
            if end is None:
                build["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
            else:
                build["status"]["conditions"] = [{"type": "Succeeded", **end}]
            await harness.observe_task_run(build)
            released = await harness.wait_for("build", "released")
            assert len(released.slots) == slots

        harness.run_with_check(scenario)
