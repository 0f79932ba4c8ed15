"""Which running jobs ask for more pods than they were admitted with."""

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from tests.unit.classifier.projection.objects import Json, job, seen, with_quota


def projected(*observations: Observed) -> WorkloadState:
    projector = Projector("hub")
    for observation in observations:
        projector.observe(observation)
    [change] = projector.changes()
    return change.state


@pytest.mark.parametrize(
    ("spec", "outgrown"),
    [
        ({"suspend": False, "parallelism": 5, "completions": 9}, {"main": 5}),
        ({"suspend": False, "parallelism": 9, "completions": 3}, None),
        ({"suspend": False, "parallelism": 3}, None),
        ({"suspend": False, "parallelism": 1}, None),
        ({"suspend": True, "parallelism": 5}, None),
    ],
    ids=[
        "more pods at a time than were admitted",
        "no more than there are completions left",
        "as many as were admitted",
        "fewer",
        "more, but it is told to wait",
    ],
)
def test_running_job_with_more_pods_is_outgrown(spec: Json, outgrown: Json | None) -> None:
    state = projected(
        seen(kinds.WORKLOAD, with_quota("train", "u-1", 3)),
        seen(kinds.JOB, job(spec=spec, status={"active": 3})),
    )
    assert state.outgrown == outgrown


@pytest.mark.parametrize(
    ("parallelism", "least", "outgrown"),
    [(3, None, None), (4, None, {"main": 4}), (3, 1, {"main": 3})],
    ids=["as many as before", "more than before", "with partial admission"],
)
def test_job_admitted_for_the_rest_of_its_pods_keeps_its_parallelism(
    parallelism: int, least: int | None, outgrown: Json | None
) -> None:
    """One of three has finished when it starts again."""
    body = with_quota("train", "u-1", 3)
    body["status"]["admission"]["podSetAssignments"][0]["count"] = 2
    if least is not None:
        body["spec"]["podSets"][0]["minCount"] = least
    spec = {"suspend": False, "parallelism": parallelism, "completions": 4}
    state = projected(
        seen(kinds.WORKLOAD, body),
        seen(kinds.JOB, job(spec=spec, status={"active": 2, "succeeded": 1})),
    )
    assert state.outgrown == outgrown
