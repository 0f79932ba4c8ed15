"""What becomes of a job on its way to a workload. The projector is pure: observations in, states out."""

from typing import Any

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.names import (
    JOB_UID_LABEL,
    ORIGIN,
    PREBUILT_WORKLOAD,
    TRUNCATED,
    workload_name,
)
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.telemetry import probes
from shared.testing.probing import acts
from tests.unit.classifier.projection.objects import QUEUE, Json, job, seen


@pytest.fixture
def projector() -> Projector:
    return Projector("hub")


def states(projector: Projector, *observations: Observed) -> list[WorkloadState]:
    for observation in observations:
        projector.observe(observation)
    return [change.state for change in projector.changes()]


def test_job_with_queue_label_becomes_workload(projector: Projector) -> None:
    [state] = states(projector, seen(kinds.JOB, job()))
    assert state.name == workload_name(kind="Job", group="batch", name="train", uid="u-1")
    assert (state.queue, state.phase, state.held) == ("main", "waiting", True)
    assert state.pod_sets[0].requests == {"cpu": "1"}


def test_job_without_queue_label_is_ignored(projector: Projector) -> None:
    assert states(projector, seen(kinds.JOB, job(labels={}))) == []


def test_job_whose_contents_were_left_out_waits_with_the_reason(projector: Projector) -> None:
    short = job(metadata={"annotations": {TRUNCATED: "left out spec"}})
    [state] = states(projector, seen(kinds.JOB, short))
    assert state.inadmissible is not None
    assert f"{TRUNCATED}: left out spec: make the object smaller" in state.inadmissible
    assert state.unresolved == state.inadmissible


def test_new_limit_range_default_changes_requests(
    projector: Projector,
) -> None:
    bare = {"spec": {"containers": [{"name": "c"}]}}
    [before] = states(projector, seen(kinds.JOB, job(spec={"template": bare})))
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}}]
    metadata = {"name": "defaults", "namespace": "team-a"}
    given = seen(kinds.LIMIT_RANGE, {"metadata": metadata, "spec": {"limits": limits}})
    [after] = states(projector, given)
    assert (before.pod_sets[0].requests, after.pod_sets[0].requests) == ({}, {"cpu": "2"})


def test_job_beyond_a_limit_range_keeps_its_place_in_a_queue(projector: Projector) -> None:
    limits = [{"type": "Container", "max": {"cpu": "500m"}}]
    metadata = {"name": "small", "namespace": "team-a"}
    narrow = seen(kinds.LIMIT_RANGE, {"metadata": metadata, "spec": {"limits": limits}})
    [state] = states(projector, narrow, seen(kinds.JOB, job()))
    assert (bool(state.inadmissible), state.unresolved) == (True, None)


def test_job_without_a_queue_ends_the_workload_of_the_earlier_job_of_its_name(
    projector: Projector,
) -> None:
    """No tombstone came in between: a spoke in an attacker's hands sends none."""
    [first] = states(projector, seen(kinds.JOB, job()))
    [last] = states(projector, seen(kinds.JOB, job(uid="u-2", labels={})))
    assert (last.name, last.phase) == (first.name, "gone")


def test_job_that_names_an_unknown_controller_is_managed(projector: Projector) -> None:
    owner = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "uid": "u-0", "controller": True}
    owned = job(metadata={"ownerReferences": [owner]}, spec={"suspend": False})
    assert len(states(projector, seen(kinds.JOB, owned))) == 1


def test_repeated_observation_changes_nothing(projector: Projector) -> None:
    assert len(states(projector, seen(kinds.JOB, job()))) == 1
    assert states(projector, seen(kinds.JOB, job())) == []


def test_restored_state_is_no_change(projector: Projector) -> None:
    [state] = states(projector, seen(kinds.JOB, job()))
    restarted = Projector("hub")
    restarted.restore(state)
    assert states(restarted, seen(kinds.JOB, job())) == []


def test_changed_request_is_a_new_generation(projector: Projector) -> None:
    [first] = states(projector, seen(kinds.JOB, job()))
    [running] = states(projector, seen(kinds.JOB, job(status={"active": 1})))
    [moved] = states(projector, seen(kinds.JOB, job(labels={"kueue.x-k8s.io/queue-name": "b"})))
    assert (first.generation, running.generation, moved.generation) == (0, 0, 1)


def test_edited_waiting_job_is_a_new_generation(projector: Projector) -> None:
    """What it asks of quota is the same, but the cluster may have refused to let it run as it was."""

    def generation(number: int, **parts: Any) -> list[int]:
        observed = seen(kinds.JOB, job(metadata={"generation": number}, **parts))
        return [state.generation for state in states(projector, observed)]

    assert generation(1) == [0]
    assert generation(2) == [1]
    assert generation(3, spec={"suspend": False}, status={"active": 1}) == [1], "that was us"
    assert generation(4) == [1], "and so was that"


def test_removed_queue_label_does_not_release_job(projector: Projector) -> None:
    states(projector, seen(kinds.JOB, job(status={"active": 1})))
    [state] = states(projector, seen(kinds.JOB, job(labels={}, status={"active": 1, "ready": 1})))
    assert state.phase == "running"


def test_deleted_job_leaves_tombstone(projector: Projector) -> None:
    states(projector, seen(kinds.JOB, job()))
    [state] = states(projector, seen(kinds.JOB, job(), deleted=True))
    assert (state.phase, state.pods_active) == ("gone", False)
    assert states(projector, seen(kinds.JOB, job(), deleted=True)) == []


def test_late_tombstone_does_not_end_a_new_job_of_that_name(projector: Projector) -> None:
    states(projector, seen(kinds.JOB, job()))
    first, second = states(projector, seen(kinds.JOB, job(uid="u-2")))
    assert {first.phase, second.phase} == {"gone", "waiting"}
    with acts(probes.OLD_TOMBSTONE):
        assert states(projector, seen(kinds.JOB, job(), deleted=True)) == []


def test_tombstone_of_a_later_job_ends_the_one_before_it(projector: Projector) -> None:
    """A view keeps the last message of a name: who reads late gets no other tombstone."""
    [first] = states(projector, seen(kinds.JOB, job()))
    later = job(uid="u-2", metadata={"resourceVersion": "11"})
    with acts(probes.LATER_TOMBSTONE):
        [state] = states(projector, seen(kinds.JOB, later, deleted=True))
    assert (state.name, state.uid, state.phase) == (first.name, "u-1", "gone")


def test_job_missing_after_list_is_gone(projector: Projector) -> None:
    [state] = states(projector, seen(kinds.JOB, job()))
    restarted = Projector("hub")
    restarted.restore(state)
    restarted.on_synced()
    assert [change.state.phase for change in restarted.changes()] == ["gone"]


def priority_class(value: int) -> Observed:
    return seen(
        kinds.WORKLOAD_PRIORITY_CLASS, {"metadata": {"name": "high", "uid": "p"}, "value": value}
    )


def test_job_waits_with_reason_until_priority_class_exists(
    projector: Projector,
) -> None:
    labels = {**QUEUE, "kueue.x-k8s.io/priority-class": "high"}
    [missing] = states(projector, seen(kinds.JOB, job(labels=labels)))
    assert missing.unresolved == 'WorkloadPriorityClass "high" not found'
    [found] = states(projector, priority_class(7))
    assert (found.inadmissible, found.priority) == (None, 7)
    [raised] = states(projector, priority_class(9))
    assert raised.priority == 9


def test_pod_priority_class_counts_without_label(projector: Projector) -> None:
    with_class = job()
    with_class["spec"]["template"]["spec"]["priorityClassName"] = "batch"
    pod_class = {"metadata": {"name": "batch", "uid": "c"}, "value": 3}
    [state] = states(projector, seen(kinds.PRIORITY_CLASS, pod_class), seen(kinds.JOB, with_class))
    assert (state.priority, state.priority_class) == (3, "batch")


BAD = {
    "a quantity that is none": (
        {"kueue.konflux-ci.dev/requests-cpu": "abc"},
        "requests[cpu]: 'abc' is no quantity",
    ),
    "an annotation without a resource": (
        {"kueue.konflux-ci.dev/requests-": "1"},
        "no resource name",
    ),
}


@pytest.mark.parametrize(("annotations", "problem"), BAD.values(), ids=BAD.keys())
def test_invalid_job_waits_with_reason(
    projector: Projector, annotations: Json, problem: str
) -> None:
    run = job()
    run["metadata"]["annotations"] = annotations
    run["spec"] = {"status": "PipelineRunPending"}
    [state] = states(projector, seen(kinds.PIPELINE_RUN, run))
    assert state.inadmissible is not None
    assert problem in state.inadmissible


def test_run_paused_by_its_user_is_on_hold(projector: Projector) -> None:
    run = job(metadata={"annotations": {"sluicegate.dev/user-pending": "true"}})
    run["spec"] = {"status": "PipelineRunPending"}
    [state] = states(projector, seen(kinds.PIPELINE_RUN, run))
    assert state.on_hold is not None


FIRST_SEEN_RUNNING: dict[str, tuple[str | None, int, bool]] = {
    "under our mark, and its spec was changed": ("false", 2, True),
    "under our mark, as it was created: somebody copied a manifest": ("false", 1, False),
    "under the mark of its user's own pause": ("true", 2, False),
    "without a mark": (None, 2, False),
}


@pytest.mark.parametrize(
    ("mark", "generation", "was_held"), FIRST_SEEN_RUNNING.values(), ids=FIRST_SEEN_RUNNING
)
def test_run_that_was_let_go_before_it_was_observed_was_held(
    projector: Projector, mark: str | None, generation: int, was_held: bool
) -> None:
    annotations = {} if mark is None else {"sluicegate.dev/user-pending": mark}
    run = job(metadata={"annotations": annotations, "generation": generation})
    run["spec"], run["status"] = {}, {"startTime": "2026-01-01T00:00:01Z"}
    [state] = states(projector, seen(kinds.PIPELINE_RUN, run))
    assert (state.pods_active, state.was_held) == (True, was_held)


def test_gate_of_a_run_counts_until_it_ran(projector: Projector) -> None:
    gate = {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}}
    for started, gated in (
        ({}, "example.com/budget"),
        ({"startTime": "2026-01-01T12:00:00Z"}, None),
    ):
        run = job(metadata=gate) | {"status": started}
        [state] = states(projector, seen(kinds.PIPELINE_RUN, run))
        assert state.gated == gated


def foreign(**status: Any) -> Json:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    return {
        "metadata": {
            "name": "theirs",
            "namespace": "team-a",
            "uid": "w-1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "3",
        },
        "spec": {
            "queueName": "main",
            "priority": 5,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": status,
    }


def condition(type_: str, status: str = "True") -> Json:
    return {"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:01:00Z"}


def test_external_workload_is_projected_from_its_status(projector: Projector) -> None:
    [state] = states(projector, seen(kinds.WORKLOAD, foreign()))
    assert (state.owner, state.queue, state.priority) == (None, "main", 5)
    assert state.held
    admission = {"clusterQueue": "cq"}
    [reserved] = states(
        projector,
        seen(kinds.WORKLOAD, foreign(conditions=[condition("QuotaReserved")], admission=admission)),
    )
    assert not reserved.held
    assert reserved.admission == admission
    [finished] = states(
        projector, seen(kinds.WORKLOAD, foreign(conditions=[condition("Finished")]))
    )
    assert finished.phase == "finished"


def test_workload_of_earlier_copy_does_not_affect_the_next(projector: Projector) -> None:
    copied = {**QUEUE, ORIGIN: "multikueue", PREBUILT_WORKLOAD: "job-train"}
    earlier = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1"}
    admitted: Json = {
        "metadata": {
            "name": "job-train", "namespace": "team-a", "uid": "w-1",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{**earlier, "controller": True}],
        },
        "spec": {"queueName": "main"},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
    }  # fmt: skip
    about = [
        states(
            projector, seen(kinds.JOB, job(uid=uid, labels=copied)), seen(kinds.WORKLOAD, admitted)
        )
        for uid in ("u-1", "u-2")
    ]
    assert [[bool(state.deleting), state.admission is None] for [state] in about] == [
        [True, True],
        [False, True],
    ]


@pytest.mark.parametrize("order", ["workload first", "job first", "after a restart"])
@pytest.mark.parametrize("owned", [None, ("Job", "other"), ("JobSet", "train")], ids=str)
def test_copy_labels_do_not_take_over_a_foreign_workload(
    projector: Projector, order: str, owned: tuple[str, str] | None
) -> None:
    theirs = foreign()
    theirs["metadata"]["uid"] = "w-1"
    if owned:
        kind, name = owned
        group = "batch/v1" if kind == "Job" else "jobset.x-k8s.io/v1alpha2"
        owner = {"apiVersion": group, "kind": kind, "name": name, "uid": "u-9"}
        theirs["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    name = theirs["metadata"]["name"]
    labels = {**QUEUE, ORIGIN: "multikueue", PREBUILT_WORKLOAD: name}
    observations = [seen(kinds.WORKLOAD, theirs), seen(kinds.JOB, job(labels=labels))]
    if order == "job first":
        observations.reverse()
    found = {state.name: state for state in states(projector, *observations[:1])}
    if order == "after a restart":
        restarted = Projector("hub")
        for state in found.values():
            restarted.restore(state)
        projector = restarted
        observations.append(observations[0])
    found |= {state.name: state for state in states(projector, *observations[1:])}
    own = workload_name(kind="Job", group="batch", name="train", uid="u-1")
    assert found[own].uid == "u-1"
    if not owned:
        [still] = [
            state
            for state in states(
                projector, seen(kinds.WORKLOAD, {**theirs, "spec": {"active": False}})
            )
            if state.name == name
        ]
        assert (still.uid, still.owner, still.phase) == ("w-1", None, "waiting")


def test_workload_object_of_a_job_is_no_second_workload(projector: Projector) -> None:
    [state] = states(projector, seen(kinds.JOB, job()))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "uid": "u-1", "controller": True}
    obj = foreign()
    obj["metadata"] = {**obj["metadata"], "name": state.name, "ownerReferences": [owner]}
    obj["spec"]["active"] = False
    [joined] = states(projector, seen(kinds.WORKLOAD, obj))
    assert (joined.name, joined.uid, joined.active) == (state.name, "u-1", False)


def test_new_workload_with_the_label_of_a_job_waits_like_any_other(projector: Projector) -> None:
    body = foreign()
    body["metadata"]["labels"] = {JOB_UID_LABEL: "made-up"}
    assert [state.phase for state in states(projector, seen(kinds.WORKLOAD, body))] == ["waiting"]


def test_unreadable_object_does_not_block_others(
    projector: Projector,
) -> None:
    """Where no schema and no webhook has seen it: it stays as it was, with the reason."""
    [first] = states(projector, seen(kinds.WORKLOAD, foreign()))
    broken = foreign()
    broken["spec"]["podSets"] = "many"
    told, other = states(projector, seen(kinds.WORKLOAD, broken), seen(kinds.JOB, job()))
    assert (told.name, told.pod_sets) == (first.name, first.pod_sets)
    assert "cannot be read: AttributeError" in (told.inadmissible or "")
    assert other.inadmissible is None
    broken["metadata"]["name"] = "unheard-of"
    assert states(projector, seen(kinds.WORKLOAD, broken)) == []
