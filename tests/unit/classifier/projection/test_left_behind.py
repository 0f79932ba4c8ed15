"""A Workload without its job: what came after the end of the job, and what outlives it."""

from typing import Any

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.names import JOB_UID_LABEL, RESOURCE_IN_USE, workload_name
from tests.unit.classifier.projection.objects import Json, job, seen, with_quota

NAME = workload_name(kind="Job", group="batch", name="train", uid="u-1")
DELETED = {"deletionTimestamp": "2026-01-01T00:00:05Z"}
KEPT = {"finalizers": [RESOURCE_IN_USE]}
OWNED = {
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1", "controller": True}
    ]
}


def workload(**metadata: Any) -> Json:
    about = {"name": NAME, "namespace": "team-a", "uid": "w-1", "resourceVersion": "9"}
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": about | created | metadata, "spec": {}, "status": {}}


def test_workload_left_behind_publishes_the_end_of_its_job_once() -> None:
    projector = Projector("hub")
    projector.observe(seen(kinds.WORKLOAD, workload(**DELETED, **KEPT, **OWNED)))
    [change] = projector.changes()
    state = change.state
    assert (state.phase, state.uid, state.name) == ("gone", "u-1", NAME)
    assert state.owner is not None
    assert (state.owner.kind, state.owner.plural, state.owner.name) == ("Job", "jobs", "train")
    projector.observe(seen(kinds.WORKLOAD, workload(**DELETED, **OWNED), deleted=True))
    assert [*projector.changes()] == []


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(KEPT | OWNED, id="it is not deleted"),
        pytest.param(DELETED | OWNED, id="another finalizer keeps it"),
        pytest.param(DELETED | OWNED | {"finalizers": ["a/b"]}, id="only that of somebody else"),
    ],
)
def test_workload_that_its_job_does_not_need_ended_publishes_nothing(metadata: Json) -> None:
    projector = Projector("hub")
    projector.observe(seen(kinds.WORKLOAD, workload(**metadata)))
    assert [*projector.changes()] == []


def test_job_that_lives_is_not_gone() -> None:
    projector = Projector("hub")
    projector.observe(seen(kinds.JOB, job()))
    [change] = projector.changes()
    projector.observe(seen(kinds.WORKLOAD, workload(**DELETED, **KEPT, **OWNED)))
    assert "gone" not in {change.state.phase for change in projector.changes()}
    assert change.state.uid == "u-1"


LABEL = {"labels": {JOB_UID_LABEL: "u-1"}}
FRIEND = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}]}
OUTLIVES: dict[str, Json] = {
    "as --cascade=orphan leaves it": LABEL,
    "its user gave it an owner that is no controller": LABEL | FRIEND,
    "its user gave it a controller": LABEL
    | {"ownerReferences": [FRIEND["ownerReferences"][0] | {"controller": True}]},
    "its user took label and owner off": {"labels": {}},
    "its user wrote another label": {"labels": {JOB_UID_LABEL: "u-2"}} | FRIEND,
}


@pytest.mark.parametrize("metadata", OUTLIVES.values(), ids=OUTLIVES)
def test_workload_that_outlives_its_job_holds_nothing(metadata: Json) -> None:
    projector = Projector("hub")
    observations = [seen(kinds.JOB, job()), seen(kinds.WORKLOAD, with_quota("train", "u-1", 1))]
    for observation in observations:
        projector.observe(observation)
    assert {change.state.uid for change in projector.changes()} == {"u-1"}
    body = with_quota("train", "u-1", 1)
    del body["metadata"]["ownerReferences"]
    body["metadata"] |= metadata
    projector.observe(seen(kinds.WORKLOAD, body))
    [*_] = projector.changes()
    projector.observe(seen(kinds.JOB, job(), deleted=True))
    [end] = projector.changes()
    assert (end.state.phase, end.state.uid) == ("gone", "u-1")
    body["metadata"] |= {"finalizers": [], "resourceVersion": "99"}
    projector.observe(seen(kinds.WORKLOAD, body))
    assert [*projector.changes()] == []
    # Another object of that name is its user's own.
    projector.observe(seen(kinds.WORKLOAD, body, deleted=True))
    body["metadata"] |= {"uid": "w-2", "labels": {}, "ownerReferences": []}
    projector.observe(seen(kinds.WORKLOAD, body))
    assert [change.state.uid for change in projector.changes()] == ["w-2"]


@pytest.mark.parametrize("metadata", [LABEL, LABEL | FRIEND], ids=["orphan", "of no controller"])
def test_workload_of_an_unseen_job_holds_nothing(metadata: Json) -> None:
    body = with_quota("train", "u-1", 1)
    del body["metadata"]["ownerReferences"]
    body["metadata"] |= metadata
    projector = Projector("hub")
    projector.observe(seen(kinds.WORKLOAD, body))
    assert [*projector.changes()] == []
