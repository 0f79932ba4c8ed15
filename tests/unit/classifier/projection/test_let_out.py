"""A job that its tenant lets out of its controller: it waits by itself, and is stopped until it has quota."""

from typing import Any

import pytest

from services.classifier.projection.owners.origins import Origins
from services.classifier.projection.policy import Policy
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.names import PREBUILT_WORKLOAD, workload_name
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import ObjectRef
from shared.integrations import JOB_SET
from shared.settings.configuration import Configuration
from tests.unit.classifier.projection.objects import Json, job, seen
from tests.unit.classifier.projection.test_nesting import (
    ENDED,
    LABELLED,
    SUSPENDED,
    child,
    job_set,
    workload,
)

NAME = workload_name(kind="Job", group="batch", name="set-w-1", uid="u-1")
COMPLETED: Json = {"conditions": [{"type": "Completed", "status": "True"}]}


class Cluster:
    """A projector with an admitted JobSet of two Jobs, and the last state of each workload."""

    def __init__(self, **configuration: Any) -> None:
        self.projector = Projector("hub", Policy.of(Configuration(**configuration)))
        self.states: dict[str, WorkloadState] = {}
        """By name of the job."""

    def see(self, *objects: Json, deleted: bool = False) -> None:
        for obj in objects:
            spec = obj["spec"]
            kind = JOB_SET.kind if "replicatedJobs" in spec else kinds.JOB
            kind = kinds.WORKLOAD if "podSets" in spec else kind
            self.projector.observe(seen(kind, obj, deleted=deleted))
            self.publish()

    def publish(self) -> None:
        for change in self.projector.changes():
            assert change.state.owner is not None
            self.states[change.state.owner.name] = change.state

    @property
    def owner(self) -> WorkloadState:
        return self.states["set"]

    @property
    def leaver(self) -> WorkloadState | None:
        return self.states.get("set-w-1")


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.see(job_set(), workload())
    return made


def reference(**changes: Any) -> Json:
    made: Json = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "set",
        "uid": "u-set",
        "controller": True,
    }
    return made | changes


def stopped() -> Json:
    return job_set(suspend=True) | {"status": {}}


def let_out(*references: Json, labels: Json | None = None, **more: Any) -> Json:
    metadata = {"ownerReferences": list(references), **more.pop("metadata", {})}
    return child(1, labels=labels or {}, metadata=metadata, **more)


def named(name: str, uid: str, labels: Json = LABELLED) -> Json:
    made = job_set()
    made["metadata"] |= {"name": name, "uid": uid, "labels": labels}
    return made


WAYS: dict[str, list[Json]] = {
    "the reference is removed": [],
    "it controls no more": [reference(controller=False)],
    "another admitted JobSet": [reference(name="other", uid="u-other")],
    "a JobSet without queue": [reference(name="free", uid="u-free")],
    "a JobSet that never existed": [reference(uid="u-none")],
    "another name of that uid": [reference(name="else")],
    "another kind of that uid": [reference(apiVersion="batch/v1", kind="Job")],
}


@pytest.mark.parametrize("labels", [LABELLED, {}], ids=["labelled", "without queue"])
@pytest.mark.parametrize("references", WAYS.values(), ids=WAYS)
def test_job_that_is_let_out_has_a_workload_of_its_own(
    cluster: Cluster, references: list[Json], labels: Json
) -> None:
    cluster.see(named("other", "u-other"), named("free", "u-free", labels={}))
    cluster.see(child(1, labels=labels), child(2, labels=labels))
    assert cluster.leaver is None
    cluster.see(let_out(*references, labels=labels))
    state = cluster.leaver
    assert state is not None
    assert (state.name, state.queue) == (NAME, "main")
    assert (state.phase, state.held, state.pods_active) == ("running", False, True)
    assert "set-w-2" not in cluster.states


@pytest.mark.parametrize("references", WAYS.values(), ids=WAYS)
def test_owner_keeps_its_quota_until_what_left_it_has_stopped(
    cluster: Cluster, references: list[Json]
) -> None:
    cluster.see(child(1, labels={}), let_out(*references), stopped())
    assert (cluster.owner.phase, cluster.owner.pods_active) == ("running", True)
    cluster.see(let_out(*references, active=1, spec=SUSPENDED))
    assert cluster.owner.pods_active
    cluster.see(let_out(*references, active=0, spec=SUSPENDED))
    assert (cluster.owner.phase, cluster.owner.pods_active) == ("waiting", False)
    # It runs again, on quota of its own.
    cluster.see(let_out(*references))
    assert not cluster.owner.pods_active


def test_owner_keeps_its_quota_until_what_left_it_is_gone(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}), let_out(), stopped())
    cluster.see(let_out(), deleted=True)
    assert not cluster.owner.pods_active
    assert cluster.leaver is not None
    assert cluster.leaver.phase == "gone"


NEXT: dict[str, Json] = {
    "below the owner": child(1, labels={}, spec=SUSPENDED, status={}, metadata={"uid": "u-2"}),
    "of nobody": job("set-w-1", uid="u-2"),
    "gone": job("set-w-1", uid="u-2", metadata={"resourceVersion": "9"}),
}


@pytest.mark.parametrize(("way", "after"), NEXT.items(), ids=NEXT)
def test_owner_does_not_keep_its_quota_for_what_left_it_before_the_next_of_the_name(
    cluster: Cluster, way: str, after: Json
) -> None:
    """The log has the last message of a name only: a tombstone may be read by nobody."""
    cluster.see(child(1, labels={}), let_out(), stopped())
    assert cluster.owner.pods_active
    cluster.see(after, deleted=way == "gone")
    assert not cluster.owner.pods_active


def test_job_without_quota_whose_owner_is_gone_before_it_is_let_out_waits_too(
    cluster: Cluster,
) -> None:
    """`--cascade=orphan`: the end of the owner may be observed first."""
    cluster.see(child(1, labels={}))
    cluster.see(job_set(), deleted=True)
    assert cluster.leaver is None
    cluster.see(let_out())
    assert cluster.leaver is not None
    assert (cluster.leaver.phase, cluster.leaver.queue) == ("running", "main")


def test_job_of_a_waiting_owner_waits_by_itself_once_it_is_let_out() -> None:
    cluster = Cluster()
    cluster.see(stopped(), child(1, labels={}, active=0, spec=SUSPENDED))
    cluster.see(let_out(active=0, spec=SUSPENDED))
    assert cluster.leaver is not None
    assert (cluster.leaver.phase, cluster.leaver.held) == ("waiting", True)


def test_what_was_let_out_stays_so_over_a_restart(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}), let_out())
    after = Cluster()
    for state in cluster.states.values():
        after.projector.restore(state)
    after.see(job_set(), workload(), let_out(active=2))
    assert after.leaver is None or after.leaver.phase == "running"
    after.projector.on_synced()
    assert "gone" not in {change.state.phase for change in after.projector.changes()}


def test_job_that_leaves_an_owner_without_queue_has_no_workload() -> None:
    cluster = Cluster()
    cluster.see(named("set", "u-set", labels={}), child(1, labels={}), let_out())
    assert cluster.states == {}


def test_job_that_is_let_out_waits_where_all_jobs_are_managed() -> None:
    cluster = Cluster(manageJobsWithoutQueueName=True)
    cluster.see(job_set(), workload(), child(1, labels={}), let_out())
    assert cluster.leaver is not None


def test_job_that_has_ended_may_be_let_out(cluster: Cluster) -> None:
    cluster.see(child(1, labels={}), child(1, labels={}, status=ENDED), let_out(status=ENDED))
    assert cluster.leaver is None


@pytest.mark.parametrize("exists", [False, True])
def test_job_that_is_let_out_has_its_own_name_whatever_workload_it_names(
    cluster: Cluster, exists: bool
) -> None:
    """Who deletes and creates the Workload that it names would have it decided under two names."""
    cluster.see(child(1, labels={}))
    mine = job("set-w-1")["spec"]["template"]
    theirs = {
        "metadata": {**workload()["metadata"], "name": "mine", "ownerReferences": []},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": mine}]},
        "status": {},
    }
    label = LABELLED | {PREBUILT_WORKLOAD: "mine"}
    names = []
    for step in range(4):
        if exists:
            cluster.projector.observe(seen(kinds.WORKLOAD, theirs, deleted=step % 2 == 1))
        cluster.projector.observe(seen(kinds.JOB, let_out(labels=label, active=1 + step % 2)))
        states = [change.state for change in cluster.projector.changes()]
        names += [one.name for one in states if one.uid == "u-1" and one.phase != "gone"]
        waits = [one.inadmissible or "" for one in states if one.uid == "u-1"]
        assert all("was let out of its controller" in text for text in waits)
    assert set(names) == {NAME}


def test_owner_that_has_ended_keeps_its_quota_until_its_jobs_have(cluster: Cluster) -> None:
    """A JobSet that is complete deletes its other Jobs, whose tenant sets how long their pods end."""
    cluster.see(child(1, labels={}), child(2, labels={}))
    cluster.see(job_set() | {"status": COMPLETED})
    assert (cluster.owner.phase, cluster.owner.finish) == ("running", None)
    cluster.see(child(1, labels={}, status=ENDED))
    assert cluster.owner.finish is None
    cluster.see(child(2, labels={}), deleted=True)
    assert cluster.owner.finish is not None
    # What is made below it later gives it no life.
    cluster.see(child(3, labels={}))
    assert cluster.owner.finish is not None


def test_job_beyond_what_an_owner_has_that_has_ended_waits_by_itself(cluster: Cluster) -> None:
    """One without a queue is deleted by the JobSet's controller, as all that run then."""
    cluster.see(child(1), child(2), job_set() | {"status": COMPLETED})
    cluster.see(child(3))
    assert set(cluster.states) == {"set", "set-w-3"}
    assert cluster.owner.phase == "running"


def test_owner_that_keeps_nothing_is_forgotten() -> None:
    origins = Origins()
    job_ref = ObjectRef("hub", "jobs_batch", "team-a", "set-w-1")
    origins.manage("u-set", "main")
    origins.observe(job_ref, as_body(child(1)))
    assert origins.queue_left(as_body(let_out())) == "main"
    origins.end("u-set")
    assert origins.left(as_body(let_out())) == "u-set"
    origins.forget_ended(job_ref, seen(kinds.JOB, job(uid="u-another"), deleted=True))
    assert origins.left(as_body(let_out())) == "u-set"
    origins.forget_ended(job_ref, seen(kinds.JOB, child(1), deleted=True))
    assert origins.left(as_body(let_out())) == ""
    origins.observe(job_ref, as_body(child(1)))
    assert origins.left(as_body(let_out())) == ""


def test_job_two_levels_below_a_managed_one_is_let_out_of_that() -> None:
    origins = Origins()
    origins.manage("u-train", "main")
    middle = job_set()
    middle["metadata"]["ownerReferences"] = [reference(kind="TrainJob", uid="u-train")]
    origins.observe(ObjectRef("hub", "jobsets", "team-a", "set"), as_body(middle))
    origins.observe(ObjectRef("hub", "jobs_batch", "team-a", "set-w-1"), as_body(child(1)))
    assert (origins.left(as_body(child(1))), origins.left(as_body(let_out()))) == ("", "u-train")
