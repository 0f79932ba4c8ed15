"""Jobs below a controller that belongs to the workload of another one: a Job of a JobSet of a Batch."""

from typing import Any

import pytest

from services.classifier.projection.policy import Policy
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import QUEUE, workload_name
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import JOB_SET
from shared.settings.configuration import Configuration
from tests.unit.classifier.projection.objects import Json, job, seen
from tests.unit.classifier.projection.test_nesting import (
    ENDED,
    LABELLED,
    RESERVED,
    SUSPENDED,
    child,
    job_set,
)

BATCH = Kind(group="example.com", version="v1", plural="batches", kind="Batch")
DOCUMENT: Json = {
    "apiVersion": "sluicegate.dev/v1alpha1",
    "kind": "Integration",
    "metadata": {
        "name": "batches",
        "uid": "u-i",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "kind": {
            "group": BATCH.group,
            "version": BATCH.version,
            "kind": BATCH.kind,
            "plural": BATCH.plural,
        },
        "podSets": [{"count": "spec.pods", "requests": {"cpu": '"1"'}}],
        "children": [{"group": JOB_SET.kind.group, "kind": JOB_SET.kind.kind}],
    },
}


def batch(*, suspend: bool = False, pods: int = 2, **status: Any) -> Json:
    """What has quota: its JobSet asks for as much as it does."""
    metadata = job("batch", uid="u-batch")["metadata"]
    return {
        "metadata": metadata,
        "spec": {"suspend": suspend, "pods": pods},
        "status": {"started": True, **status},
    }


def middle(*, uid: str = "u-batch", labels: Json | None = None, **parts: Any) -> Json:
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Batch",
        "name": "batch",
        "uid": uid,
        "controller": True,
    }
    made = job_set(**parts)
    made["metadata"] |= {"ownerReferences": [owner], "labels": labels or {}}
    return made


def workload() -> Json:
    name = workload_name(kind="Batch", group=BATCH.group, name="batch", uid="u-batch")
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Batch",
        "name": "batch",
        "uid": "u-batch",
        "controller": True,
    }
    given = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 2}]}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": "w-1",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {"active": True, "queueName": "main", "podSets": [{"name": "main", "count": 2}]},
        "status": {"conditions": RESERVED, "admission": given},
    }


class Cluster:
    """A projector, and the last state of each job that has a workload of its own."""

    def __init__(self, **configuration: Any) -> None:
        self.projector = Projector("hub", Policy.of(Configuration(**configuration)))
        self.states: dict[str, WorkloadState] = {}
        self.see(DOCUMENT)

    def see(self, *objects: Json, deleted: bool = False) -> None:
        for obj in objects:
            self.projector.observe(seen(kind_of(obj), obj, deleted=deleted))
            for change in self.projector.changes():
                if change.state.owner is not None:
                    self.states[change.state.owner.name] = change.state

    @property
    def alone(self) -> set[str]:
        """Names of the jobs that have a workload, beside the Batch."""
        return {name for name, state in self.states.items() if state.phase != "gone"} - {"batch"}


def kind_of(obj: Json) -> Kind:
    spec = obj["spec"]
    if obj is DOCUMENT:
        return kinds.INTEGRATION
    if "replicatedJobs" in spec:
        return JOB_SET.kind
    if "podSets" in spec:
        return kinds.WORKLOAD
    return BATCH if "pods" in spec else kinds.JOB


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.see(batch(), workload(), middle())
    return made


CASES: dict[str, tuple[list[Json], set[str]]] = {
    "its own Jobs": ([child(1), child(2)], set()),
    "one more than the JobSet asks for": ([child(1), child(2), child(3)], {"set-w-3"}),
    "one with more pods": ([child(1), child(2, pods=9)], {"set-w-2"}),
    "one that waits with it": ([child(1), child(2, active=0, spec=SUSPENDED)], set()),
    "one in the place of a finished one": (
        [child(1), child(2, status=ENDED), child(3)],
        set(),
    ),
}


@pytest.mark.parametrize(("jobs", "alone"), CASES.values(), ids=CASES.keys())
def test_jobs_run_on_quota_two_levels_above_as_far_as_their_controller_asks(
    cluster: Cluster, jobs: list[Json], alone: set[str]
) -> None:
    cluster.see(*jobs)
    assert cluster.alone == alone


@pytest.mark.parametrize("labels", [{}, LABELLED], ids=["without queue", "labelled"])
def test_what_is_in_between_has_no_workload_whatever_is_seen_first(labels: Json) -> None:
    cluster = Cluster()
    waiting = child(1, active=0, spec=SUSPENDED)
    cluster.see(waiting, middle(labels=labels, suspend=True), batch(suspend=True))
    cluster.see(workload(), batch(), middle(labels=labels), child(1), child(2))
    assert cluster.alone == set()


def test_jobs_in_between_are_managed_by_their_controller_where_all_jobs_are() -> None:
    cluster = Cluster(manageJobsWithoutQueueName=True)
    cluster.see(batch(), workload(), middle())
    cluster.see(child(1, labels={}), child(2, labels={}))
    assert cluster.alone == set()


NOT_COVERED: dict[str, list[Json]] = {
    "the Batch never existed": [middle()],
    "the Batch has another uid": [batch(), workload(), middle(uid="u-else")],
    "the Batch waits": [batch(suspend=True), middle()],
    "the Batch has no queue": [batch() | {"metadata": {**batch()["metadata"], "labels": {}}}],
}


@pytest.mark.parametrize("before", NOT_COVERED.values(), ids=NOT_COVERED.keys())
def test_job_that_runs_below_what_is_not_admitted_is_one_of_its_own(before: list[Json]) -> None:
    cluster = Cluster()
    cluster.see(*before, child(1))
    assert "set-w-1" in cluster.alone


def test_quota_that_goes_leaves_no_job_uncounted(cluster: Cluster) -> None:
    cluster.see(child(1), child(2))
    assert cluster.alone == set()
    cluster.see(batch(), deleted=True)
    assert cluster.alone >= {"set-w-1", "set-w-2"}


def test_batch_has_outgrown_its_admission_if_a_job_far_below_it_has(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}), child(2, labels={}))
    assert cluster.states["batch"].outgrown is None
    cluster.see(child(1, labels={}, pods=5))
    assert cluster.states["batch"].outgrown == {"main": 6}
    assert cluster.alone == set()
    cluster.see(child(1, labels={}))
    assert cluster.states["batch"].outgrown is None


def test_stopped_batch_uses_its_quota_while_a_job_far_below_it_ends(cluster: Cluster) -> None:
    cluster.see(child(1))
    cluster.see(batch(suspend=True) | {"status": {}})
    stopped = middle(suspend=True) | {"status": {}}
    cluster.see(stopped, child(1, spec=SUSPENDED))
    assert cluster.states["batch"].pods_active
    cluster.see(child(1, active=0, spec=SUSPENDED))
    assert not cluster.states["batch"].pods_active


def test_jobs_that_name_each_other_as_controllers_come_to_rest() -> None:
    cluster = Cluster()
    first, second = middle(uid="u-second"), middle(uid="u-first")
    for made, name in ((first, "first"), (second, "second")):
        made["metadata"] |= {"name": name, "uid": f"u-{name}", "labels": {QUEUE: "main"}}
        other = {"first": "second", "second": "first"}[name]
        made["metadata"]["ownerReferences"][0] |= {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": other,
        }
    cluster.see(first, second, first, second)
    assert cluster.alone == {"first", "second"}


def test_batch_ends_whatever_was_seen_first_of_what_is_below_it() -> None:
    """A classifier that begins anew may read what is in the middle before what is above."""
    cluster = Cluster()
    for obj in (workload(), middle(labels=LABELLED), child(1, labels={})):
        cluster.projector.observe(seen(kind_of(obj), obj))
    cluster.see(batch())
    assert cluster.alone == set()
    completed = {"conditions": [{"type": "Completed", "status": "True"}]}
    cluster.see(middle(labels=LABELLED) | {"status": completed}, child(1, labels={}, status=ENDED))
    cluster.see(batch(conditions=ENDED["conditions"]))
    assert cluster.states["batch"].phase == "finished"


CREW = Kind(group="example.com", version="v1", plural="crews", kind="Crew")
CREWS: Json = {
    **DOCUMENT,
    "metadata": {**DOCUMENT["metadata"], "name": "crews", "uid": "u-crews"},
    "spec": {
        "kind": {"group": CREW.group, "version": "v1", "kind": "Crew", "plural": "crews"},
        "podsOutliveStatus": True,
        "podSets": [
            {
                "forEach": "spec.groups",
                "nameFrom": "key",
                "count": "item",
                "requests": {"cpu": '"1"'},
            }
        ],
    },
}


@pytest.mark.parametrize(
    ("groups", "pods"), [({"a": 3}, 3), ({"b": 3}, 6), ({"a": 1}, 3), ({}, 3)], ids=str
)
def test_pods_that_their_user_takes_out_of_a_job_below_count_still(groups: Json, pods: int) -> None:
    """Its operator may leave them: its status counts none."""
    made = [{"group": CREW.group, "kind": "Crew"}]
    makes = {**DOCUMENT, "spec": {**DOCUMENT["spec"], "children": made}}
    projector = Projector("hub")
    for document in (makes, CREWS):
        projector.observe(seen(kinds.INTEGRATION, document))
    for kind, obj in ((kinds.WORKLOAD, workload()), (BATCH, batch())):
        projector.observe(seen(kind, obj))
    state = None
    for version, now in enumerate(({"a": 3}, groups)):
        crew = middle()
        crew["metadata"] |= {"uid": "u-crew", "resourceVersion": str(version)}
        crew |= {"spec": {"suspend": False, "groups": now}, "status": {"started": True}}
        projector.observe(seen(CREW, crew))
        [*_, state] = [state, *(change.state for change in projector.changes())]
        assert state is not None
        assert state.outgrown == {"main": pods if version else 3}
