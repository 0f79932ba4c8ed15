from typing import Any

import jsonpatch
import pytest

from shared.contracts.kube.names import workload_name
from shared.integrations import (
    INTEGRATIONS,
    JOB,
    PIPELINE_RUN,
    PodSetInfo,
    integration_for,
    queue_of,
)

UID = {"metadata": {"name": "x", "uid": "u-1"}}


def run(**spec_and_status: Any) -> dict[str, Any]:
    status = spec_and_status.pop("status_", {})
    return {**UID, "spec": {"pipelineRef": {"name": "p"}, **spec_and_status}, "status": status}


def job(*, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {**UID, "spec": {"template": template, **spec}, "status": status or {}}


def succeeded(value: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Succeeded", "status": value, "reason": "R", "message": "m"}]}


def test_run_is_held_by_its_pending_status_only() -> None:
    assert PIPELINE_RUN.held(run(status="PipelineRunPending"))
    assert not PIPELINE_RUN.held(run())
    assert not PIPELINE_RUN.held(run(status="Cancelled"))


RUN_ACTIVE = {
    "a run that never started is inactive": ({}, False),
    "a started run is active": ({"startTime": "t"}, True),
    "a finished run is inactive": ({"startTime": "t", **succeeded("True")}, False),
    "a run with an unknown condition is active": ({"startTime": "t", **succeeded("Unknown")}, True),
}


@pytest.mark.parametrize(("status", "active"), RUN_ACTIVE.values(), ids=RUN_ACTIVE.keys())
def test_run_uses_quota_while_it_is_active(status: dict[str, Any], active: bool) -> None:
    assert PIPELINE_RUN.active(run(status_=status)) is active


def test_run_requests_a_slot_and_the_resources_of_its_annotations() -> None:
    subject = run()
    subject["metadata"] = {
        **subject["metadata"],
        "annotations": {"kueue.konflux-ci.dev/requests-linux-arm64": "2", "other": "1"},
    }
    [pod_set] = PIPELINE_RUN.pod_sets(subject)
    [container] = pod_set["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {
        "tekton.dev/pipelineruns": "1",
        "linux-arm64": "2",
    }


def test_annotation_without_a_resource_name_is_named_in_the_error() -> None:
    subject = run()
    subject["metadata"] = {"annotations": {"kueue.konflux-ci.dev/requests-": "2"}}
    with pytest.raises(ValueError, match=r"requests-: no resource name"):
        PIPELINE_RUN.pod_sets(subject)


def test_releasing_a_run_clears_only_a_pending_status() -> None:
    pending = run(status="PipelineRunPending")
    patch = PIPELINE_RUN.release(pending, ())
    assert "status" not in jsonpatch.apply_patch(pending, patch)["spec"]
    another = {**pending, "metadata": {"uid": "u-2"}}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(another, patch)
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(run(status="Cancelled"), patch)


def test_started_run_cannot_be_stopped_and_resumed() -> None:
    assert PIPELINE_RUN.stop(run(status_={"startTime": "t"})) is None


COUNTS = {
    "one pod by default": ({}, 1),
    "its parallelism": ({"parallelism": 4}, 4),
    "never more than completions": ({"parallelism": 4, "completions": 2}, 2),
    "no pod with parallelism 0": ({"parallelism": 0}, 0),
}


@pytest.mark.parametrize(("spec", "count"), COUNTS.values(), ids=COUNTS.keys())
def test_job_counts_its_pods(spec: dict[str, Any], count: int) -> None:
    assert JOB.pod_sets(job(**spec))[0]["count"] == count


RECLAIMABLE = {
    "nothing while enough completions are left": ({"succeeded": 1}, {}),
    "pods that will not be replaced": ({"succeeded": 4}, {"main": 1}),
    "all pods of a finished job": ({"succeeded": 6}, {"main": 3}),
}


@pytest.mark.parametrize(("status", "pods"), RECLAIMABLE.values(), ids=RECLAIMABLE.keys())
def test_job_gives_back_pods_that_will_not_run_again(
    status: dict[str, Any], pods: dict[str, int]
) -> None:
    assert JOB.reclaimable(job(parallelism=3, completions=6, status=status)) == pods


def test_releasing_a_job_puts_the_flavors_nodes_into_its_template_in_the_same_write() -> None:
    least = {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}
    held = job(suspend=True, parallelism=3)
    held["metadata"] = held["metadata"] | least
    info = PodSetInfo(
        name="main", count=2, node_selector={"pool": "spot"}, tolerations=({"key": "spot"},)
    )
    released = jsonpatch.apply_patch(held, JOB.release(held, (info,)))
    assert released["spec"]["suspend"] is False
    assert released["spec"]["parallelism"] == 2
    pod = released["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot"}]


FINISHES = {
    "complete": ({"type": "Complete", "status": "True"}, True),
    "failed": ({"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}, False),
}


@pytest.mark.parametrize(("condition", "success"), FINISHES.values(), ids=FINISHES.keys())
def test_job_ends_by_its_conditions(condition: dict[str, Any], success: bool) -> None:
    finish = JOB.finish(job(status={"conditions": [condition]}))
    assert finish is not None
    assert finish.success is success


def test_job_that_is_only_suspended_has_not_ended() -> None:
    condition = {"type": "Suspended", "status": "True"}
    assert JOB.finish(job(status={"conditions": [condition]})) is None


def test_queue_comes_from_the_label_only() -> None:
    assert queue_of({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}) == "q"
    assert queue_of({"metadata": {"labels": None}}) == ""


@pytest.mark.parametrize("integration", INTEGRATIONS, ids=lambda i: i.kind.kind)
def test_every_integration_is_found_by_plural_and_by_kind(integration: Any) -> None:
    kind = integration.kind
    found = integration_for(group=kind.group, plural=kind.plural)
    assert found is not None
    assert found.kind == kind
    assert integration_for(group=kind.group, kind=kind.kind) is found


def test_workloads_are_named_as_kueue_names_them() -> None:
    name = workload_name(kind="Job", group="batch", name="sample", uid="u-1")
    assert name.startswith("job-sample-")
    assert len(name) == len("job-sample-") + 5
    longest = workload_name(kind="Job", group="batch", name="s" * 253, uid="u-1")
    assert len(longest) == 253
