"""A Workload that came after the end of its job, and that our finalizer keeps."""

from typing import Any

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.names import RESOURCE_IN_USE, workload_name
from tests.unit.classifier.projection.objects import Json, job, seen

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


def test_end_of_its_job_is_said_again() -> None:
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
def test_nothing_is_said_of(metadata: Json) -> None:
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
