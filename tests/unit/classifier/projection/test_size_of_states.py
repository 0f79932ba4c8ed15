"""A state repeats little of what its object says, and only when that matters to somebody."""

from typing import Any

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.workloads import WorkloadState
from tests.unit.classifier.projection.objects import QUEUE, job, seen

MEGABYTE = {f"{'p' * 63}.example.com/{number:050d}": "v" * 63 for number in range(5000)}
SMALL_BYTES = 8 << 10


@pytest.fixture
def projector() -> Projector:
    return Projector("hub")


def states(projector: Projector, number: int, **parts: Any) -> list[WorkloadState]:
    """What is published when a Job is seen with these parts."""
    version = {"resourceVersion": str(number)}
    projector.observe(seen(kinds.JOB, job(metadata=version, **parts)))
    return [change.state for change in projector.changes()]


def test_labels_of_a_megabyte_are_not_repeated(projector: Projector) -> None:
    [state] = states(projector, 1, labels={**MEGABYTE, **QUEUE, ORIGIN: "hub"})
    assert len(state.encode()) < SMALL_BYTES
    assert state.labels[ORIGIN] == "hub"


def test_labels_of_a_usual_job_are_all_there(projector: Projector) -> None:
    usual = {**QUEUE, **{f"app.example.com/label-{number}": "v" * 20 for number in range(40)}}
    [state] = states(projector, 1, labels=usual)
    assert state.labels == usual


@pytest.mark.parametrize("size", [0, len(MEGABYTE)])
def test_change_of_labels_alone_writes_nothing(projector: Projector, size: int) -> None:
    some = {**QUEUE, **dict(list(MEGABYTE.items())[:size])}
    [first] = states(projector, 1, labels={**some, "team": "a"})
    for number in range(2, 5):
        assert states(projector, number, labels={**some, "team": f"b{number}"}) == []
    [moved] = states(projector, 5, labels={**some, **dict.fromkeys(QUEUE, "other"), "team": "c"})
    assert (first.queue, moved.queue) == ("main", "other")
    if not size:
        assert moved.labels["team"] == "c"


def test_mark_of_a_copy_is_told_at_once(projector: Projector) -> None:
    states(projector, 1)
    [state] = states(projector, 2, labels={**QUEUE, ORIGIN: "hub"})
    assert state.labels[ORIGIN] == "hub"
    assert states(projector, 3, labels=QUEUE)[0].labels == QUEUE
