"""PipelineRuns and TaskRuns: who may change what when, and how runs live and end."""

from dataclasses import dataclass

import pytest

from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.catalogue import PIPELINERUNS, TASKRUNS
from services.simulator.cluster.kinds.registry import Obj
from tests.unit.simulator.builders import Cluster, in_cluster, pipeline_run, verdict
from tests.unit.simulator.tekton_runs import PLATFORMS, THREE

PENDING = "PipelineRunPending"


DENIED = 'admission webhook "validation.webhook.pipeline.tekton.dev" denied the request: '


TOO_LATE = "invalid value: PipelineRun cannot be Pending after it is started: spec.status"


IMMUTABLE = "invalid value: Once the PipelineRun has started, only status updates are allowed: spec"


COMPLETE = "invalid value: Once the PipelineRun is complete, no updates are allowed: spec"


STATUSES: list[str | None] = [
    None,
    PENDING,
    "Cancelled",
    "CancelledRunFinally",
    "StoppedRunFinally",
]


def matrix() -> dict[str, tuple[str, str | None, str | None, str]]:
    """The table of transitions: state, spec.status before, after, and the refusal."""
    cases: dict[str, tuple[str, str | None, str | None, str]] = {}
    for state in ("waiting", "started", "done"):
        for before in STATUSES:
            for after in STATUSES:
                if before == after or (state != "waiting" and before == PENDING):
                    continue
                refusal = ""
                if state == "done":
                    refusal = COMPLETE
                elif state == "started" and after == PENDING:
                    refusal = TOO_LATE
                cases[f"{state}: from {before} to {after}"] = (state, before, after, refusal)
    return cases


@pytest.mark.parametrize("case", matrix().values(), ids=matrix().keys())
def test_spec_status_allows_only_valid_transitions(
    case: tuple[str, str | None, str | None, str],
) -> None:
    state, before, after, refusal = case

    async def story(cluster: Cluster) -> None:
        # Managed by somebody else, so that this cluster's Tekton writes no status of its own.
        spec: Obj = {"managedBy": "example.com/other"} | (
            {} if before is None else {"status": before}
        )
        await cluster.create(PIPELINERUNS, pipeline_run(**spec))
        status: Obj = {} if state == "waiting" else {"startTime": "2026-03-04T05:06:07Z"}
        if state == "done":
            status["conditions"] = [{"type": "Succeeded", "status": "True", "reason": "Succeeded"}]
        await cluster.merge(PIPELINERUNS, "p", {"status": status}, "status")
        patch = {"spec": {"status": after}}
        if not refusal:
            await cluster.merge(PIPELINERUNS, "p", patch)
            return
        with pytest.raises(ApiError) as refused:
            await cluster.merge(PIPELINERUNS, "p", patch)
        assert refused.value.code == 400
        assert refused.value.message == f"{DENIED}validation failed: {refusal}"

    in_cluster(story)


@pytest.mark.parametrize("status", [None, PENDING])
def test_everything_else_of_the_spec_is_immutable_even_while_pending(status: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        body = pipeline_run(managedBy="example.com/other")
        if status is not None:
            body["spec"]["status"] = status
        await cluster.create(PIPELINERUNS, body)
        for patch in ({"params": [{"name": "a"}]}, {"managedBy": "x"}):
            with pytest.raises(ApiError) as refused:
                await cluster.merge(PIPELINERUNS, "p", {"spec": patch})
            assert refused.value.message == f"{DENIED}validation failed: {IMMUTABLE}"
        await cluster.merge(PIPELINERUNS, "p", {"metadata": {"labels": {"a": "b"}}})

    in_cluster(story)


def test_release_is_refused_where_defaults_changed_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(PIPELINERUNS, pipeline_run(status=PENDING))
        cluster.behaviour.tekton_admission.default_pod_template = {"nodeSelector": {"a": "b"}}

        with pytest.raises(ApiError) as refused:
            await cluster.merge(PIPELINERUNS, "p", {"spec": {"status": None}})

        assert IMMUTABLE in refused.value.message

    in_cluster(story)


@dataclass(frozen=True, kw_only=True)
class Invalid:
    spec: Obj
    message: str


ONE_TASK = {"tasks": [{"name": "a"}]}


INVALID = {
    "neither pipelineRef nor pipelineSpec": Invalid(
        spec={}, message="expected exactly one, got neither: spec.pipelineRef, spec.pipelineSpec"
    ),
    "both pipelineRef and pipelineSpec": Invalid(
        spec={"pipelineRef": {"name": "x"}, "pipelineSpec": ONE_TASK},
        message="expected exactly one, got both: spec.pipelineRef, spec.pipelineSpec",
    ),
    "a parameter given twice": Invalid(
        spec={"pipelineRef": {}, "params": [{"name": "x", "value": "1"}, {"name": "x"}]},
        message="expected exactly one, got both: spec.params[x].name",
    ),
    "a parameter given twice to a task": Invalid(
        spec={
            "pipelineSpec": {
                "tasks": [{"name": "a", "params": [{"name": "PLATFORM"}, {"name": "PLATFORM"}]}]
            }
        },
        message="expected exactly one, got both: spec.pipelineSpec.tasks[0].params[PLATFORM].name",
    ),
    "tasks may take longer than the pipeline's default hour": Invalid(
        spec={"pipelineRef": {}, "timeouts": {"tasks": "2h"}},
        message="invalid value: 2h0m0s should be <= pipeline duration: spec.timeouts.tasks",
    ),
    "a status that is none": Invalid(
        spec={"pipelineRef": {}, "status": "Paused"},
        message="invalid value: Paused should be Cancelled, CancelledRunFinally, "
        "StoppedRunFinally or PipelineRunPending: spec.status",
    ),
    "a duration that is none": Invalid(
        spec={"pipelineRef": {}, "timeouts": {"pipeline": "soon"}},
        message="invalid value: soon is not a duration: spec.timeouts.pipeline",
    ),
}


UNREADABLE: dict[str, Obj] = {
    "parameters that are a word": {"pipelineRef": {}, "params": "x"},
    "a parameter that is a word": {"pipelineRef": {}, "params": ["x"]},
    "timeouts that are a word": {"pipelineRef": {}, "timeouts": "1h"},
    "a template that is a list": {"pipelineRef": {}, "taskRunTemplate": ["x"]},
    "tasks that are numbers": {"pipelineSpec": {"tasks": [1, 2]}},
    "a status that is a list": {"pipelineRef": {}, "status": ["Cancelled"]},
}


@pytest.mark.parametrize("spec", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_fields_of_the_wrong_type_are_denied(spec: Obj) -> None:
    async def story(cluster: Cluster) -> None:
        body = {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
        with pytest.raises(ApiError) as refused:
            await cluster.create(PIPELINERUNS, body)
        assert refused.value.code == 400

    in_cluster(story)


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID.keys())
def test_invalid_runs_are_denied(case: Invalid) -> None:
    async def story(cluster: Cluster) -> None:
        body = {"metadata": {"name": "p", "namespace": "default"}, "spec": case.spec}
        with pytest.raises(ApiError) as refused:
            await cluster.create(PIPELINERUNS, body)
        assert refused.value.code == 400
        assert refused.value.message == f"{DENIED}validation failed: {case.message}"

    in_cluster(story)


def test_task_timeout_within_the_pipeline_timeout_is_accepted() -> None:
    async def story(cluster: Cluster) -> None:
        timeouts = {"tasks": "2h", "pipeline": "3h"}
        await cluster.create(PIPELINERUNS, pipeline_run(timeouts=timeouts))

    in_cluster(story)


def test_defaults_are_filled_in() -> None:
    async def story(cluster: Cluster) -> None:
        stored = await cluster.create(PIPELINERUNS, pipeline_run())

        assert stored.obj["spec"]["timeouts"] == {"pipeline": "1h0m0s"}
        assert stored.obj["spec"]["taskRunTemplate"] == {"serviceAccountName": "default"}

    in_cluster(story)


def test_pending_run_has_a_condition_and_no_start_time() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(PIPELINERUNS, pipeline_run(status=PENDING))
        await cluster.after(7200)

        run = cluster.run()
        assert verdict(run) == ("Unknown", PENDING)
        assert run["status"]["conditions"][0]["message"] == 'PipelineRun "p" is pending'
        assert "startTime" not in run["status"]
        assert cluster.api.store.count(TASKRUNS) == 0

        await cluster.merge(PIPELINERUNS, "p", {"spec": {"status": None}})
        await cluster.after(1)
        run = cluster.run()
        assert verdict(run) == ("Unknown", "Running")
        assert run["status"]["startTime"] == "2026-03-04T07:06:07Z"

        await cluster.after(10)
        assert verdict(cluster.run()) == ("True", "Succeeded")

    in_cluster(story)


def test_tasks_run_in_their_order_and_finally_last() -> None:
    async def story(cluster: Cluster) -> None:
        pipeline = {
            "tasks": [{"name": "a"}, {"name": "b", "runAfter": ["a"]}],
            "finally": [{"name": "f"}],
        }
        await cluster.create(PIPELINERUNS, pipeline_run(seconds=30, pipelineSpec=pipeline))
        seen = []
        for _ in range(3):
            await cluster.after(9)
            seen.append([s.name for s in cluster.api.store.objects(TASKRUNS)])
            await cluster.after(1.1)

        assert seen == [["p-a"], ["p-a", "p-b"], ["p-a", "p-b", "p-f"]]
        run = cluster.run()
        assert verdict(run) == ("True", "Succeeded")
        assert run["status"]["completionTime"]
        assert [c["name"] for c in run["status"]["childReferences"]] == ["p-a", "p-b", "p-f"]
        child = cluster.get(TASKRUNS, "p-a")
        assert child["metadata"]["labels"]["tekton.dev/pipelineRun"] == "p"
        assert child["metadata"]["ownerReferences"][0]["controller"] is True

    in_cluster(story)


def test_task_with_a_platform_waits_for_its_machines_secret() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(
            PIPELINERUNS, pipeline_run(pipelineRef={"name": "x"}, params=[PLATFORMS])
        )
        await cluster.after(600)

        first = cluster.get(TASKRUNS, "p-build-images-0")
        assert first["spec"]["params"] == [{"name": "PLATFORM", "value": "linux/arm64"}]
        volume = first["status"]["taskSpec"]["volumes"][0]
        assert volume["secret"]["secretName"] == "multi-platform-ssh-p-build-images-0"
        assert verdict(first) == ("Unknown", "Running")

        await cluster.give_machine("p-build-images-0")
        await cluster.give_machine("p-build-images-1")
        await cluster.after(11)
        assert verdict(cluster.run()) == ("True", "Succeeded")

    in_cluster(story)


def test_secret_with_an_error_fails_the_task_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(
            PIPELINERUNS, pipeline_run(pipelineRef={"name": "x"}, params=[PLATFORMS])
        )
        await cluster.after(1)
        await cluster.give_machine("p-build-images-0", error="no hosts configured")
        await cluster.give_machine("p-build-images-1")
        await cluster.after(1)

        assert verdict(cluster.get(TASKRUNS, "p-build-images-0")) == ("False", "Failed")
        assert verdict(cluster.run()) == ("Unknown", "PipelineRunStopping")
        await cluster.after(10)
        assert verdict(cluster.run()) == ("False", "Failed")

    in_cluster(story)


@dataclass(frozen=True, kw_only=True)
class Ending:
    asked: str | None
    outcome: tuple[str, str]
    at: float = 0.5
    """Seconds after the start at which it is asked."""

    fail: bool = False
    finally_runs: bool = True


ENDINGS = {
    "an undisturbed run succeeds": Ending(asked=None, outcome=("True", "Succeeded")),
    "a run that is told to fail fails": Ending(asked=None, outcome=("False", "Failed"), fail=True),
    "cancelled ends at once, without finally": Ending(
        asked="Cancelled", outcome=("False", "Cancelled"), finally_runs=False
    ),
    "cancelled with finally": Ending(asked="CancelledRunFinally", outcome=("False", "Cancelled")),
    "stopped with tasks left to skip is cancelled": Ending(
        asked="StoppedRunFinally", outcome=("False", "Cancelled")
    ),
    "stopped in its last task completes": Ending(
        asked="StoppedRunFinally", outcome=("True", "Completed"), at=15
    ),
    "stopped and failed has failed": Ending(
        asked="StoppedRunFinally", outcome=("False", "Failed"), at=15, fail=True
    ),
}


@pytest.mark.parametrize("case", ENDINGS.values(), ids=ENDINGS.keys())
def test_run_ends_with_the_expected_reason(case: Ending) -> None:
    async def story(cluster: Cluster) -> None:
        body = pipeline_run(seconds=30, fail=case.fail, pipelineSpec=THREE)
        await cluster.create(PIPELINERUNS, body)
        await cluster.after(case.at)
        if case.asked:
            await cluster.merge(PIPELINERUNS, "p", {"spec": {"status": case.asked}})
        await cluster.after(31)

        assert verdict(cluster.run()) == case.outcome
        assert cluster.run()["status"]["completionTime"]
        names = [s.name for s in cluster.api.store.objects(TASKRUNS)]
        assert ("p-f" in names) is case.finally_runs

    in_cluster(story)


def test_run_cancelled_while_pending_ends_without_a_task() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(PIPELINERUNS, pipeline_run(status=PENDING))
        await cluster.merge(PIPELINERUNS, "p", {"spec": {"status": "Cancelled"}})
        await cluster.after(1)

        assert verdict(cluster.run()) == ("False", "Cancelled")
        assert cluster.api.store.count(TASKRUNS) == 0

    in_cluster(story)


def test_run_above_its_timeout_fails() -> None:
    async def story(cluster: Cluster) -> None:
        body = pipeline_run(seconds=100, timeouts={"pipeline": "1m"})
        await cluster.create(PIPELINERUNS, body)
        await cluster.after(61)

        assert verdict(cluster.run()) == ("False", "PipelineRunTimeout")
        message = cluster.run()["status"]["conditions"][0]["message"]
        assert message == 'PipelineRun "p" failed to finish within "1m0s"'
        await cluster.after(1)
        assert verdict(cluster.get(TASKRUNS, "p-a")) == ("False", "TaskRunCancelled")

    in_cluster(story)


def test_run_managed_by_another_controller_is_ignored() -> None:
    async def story(cluster: Cluster) -> None:
        body = pipeline_run(managedBy="kueue.x-k8s.io/multikueue")
        await cluster.create(PIPELINERUNS, body)
        await cluster.after(100)

        assert "status" not in cluster.run()

    in_cluster(story)


def test_task_runs_are_deleted_with_their_run() -> None:
    async def story(cluster: Cluster) -> None:
        stored = await cluster.create(PIPELINERUNS, pipeline_run())
        await cluster.after(1)
        cluster.api.delete_now(stored)
        await cluster.after(100)

        assert cluster.api.store.count(TASKRUNS) == 0

    in_cluster(story)
