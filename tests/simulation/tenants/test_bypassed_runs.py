"""PipelineRuns that start without admission: a started one cannot be suspended, only ended."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE, USER_PENDING
from shared.kube.port import RefusedError
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, story
from tests.simulation.kinds.test_integrations import job_set

LET_GO: Final = {"spec": {"status": None}}
FULL: Final = {"tekton.dev/pipelineruns": 0}
LABELS: Final = ("", "never-existed", "pipelines-queue", None)


@contextmanager
def webhook_away(stage: Stage) -> Iterator[None]:
    """No webhook answers; with `failurePolicy: Ignore` every write passes."""
    plugins = stage.system.api.admission.plugins
    kept = list(plugins)
    plugins[:] = [plugin for plugin in plugins if plugin.name != "sluicegate"]
    try:
        yield
    finally:
        plugins[:] = kept


async def is_cancelled(stage: Stage, run: Object) -> bool:
    """Whether the run has ended by a cancellation."""
    conditions = (await stage.fresh(run)).get("status", {}).get("conditions", [])
    return any(c["status"] == "False" and c["reason"] == "Cancelled" for c in conditions)


async def runs_now(stage: Stage, run: Object) -> bool:
    """Whether the run has started and not ended."""
    status = (await stage.fresh(run)).get("status", {})
    return bool(status.get("startTime")) and not status.get("completionTime")


async def let_go(stage: Stage, run: Object, patch: Any = LET_GO) -> None:
    """Start a run by hand, past the webhook; it starts before anybody holds it again."""
    stage.system.world.crash("patcher-1", down_seconds=3.0)
    with webhook_away(stage):
        await stage.patch(run, patch)
    await stage.settle(2)
    assert await runs_now(stage, run)


@pytest.mark.parametrize("queue", LABELS, ids=["empty", "missing", "full", "default"])
@story()
async def test_run_that_a_hand_let_go_of_our_hold_is_cancelled(
    stage: Stage, queue: str | None
) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    labels = {} if queue is None else {QUEUE: queue}
    run = await stage.create(pipeline_run("run", labels=labels))
    await stage.settle(2)
    await let_go(stage, run)
    await stage.until(lambda: is_cancelled(stage, run), seconds=30)
    assert await stage.workload(run)


@pytest.mark.parametrize("queue", LABELS, ids=["empty", "missing", "full", "default"])
@story()
async def test_waiting_run_has_a_workload_whatever_its_label_names(
    stage: Stage, queue: str | None
) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    labels = {} if queue is None else {QUEUE: queue}
    run = await stage.create(pipeline_run("run", labels=labels))
    await stage.settle(5)
    assert await stage.workload(run)
    assert not await stage.runs(run)


@story()
async def test_run_that_loses_label_and_mark_with_its_hold_is_cancelled(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    run = await stage.create(pipeline_run("run"))
    await stage.settle(2)
    metadata = {"labels": {QUEUE: None}, "annotations": {USER_PENDING: None}}
    await let_go(stage, run, {"metadata": metadata, **LET_GO})
    await stage.until(lambda: is_cancelled(stage, run), seconds=30)


@story()
async def test_cancelled_run_does_not_run_its_finally_tasks(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    wanted = pipeline_run("run", seconds=600)
    work = {"steps": [{"name": "work", "image": "none"}]}
    wanted["spec"]["pipelineSpec"]["finally"] = [{"name": "mine", "taskSpec": work}]
    run = await stage.create(wanted)
    await stage.settle(2)
    await let_go(stage, run)
    await stage.until(lambda: is_cancelled(stage, run), seconds=30)
    assert not await runs_now(stage, run)


@story()
async def test_run_that_began_while_the_webhook_was_away_is_reported(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    stage.system.world.crash("patcher-1", down_seconds=3.0)
    with webhook_away(stage):
        run = await stage.create(pipeline_run("run", labels={QUEUE: "pipelines-queue"}))
    await stage.settle(30)
    assert await runs_now(stage, run)
    assert await stage.events(await stage.workload(run), "AdmittedUnplanned")


@story(settings={"quota": {"on_missed": "stop"}})
async def test_run_that_began_while_the_webhook_was_away_is_cancelled_if_so_set(
    stage: Stage,
) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    stage.system.world.crash("patcher-1", down_seconds=3.0)
    with webhook_away(stage):
        run = await stage.create(pipeline_run("run", labels={QUEUE: "pipelines-queue"}))
    await stage.until(lambda: is_cancelled(stage, run), seconds=30)


@story()
async def test_run_that_began_while_the_webhook_was_away_and_no_queue_can_count_is_cancelled(
    stage: Stage,
) -> None:
    stage.system.world.crash("patcher-1", down_seconds=3.0)
    with webhook_away(stage):
        run = await stage.create(pipeline_run("run", labels={QUEUE: "never-existed"}))
    await stage.until(lambda: is_cancelled(stage, run), seconds=30)


@story(settings={"quota": {"on_bypass": "report"}})
async def test_run_that_a_hand_let_go_is_only_reported_if_so_set(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    run = await stage.create(pipeline_run("run"))
    await stage.settle(2)
    await let_go(stage, run)
    await stage.settle(30)
    assert await runs_now(stage, run)


@story(settings={"quota": {"on_bypass": "hold"}})
async def test_run_that_a_hand_let_go_is_ended_and_its_copy_waits_if_so_set(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", FULL))
    run = await stage.create(pipeline_run("run"))
    await stage.settle(2)
    await let_go(stage, run)
    await stage.until(lambda: is_cancelled(stage, run), seconds=30)
    await stage.settle(5)
    runs = (await stage.kube.list(stage.kind(run), namespace="team-a")).items
    copies = [one for one in runs if one["metadata"]["name"] != "run"]
    assert [one["spec"].get("status") for one in copies] == ["PipelineRunPending"]


@story()
async def test_admitted_run_is_not_cancelled_when_services_restart(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", {"tekton.dev/pipelineruns": 1}))
    run = await stage.create(pipeline_run("run", seconds=120))
    await stage.until_admitted(run)
    for service in ("watcher", "classifier", "quota", "patcher"):
        stage.system.world.crash(f"{service}-1", down_seconds=5.0)
    await stage.until_finished(run)
    assert not await is_cancelled(stage, run)


@story()
async def test_user_who_ends_their_own_pause_asks_to_queue(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", {"tekton.dev/pipelineruns": 1}))
    first = await stage.create(pipeline_run("first", seconds=60))
    await stage.until_admitted(first)
    paused = pipeline_run("paused", seconds=10)
    paused["spec"]["status"] = "PipelineRunPending"
    await stage.create(paused)
    await stage.settle(5)
    await stage.patch(paused, LET_GO)
    await stage.settle(5)
    assert not await stage.runs(paused)
    await stage.until_finished(first, await stage.fresh(paused))
    assert not await is_cancelled(stage, paused)


@story()
async def test_run_starts_at_once_when_its_user_ends_the_pause_and_quota_is_free(
    stage: Stage,
) -> None:
    await stage.create(*pool("pipelines-queue", {"tekton.dev/pipelineruns": 1}))
    paused = pipeline_run("paused", seconds=10)
    paused["spec"]["status"] = "PipelineRunPending"
    made = await stage.create(paused)
    await stage.settle(30)
    assert not await stage.runs(made)
    await stage.patch(made, LET_GO)
    await stage.until_finished(made, seconds=20)


def gadgets() -> dict[str, tuple[Object, Any]]:
    """What a tenant may try to start by hand, and the patch."""
    a_set = job_set("set", workers=1)
    a_set["metadata"]["labels"] = {QUEUE: "full"}
    unsuspended = {"spec": {"suspend": False}}
    return {
        "a Job": (job("job", "full", {"cpu": 1}), unsuspended),
        "a JobSet": (a_set, unsuspended),
        "a PipelineRun": (pipeline_run("run", labels={QUEUE: "full"}), LET_GO),
        "a PipelineRun without queue": (pipeline_run("run", labels={QUEUE: ""}), LET_GO),
    }


CHANGES: Final[dict[str, Any]] = {
    "nothing else": {},
    "its queue": {"labels": {QUEUE: "other"}},
    "no queue": {"labels": {QUEUE: None}},
    "no queue and no mark": {"labels": {QUEUE: None}, "annotations": {USER_PENDING: None}},
    "a controller": {
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "x",
                "uid": "11111111-1111-1111-1111-111111111111",
                "controller": True,
            }
        ]
    },
}


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "first"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("what", list(gadgets()))
@story(refuses_starts=True)
async def test_start_without_admission_is_refused(
    stage: Stage, what: str, change: Any, at_once: bool
) -> None:
    quota = {"cpu": 0, "tekton.dev/pipelineruns": 0}
    await stage.create(*pool("full", quota), *pool("other", quota))
    wanted, patch = gadgets()[what]
    made = await stage.create(wanted)
    if not at_once:
        with suppress(RefusedError):  # The queue of a PipelineRun that waits is fixed.
            await stage.patch(made, {"metadata": change})
    both = {"metadata": change, **patch} if at_once else patch
    with pytest.raises(RefusedError, match=r"is not admitted|field is immutable"):
        await stage.patch(made, both)
    assert not await stage.runs(made)
    await stage.settle(10)
    assert not await stage.runs(made)


@pytest.mark.parametrize("what", list(gadgets()))
@story(refuses_starts=True)
async def test_admitted_job_starts_stops_and_starts_where_starts_are_refused(
    stage: Stage, what: str
) -> None:
    await stage.create(*pool("full", {"cpu": 8, "tekton.dev/pipelineruns": 1}))
    wanted, _ = gadgets()[what]
    made = await stage.create(wanted)
    if what == "a PipelineRun without queue":
        await stage.patch(made, {"metadata": {"labels": {QUEUE: "full"}}})
    await stage.until_admitted(made)
    await stage.until(lambda: stage.runs(made))
    if made["kind"] != "PipelineRun":
        workload = await stage.workload(made)
        await stage.patch(workload, {"spec": {"active": False}})
        await stage.settle(15)
        assert not await stage.runs(made)
        await stage.patch(workload, {"spec": {"active": True}})
        await stage.until_admitted(made)
        await stage.until(lambda: stage.runs(made))
