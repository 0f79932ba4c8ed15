"""A job that is gone, and has pods still, is counted beside the next one of its name."""

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from tests.unit.classifier.projection.objects import Json, job, seen
from tests.unit.classifier.projection.test_let_out import Cluster, let_out, stopped
from tests.unit.classifier.projection.test_nesting import LABELLED, child, job_set, workload
from tests.unit.classifier.projection.test_prebuilt import NAMED, states
from tests.unit.classifier.projection.test_prebuilt import workload as prebuilt

NEXT: Json = {"uid": "u-next", "creationTimestamp": "2026-01-01T00:00:30Z"}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.see(job_set(), workload())
    return made


def departs(cluster: Cluster, obj: Json, *, deleted: bool = False) -> None:
    apart = seen(kinds.JOB, obj, deleted=True).apart()
    assert apart is not None
    apart = Observed.decode((apart.ended() if deleted else apart).encode())
    cluster.projector.observe(apart)
    cluster.publish()


def again(labels: Json) -> Json:
    made = child(1, labels=labels)
    made["metadata"] |= NEXT
    return made


def test_controller_whose_jobs_were_made_again_too_early_is_stopped(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}), child(2, labels={}))
    departs(cluster, child(1, labels={}))
    assert cluster.owner.outgrown is None
    cluster.see(again({}))
    assert cluster.owner.outgrown == {"w": 3}
    departs(cluster, child(1, labels={}), deleted=True)
    assert cluster.owner.outgrown is None


def test_next_job_that_names_a_queue_waits_by_itself(cluster: Cluster) -> None:
    cluster.see(child(1), child(2))
    departs(cluster, child(1))
    cluster.see(again(LABELLED))
    assert cluster.leaver is not None
    assert (cluster.leaver.uid, cluster.leaver.phase) == ("u-next", "running")
    assert cluster.owner.outgrown is None


def test_stopped_controller_keeps_its_quota_until_what_departs_has_ended(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}))
    departs(cluster, child(1, labels={}))
    cluster.see(
        stopped(), again({}) | {"spec": {**again({})["spec"], "suspend": True}, "status": {}}
    )
    assert cluster.owner.pods_active
    departs(cluster, child(1, labels={}), deleted=True)
    assert not cluster.owner.pods_active


def test_workload_of_what_departs_stays_until_it_has_ended(cluster: Cluster) -> None:
    """It was let out before, and has quota of its own, or is to be stopped."""
    cluster.see(child(1, labels={}), let_out())
    departs(cluster, let_out())
    cluster.see(again({}))
    assert cluster.leaver is not None
    assert (cluster.leaver.uid, cluster.leaver.phase) == ("u-1", "running")
    departs(cluster, let_out(), deleted=True)
    assert cluster.leaver.phase == "gone"


def test_tombstone_of_the_name_ends_nothing_that_departs(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}), let_out(), stopped())
    departs(cluster, let_out())
    cluster.see(let_out(), deleted=True)
    assert cluster.owner.pods_active
    assert cluster.leaver is not None
    assert cluster.leaver.phase == "running"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"group": "batch", "plural": "jobs"},
        {"group": "batch", "plural": "jobs", "object": {"metadata": {"uid": "u-1"}}},
        {"group": "batch", "plural": "jobs", "object": {"metadata": {"uid": "other", "name": "x"}}},
        {"group": "batch", "plural": "nothing", "object": child(1)},
        {"group": [], "plural": "jobs", "object": child(1)},
    ],
)
def test_departure_whose_object_is_no_job_publishes_nothing(spec: Json) -> None:
    apart = seen(kinds.JOB, child(1), deleted=True).apart()
    assert apart is not None
    assert apart.object is not None
    projector = Projector("hub")
    projector.observe(apart.with_object({**apart.object, "spec": spec}))
    assert [*projector.changes()] == []


def test_deletion_without_an_object_has_no_departure() -> None:
    unknown = seen(kinds.JOB, child(1), deleted=True).model_copy(update={"object": None})
    assert unknown.apart() is None


def test_departing_job_that_loses_its_workload_ends_under_its_own_name() -> None:
    """Nothing but its workload tells which job departs under which name: there may be several."""
    projector = Projector("hub")
    first = job(uid="u-1", labels=NAMED, spec={"suspend": False}, status={"active": 1})
    after = job(uid="u-2", labels=NAMED)
    apart = seen(kinds.JOB, first, deleted=True).apart()
    assert apart is not None
    states(projector, seen(kinds.WORKLOAD, prebuilt()), seen(kinds.JOB, first))
    states(projector, apart, seen(kinds.JOB, after))
    told = states(projector, seen(kinds.WORKLOAD, prebuilt(owner="another")))
    named = [(state.name, state.uid, state.phase) for state in told if state.uid == "u-1"]
    assert [phase for _, _, phase in named] == ["running", "gone"]
    assert named[1][0] == "plan"
    [gone] = states(projector, apart.ended())
    assert (gone.name, gone.phase) == (named[0][0], "gone")
