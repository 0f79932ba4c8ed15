"""Pods below a controller that waits as a whole: each that runs or ends has quota, also one too many."""

from typing import Any

import pytest

from services.classifier.projection.growth import pods_of, running_fields
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.integrations import JOB_SET
from tests.unit.classifier.projection.objects import Json, seen
from tests.unit.classifier.projection.test_chains_of_controllers import Cluster as Chain
from tests.unit.classifier.projection.test_chains_of_controllers import batch, middle
from tests.unit.classifier.projection.test_chains_of_controllers import workload as of_batch
from tests.unit.classifier.projection.test_nesting import (
    ENDED,
    LABELLED,
    SUSPENDED,
    child,
    job_set,
    workload,
)
from tests.unit.integrations.gadgets import gadget, loaded

ELSEWHERE = {"managedBy": "kueue.x-k8s.io/multikueue"}


OTHER = {
    "template": {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "900m"}}}]}
    }
}
"""A Job that its tenant names as one of the JobSet's, and asks for less than these do."""

NOTHING = {"template": {"spec": {"containers": [{"name": "c"}]}}}


def told(number: int, active: int, ending: int = 0, **more: Any) -> Json:
    """A Job of one pod whose status tells so many."""
    return child(number, labels={}, status={"active": active, "terminating": ending}, **more)


def seen_of_set(*observed: Json) -> WorkloadState:
    """The last state of the JobSet, once it and its Jobs were observed in this order."""
    projector = Projector("hub")
    projector.observe(seen(kinds.WORKLOAD, workload()))
    state = None
    for obj in observed:
        kind = JOB_SET.kind if "replicatedJobs" in obj["spec"] else kinds.JOB
        projector.observe(seen(kind, obj))
        for change in projector.changes():
            if change.state.owner is not None and change.state.owner.kind == "JobSet":
                state = change.state
    assert state is not None
    return state


RUNS: dict[str, tuple[list[Json], Json | None, bool]] = {
    "as many as were admitted": ([told(1, 1), told(2, 1)], None, False),
    "one is ending, and replaced": ([told(1, 1, 1), told(2, 1)], {"w": 3}, False),
    "as many are ending as run at once": ([told(1, 1, 2), told(2, 1)], {"w": 4}, False),
    "more are ending than run at once": ([told(1, 1, 3), told(2, 1)], {"w": 5}, True),
    "pods that ask for something else take the room of its own": (
        [told(1, 1), told(2, 1, 1, spec=OTHER)], {"w": 3}, False,
    ),
    "more pods that ask for something else count by what they ask for": (
        [told(1, 1), told(2, 1, 5, spec=OTHER)], {"w": 7}, True,
    ),
    "more pods that ask for nothing": ([told(1, 1), told(2, 1), told(3, 90, spec=NOTHING)], None, True),
    "more pods than its user could have run until it is stopped": (
        [told(1, 1), told(2, 1), told(3, 9_000)], {"w": 10}, True,
    ),
    "a Job that has failed still tells of pods that end": (
        [told(1, 1), child(2, labels={}, status={"terminating": 9, **ENDED})], {"w": 10}, False,
    ),
    "one of each Job is ending": ([told(1, 1, 1), told(2, 1, 1)], {"w": 4}, False),
    "the queue is named by the Jobs, too": (
        [told(1, 1, 7, metadata={"labels": LABELLED}), told(2, 1)], {"w": 9}, True,
    ),
    "another Job has ended, and gave its quota back": (
        [told(1, 1, 2), child(2, labels={}, status=ENDED), job_set(succeeded=1)], {"w": 3}, True,
    ),
    "they are gone": ([told(1, 1, 2), told(2, 1), told(1, 1)], None, False),
    "another cluster says so": ([told(1, 9, 99, spec=ELSEWHERE), told(2, 1)], None, False),
}  # fmt: skip
"""What is observed, the pods that hold quota, and whether the JobSet is stopped for them."""


@pytest.mark.parametrize(("observed", "pods", "stopped"), RUNS.values(), ids=RUNS)
def test_pods_that_run_below_a_job_beyond_its_own_hold_quota(
    observed: list[Json], pods: Json | None, stopped: bool
) -> None:
    state = seen_of_set(job_set(), *observed)
    assert (state.running_pods, state.outgrown is not None) == (pods, stopped)


STOPPED = job_set(suspend=True) | {"status": {}}
ENDING: dict[str, tuple[list[Json], Json | None]] = {
    "all are ending": ([told(1, 0, 5, spec=SUSPENDED)], {"w": 5}),
    "and some of them are gone": (
        [told(1, 0, 5, spec=SUSPENDED), told(1, 0, 1, spec=SUSPENDED)], {"w": 5},
    ),
    "and all of them are gone": (
        [told(1, 0, 5, spec=SUSPENDED), told(1, 0, spec=SUSPENDED)], None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("observed", "pods"), ENDING.values(), ids=ENDING)
def test_pods_below_a_job_that_was_stopped_hold_quota_until_the_last_is_gone(
    observed: list[Json], pods: Json | None
) -> None:
    state = seen_of_set(job_set(), told(1, 1, 4), STOPPED, *observed)
    assert (state.running_pods, state.pods_active, state.inadmissible) == (
        pods, pods is not None, None,
    )  # fmt: skip


def test_pods_two_levels_below_count_for_what_has_the_quota() -> None:
    cluster = Chain()
    cluster.see(batch(), of_batch(), middle(), told(1, 1), told(2, 1))
    assert cluster.states["batch"].running_pods is None
    cluster.see(told(1, 1, 3))
    assert cluster.states["batch"].running_pods == {"main": 5}
    assert cluster.states["batch"].outgrown is not None
    cluster.see(told(1, 1))
    assert cluster.states["batch"].running_pods is None
    assert cluster.states["batch"].outgrown is None


def test_what_pods_asked_for_that_are_gone_is_forgotten() -> None:
    cluster = Chain()
    cluster.see(batch(), of_batch(), middle(), told(1, 1))
    for count in range(9):
        template = {"spec": {"containers": [{"resources": {"requests": {"cpu": f"{count}m"}}}]}}
        cluster.see(told(1, 1, 1, spec={"template": template}))
    assert cluster.projector._nesting._pods.sums["u-set"] == {"cpu=8m": 2, "ending cpu=8m": 1}
    cluster.see(told(1, 1), deleted=True)
    assert "u-set" not in cluster.projector._nesting._pods.sums


@pytest.mark.parametrize(("subresource", "counts"), [(None, True), (False, False)])
def test_numbers_that_a_user_can_write_into_a_status_hold_no_quota(
    subresource: bool | None, counts: bool
) -> None:
    pod_set = {"template": "spec.template", "count": "spec.replicas", "running": "status.?active"}
    integration = loaded(podSets=[pod_set], statusSubresource=subresource)
    obj, asked = gadget(status={"active": 9}), [PodSet(name="main", count=2, requests={"cpu": "1"})]
    fields = running_fields(obj, integration, None, [], asked, None, held=False)
    assert fields == ({"running_pods": {"main": 9}} if counts else {})
    assert pods_of(obj, integration, asked) == ({"cpu=1": 9} if counts else {})
