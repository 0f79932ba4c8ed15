"""Jobs below a controller: they run on its quota as far as that goes, whoever created them."""

from typing import Any

import pytest
from typing_extensions import override

from services.classifier.projection.nesting import Nesting
from services.classifier.projection.policy import Policy
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import MIN_PARALLELISM, QUEUE, workload_name
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.refs import ObjectRef
from shared.integrations import JOB_SET, Integration, Integrations
from shared.settings.configuration import Configuration
from tests.unit.classifier.projection.objects import Json, job, seen
from tests.unit.integrations.gadgets import gadget, loaded

RESERVED = [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}]
LABELLED = {QUEUE: "main"}


def job_set(*, suspend: bool = False, replicas: int = 2, succeeded: int = 0) -> Json:
    """A JobSet of Jobs that each ask for one CPU."""
    template = {"spec": {"template": job()["spec"]["template"]}}
    return {
        "metadata": {**job("set", uid="u-set")["metadata"]},
        "spec": {
            "suspend": suspend,
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": template}],
        },
        "status": {"replicatedJobsStatus": [{"name": "w", "active": 1, "succeeded": succeeded}]},
    }


def child(
    number: int, *, labels: Json = LABELLED, pods: int = 1, active: int = 1, **more: Any
) -> Json:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "set",
        "uid": "u-set",
        "controller": True,
    }
    metadata = {
        "ownerReferences": [owner],
        "creationTimestamp": f"2026-01-01T00:00:{number:02}Z",
        **more.pop("metadata", {}),
    }
    spec = {"suspend": False, "parallelism": pods, **more.pop("spec", {})}
    status = more.pop("status", {"active": active})
    return job(
        f"set-w-{number}",
        uid=f"u-{number}",
        labels=labels,
        metadata=metadata,
        spec=spec,
        status=status,
    )


def workload(*, count: int = 2) -> Json:
    name = workload_name(kind="JobSet", group=JOB_SET.kind.group, name="set", uid="u-set")
    owner = {
        "apiVersion": "x/v1",
        "kind": "JobSet",
        "name": "set",
        "uid": "u-set",
        "controller": True,
    }
    given = {"clusterQueue": "q", "podSetAssignments": [{"name": "w", "count": count}]}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": "w-1",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {"active": True, "queueName": "main", "podSets": [{"name": "w", "count": 2}]},
        "status": {"conditions": RESERVED, "admission": given},
    }


class Cluster:
    """A projector, and the Jobs that have a workload of their own."""

    def __init__(self, **configuration: Any) -> None:
        self.projector = Projector("hub", Policy.of(Configuration(**configuration)))
        self.alone: set[str] = set()
        self.owner: WorkloadState | None = None
        """The last state of the JobSet."""

    def see(self, *jobs: Json) -> None:
        for one in jobs:
            self.projector.observe(seen(kinds.JOB, one))
            self.publish()

    def publish(self) -> None:
        for change in self.projector.changes():
            owner = change.state.owner
            if owner is not None and owner.kind == "JobSet":
                self.owner = change.state
            if owner is not None and owner.kind == "Job" and change.state.phase != "gone":
                self.alone.add(owner.name)


@pytest.fixture
def cluster() -> Cluster:
    return admitted(Cluster())


def admitted(cluster: Cluster, **of_set: Any) -> Cluster:
    cluster.projector.observe(seen(JOB_SET.kind, job_set(**of_set)))
    cluster.projector.observe(seen(kinds.WORKLOAD, workload()))
    cluster.publish()
    return cluster


SUSPENDED = {"suspend": True}
CASES: dict[str, tuple[list[Json], set[str]]] = {
    "its own Jobs": ([child(1), child(2)], set()),
    "one more": ([child(1), child(2), child(3)], {"set-w-3"}),
    "one with more pods": ([child(1), child(2, pods=9)], {"set-w-2"}),
    "one that grows": ([child(1), child(2), child(2, pods=2)], {"set-w-2"}),
    "one that asks for something else": (
        [
            child(
                1,
                spec={
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "c", "resources": {"requests": {"memory": "1Gi"}}}
                            ]
                        }
                    }
                },
            )
        ],
        {"set-w-1"},
    ),
    "many that ask for nothing": (
        [
            child(n, spec={"template": {"spec": {"containers": [{"name": "c"}]}}})
            for n in range(1, 4)
        ],
        {"set-w-3"},
    ),
    "one more that is about to run": ([child(1), child(2), child(3, active=0)], {"set-w-3"}),
    "one more that waits with it": (
        [child(1), child(2), child(3, active=0, spec=SUSPENDED)],
        set(),
    ),
    "one more that still ends": ([child(1), child(2), child(3, spec=SUSPENDED)], {"set-w-3"}),
    "one in the place of a finished one": (
        [
            child(1),
            child(2, status={"conditions": [{"type": "Complete", "status": "True"}]}),
            child(3),
        ],
        set(),
    ),
    "one that came before those without label": (
        [child(9), child(1, labels={}), child(2, labels={})],
        {"set-w-9"},
    ),
}


@pytest.mark.parametrize(("jobs", "alone"), CASES.values(), ids=CASES.keys())
def test_what_an_owner_has_no_quota_for_has_a_workload_of_its_own(
    cluster: Cluster, jobs: list[Json], alone: set[str]
) -> None:
    cluster.see(*jobs)
    assert cluster.alone == alone


def test_pods_that_an_owner_gave_back_are_no_room_for_others(cluster: Cluster) -> None:
    """Its second Job has ended and another one took its place, before the owner says so."""
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    cluster.see(child(1), child(2, status=ended), child(3))
    assert cluster.alone == set()
    cluster.projector.observe(seen(JOB_SET.kind, job_set(succeeded=1)))
    cluster.publish()
    assert cluster.alone == {"set-w-3"}


def test_owner_has_only_the_pods_that_were_admitted() -> None:
    cluster = Cluster()
    cluster.projector.observe(seen(JOB_SET.kind, job_set()))
    cluster.projector.observe(seen(kinds.WORKLOAD, workload(count=1)))
    cluster.publish()
    cluster.see(child(1), child(2))
    assert cluster.alone == {"set-w-2"}


def test_job_that_ended_makes_room(cluster: Cluster) -> None:
    cluster.see(child(1), child(2))
    cluster.projector.observe(seen(kinds.JOB, child(2), deleted=True))
    cluster.see(child(4))
    assert cluster.alone == set()


@pytest.mark.parametrize("extra", [1, 9])
def test_start_does_not_depend_on_what_is_listed_first(extra: int) -> None:
    """Those with a workload keep it; the others are the owner's."""
    before = admitted(Cluster())
    before.see(child(1), child(2), child(extra + 2))
    after = Cluster()
    for state in list(before.projector._published.values()):
        after.projector.restore(state)
    for one in (child(extra + 2), child(1), child(2)):
        after.projector.observe(seen(kinds.JOB, one))
    admitted(after)
    assert after.alone <= before.alone


def test_job_without_queue_runs_below_an_owner_only_on_its_quota_where_all_jobs_are_managed() -> (
    None
):
    cluster = admitted(Cluster(manageJobsWithoutQueueName=True))
    cluster.see(*(child(number, labels={}) for number in range(1, 4)))
    assert cluster.alone == {"set-w-3"}


def owned_by_job() -> list[Json]:
    return [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-set", "controller": True}
    ]


ENDED = {"conditions": [{"type": "Complete", "status": "True"}]}
UNLABELLED: dict[str, tuple[list[Json], dict[str, int] | None]] = {
    "its own": ([child(1, labels={}), child(2, labels={})], None),
    "one more": ([child(number, labels={}) for number in (1, 2, 3)], {"w": 3}),
    "one that grows": ([child(1, labels={}), child(1, labels={}, pods=5)], {"w": 5}),
    "one that grows and shrinks": (
        [child(1, labels={}, pods=5), child(1, labels={}, pods=2)],
        None,
    ),
    "one that cannot be read": (
        [child(1, labels={}, metadata={"annotations": {MIN_PARALLELISM: "many"}})],
        {"w": 3},
    ),
    "one of which the status cannot be read": (
        [child(1, labels={}, status={"succeeded": "many"})],
        None,
    ),
    "one in the place of a finished one": (
        [child(1, labels={}), child(2, labels={}, status=ENDED), child(3, labels={})],
        None,
    ),
    "one that is not the JobSet's kind of child": (
        [child(n, labels={}, metadata={"ownerReferences": owned_by_job()}) for n in (1, 2, 3)],
        None,
    ),
}


@pytest.mark.parametrize(("jobs", "outgrown"), UNLABELLED.values(), ids=UNLABELLED.keys())
def test_owner_has_outgrown_its_admission_if_children_without_queue_have(
    cluster: Cluster, jobs: list[Json], outgrown: dict[str, int] | None
) -> None:
    cluster.see(*jobs)
    assert cluster.owner is not None
    assert cluster.owner.outgrown == outgrown
    assert cluster.alone == set()


def test_owner_that_was_stopped_for_its_children_waits_until_they_are_as_it_asks(
    cluster: Cluster,
) -> None:
    cluster.see(child(1, labels={}, pods=5))
    cluster.projector.observe(seen(JOB_SET.kind, job_set(suspend=True)))
    held = child(1, labels={}, pods=5, active=0, spec={"suspend": True, "parallelism": 5})
    cluster.see(held)
    assert cluster.owner is not None
    assert "by 3 pods" in (cluster.owner.inadmissible or "")
    cluster.projector.observe(seen(kinds.JOB, held, deleted=True))
    cluster.publish()
    assert cluster.owner.inadmissible is None


def asked(name: str, count: int, cpu: str = "1") -> PodSet:
    return PodSet(name=name, count=count, requests={"cpu": cpu})


GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")
OUTLIVED = loaded(podsOutliveStatus=True)
RUNS, WAITS = (as_body(gadget(suspend=suspend)) for suspend in (False, True))
SINCE_IT_RAN: dict[str, tuple[list[PodSet], list[PodSet]]] = {
    "the same": ([asked("w", 2)], [asked("w", 2)]),
    "fewer pods": ([asked("w", 1)], [asked("w", 2)]),
    "more and smaller pods": ([asked("w", 3, "500m")], [asked("w", 3)]),
    "another name": ([asked("v", 2)], [asked("w", 2), asked("v", 2)]),
    "none": ([], [asked("w", 2)]),
}


@pytest.mark.parametrize(("now", "most"), SINCE_IT_RAN.values(), ids=SINCE_IT_RAN.keys())
def test_job_asks_for_the_most_that_it_has_asked_for_since_it_was_let_go(
    now: list[PodSet], most: list[PodSet]
) -> None:
    nesting = Nesting(Integrations())
    assert nesting.most_of(RUNS, OUTLIVED, [asked("w", 2)]) == [asked("w", 2)]
    assert nesting.most_of(RUNS, OUTLIVED, now) == most
    assert nesting.most_of(WAITS, OUTLIVED, now) == now
    assert nesting.most_of(RUNS, OUTLIVED, now) == now
    assert nesting.most_of(RUNS, loaded(), []) == [], "its status counts its pods"


def test_most_that_a_job_has_asked_for_is_remembered_until_its_pods_are_gone() -> None:
    """A job that is gone is told of under another name while its pods run."""
    nesting, ref = Nesting(Integrations()), ObjectRef("hub", "gadgets_example_com", None, "one")
    nesting.most_of(RUNS, OUTLIVED, [asked("w", 2)])
    departs = seen(GADGET, {**RUNS, "metadata": {**RUNS["metadata"], "resourceVersion": "1"}})
    nesting.forget(ref, departs)
    assert nesting.most_of(RUNS, OUTLIVED, [asked("w", 1)]) == [asked("w", 2)]
    nesting.forget(ref, departs.ended())
    assert nesting.most_of(RUNS, OUTLIVED, [asked("w", 1)]) == [asked("w", 1)]


def test_names_that_a_job_has_had_are_remembered_up_to_a_bound() -> None:
    nesting = Nesting(Integrations())
    for number in range(1_000):
        most = nesting.most_of(RUNS, OUTLIVED, [asked(f"w{number}", 1)])
    assert len(most) == 64


class Counting(Projector):
    """Counts the jobs that are read."""

    reads = 0

    @override
    def _on_job(self, observed: Observed, integration: Integration) -> None:
        self.reads += 1
        super()._on_job(observed, integration)


@pytest.mark.parametrize("labels", [{}, LABELLED], ids=["without a queue", "with one"])
@pytest.mark.parametrize("waits", [True, False], ids=["owner waits", "owner runs"])
def test_job_that_grows_does_not_have_all_of_its_controller_read_again(
    labels: Json, *, waits: bool
) -> None:
    """Whoever makes hundreds of them would keep the classifier busy."""
    projector, jobs = Counting("hub"), 40
    projector.observe(seen(JOB_SET.kind, job_set(suspend=waits) | {"status": {}}))
    list(projector.changes())
    for number in range(jobs):
        mine = labels if number != 1 else {}
        projector.observe(seen(kinds.JOB, child(number, labels=mine, active=0)))
        list(projector.changes())
    for pods in range(2, 12):
        projector.observe(seen(kinds.JOB, child(1, labels={}, active=0, pods=pods)))
        list(projector.changes())
    assert projector.reads < 4 * jobs


def test_job_that_grows_and_shrinks_has_only_those_read_again_that_can_leave() -> None:
    projector, jobs = Counting("hub"), 40
    projector.observe(seen(kinds.WORKLOAD, workload(count=jobs)))
    projector.observe(seen(JOB_SET.kind, job_set(replicas=jobs)))
    list(projector.changes())
    for number in range(jobs):
        projector.observe(seen(kinds.JOB, child(number, labels={})))
        list(projector.changes())
    before = projector.reads
    for pods in (9, 1) * 10:
        projector.observe(seen(kinds.JOB, child(1, labels={}, pods=pods)))
        list(projector.changes())
    assert projector.reads - before < 2 * jobs
