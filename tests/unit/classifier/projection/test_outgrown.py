"""Which running jobs ask for more pods than they were admitted with."""

import pytest

from services.classifier.projection import growth
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import workload_name
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


def test_running_job_with_a_status_that_is_too_large_is_counted_by_its_spec() -> None:
    spec = {"suspend": False, "parallelism": 3, "completions": 9, "completionMode": "Indexed"}
    state = projected(
        seen(kinds.WORKLOAD, with_quota("train", "u-1", 3)),
        seen(kinds.JOB, job(spec=spec, status={"active": 3, "completedIndexes": "7," * 400_000})),
    )
    assert state.outgrown is None
    assert [one.count for one in state.pod_sets] == [3]
    assert "more than 500,000 characters" in (state.inadmissible or "")


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


def indexed(size: int, done: str) -> Observed:
    """An Indexed Job that runs, with so many pods and completions, and the indexes that have completed."""
    spec = {
        "suspend": False,
        "parallelism": size,
        "completions": size,
        "completionMode": "Indexed",
    }
    ended = len(range(*(int(end) for end in done.split("-")))) + 1 if done else 0
    status = {"active": size - ended, "completedIndexes": done, "succeeded": ended}
    return seen(kinds.JOB, job(spec=spec, status=status))


HAD_ENDED: dict[str, tuple[list[Observed], Json | None]] = {
    "three have ended": ([indexed(4, "1-3")], None),
    "they are wanted no more": ([indexed(4, "1-3"), indexed(1, "")], None),
    "two are wanted again": ([indexed(4, "1-3"), indexed(1, ""), indexed(2, "")], {"main": 2}),
    "all are wanted again": ([indexed(4, "1-3"), indexed(1, ""), indexed(4, "")], {"main": 4}),
    "it wants more of them, and then one": (
        [indexed(8, "0-3"), indexed(1, "")],
        {"main": 1},
    ),
}


@pytest.mark.parametrize(("jobs", "outgrown"), HAD_ENDED.values(), ids=HAD_ENDED.keys())
def test_job_of_which_more_runs_than_has_quota_is_outgrown(
    jobs: list[Observed], outgrown: Json | None
) -> None:
    """Its controller forgets indexes that its user takes off the end."""
    projector = Projector("hub")
    projector.observe(seen(kinds.WORKLOAD, with_quota("train", "u-1", 4)))
    states = []
    for observation in jobs:
        projector.observe(observation)
        states += [change.state for change in projector.changes()]
    assert states[-1].outgrown == outgrown


ENDING: dict[str, tuple[Json, Json | None]] = {
    "each is replaced once, as where nodes are drained": ({"active": 3, "terminating": 3}, None),
    "more are ending than run at once": ({"active": 3, "terminating": 4}, {"main": 7}),
    "more are ending, and none is replaced yet": ({"terminating": 4}, {"main": 4}),
    "one is ending, and others have ended": ({"active": 2, "terminating": 1, "succeeded": 2}, None),
}


@pytest.mark.parametrize(("status", "outgrown"), ENDING.values(), ids=ENDING)
def test_job_whose_pods_are_deleted_again_and_again_is_outgrown(
    status: Json, outgrown: Json | None
) -> None:
    spec = {"suspend": False, "parallelism": 3, "completions": 4}
    state = projected(
        seen(kinds.WORKLOAD, with_quota("train", "u-1", 3)),
        seen(kinds.JOB, job(spec=spec, status=status)),
    )
    assert state.outgrown == outgrown


WAITING = {"suspend": True, "parallelism": 20}
BEYOND: dict[str, tuple[list[tuple[Json, Json]], bool, Json | None]] = {
    "as many as were admitted": ([({}, {"active": 3})], True, None),
    "one is ending, and replaced": ([({}, {"active": 3, "terminating": 1})], True, {"main": 4}),
    "more were let go": ([({"parallelism": 20}, {"active": 20})], True, {"main": 20}),
    "it is stopped, and its pods are ending": (
        [(WAITING, {"terminating": 20})], False, {"main": 20},
    ),
    "and some of them are gone": (
        [(WAITING, {"terminating": 20}), (WAITING, {"terminating": 2})], False, {"main": 20},
    ),
    "and all of them are gone": ([(WAITING, {"terminating": 20}), (WAITING, {})], False, None),
    "others have ended, and gave their quota back": (
        [({"parallelism": 4, "completions": 4}, {"active": 2, "terminating": 1, "succeeded": 2})],
        True,
        {"main": 3},
    ),
}  # fmt: skip
"""Specs and statuses, whether the admission is on record, and the pods that hold quota beyond it."""


@pytest.mark.parametrize(("jobs", "admitted", "beyond"), BEYOND.values(), ids=BEYOND)
def test_pods_that_run_beyond_the_quota_of_their_job_are_published(
    jobs: list[tuple[Json, Json]], admitted: bool, beyond: Json | None
) -> None:
    projector = Projector("hub")
    holder = with_quota("train", "u-1", 3)
    if not admitted:
        del holder["status"]
    projector.observe(seen(kinds.WORKLOAD, holder))
    for spec, status in jobs:
        body = job(spec={"suspend": False, "parallelism": 3, **spec}, status=status)
        projector.observe(seen(kinds.JOB, body))
        states = [change.state for change in projector.changes()]
    assert (states[-1].running_pods if states else {"main": 20}) == beyond


def test_pods_that_another_cluster_tells_of_hold_nothing_here() -> None:
    """A spoke writes that status, and could keep everybody out of the hub's queues by a number."""
    spec = {"suspend": False, "parallelism": 3, "managedBy": "kueue.x-k8s.io/multikueue"}
    state = projected(
        seen(kinds.WORKLOAD, with_quota("train", "u-1", 3)),
        seen(kinds.JOB, job(spec=spec, status={"active": 2_000_000_000, "terminating": 9})),
    )
    assert state.running_pods is None


RAY = Kind(group="ray.io", version="v1", plural="rayclusters", kind="RayCluster")


def ray_cluster(*more: tuple[str, int], **groups: tuple[int, str]) -> Json:
    """A RayCluster that runs, with so many workers of a group, each with that cpu; `more` have one each."""

    def template(cpu: str) -> Json:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        return {"spec": {"containers": [container]}}

    workers = [
        {"groupName": name, "replicas": pods, "template": template(cpu)}
        for name, (pods, cpu) in [*groups.items(), *((name, (pods, "1")) for name, pods in more)]
    ]
    made = job("ray", uid="u-ray")
    made["spec"] = {
        "suspend": False,
        "headGroupSpec": {"template": template("1")},
        "workerGroupSpecs": workers,
    }
    return made | {"status": {"state": "ready"}}


def with_workers_to_delete(cluster: Json, count: int) -> Json:
    """The RayCluster, where KubeRay is told to delete so many workers of the first group."""
    cluster["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = {
        "workersToDelete": [f"worker-{number}" for number in range(count)]
    }
    return cluster


ADDED: dict[str, tuple[Json, Json | None]] = {
    "none": (ray_cluster(small=(2, "1")), None),
    "another group": (ray_cluster(small=(2, "1"), more=(3, "1")), {"head": 4}),
    "a group without pods": (ray_cluster(small=(2, "1"), more=(0, "1")), None),
    "another name, beside the pods of the first": (ray_cluster(other=(2, "1")), {"head": 3}),
    "another name, once more": (ray_cluster(again=(1, "1"), other=(1, "1")), {"head": 3}),
    "the name of a group that had no pods": (ray_cluster(empty=(2, "1")), {"head": 3}),
    "another name and more pods": (ray_cluster(other=(3, "1")), {"head": 4}),
    "another name and larger pods": (ray_cluster(other=(2, "8")), {"head": 3}),
    "the same name again": (ray_cluster(("small", 2), small=(50, "1")), {"head": 2}),
    "the same name in capitals": (ray_cluster(("small", 2), Small=(50, "1")), {"head": 2}),
    "no name": (ray_cluster(("", 0), small=(50, "1")), {"head": 2}),
    "more groups than are read": (
        ray_cluster(*((f"g-{number}", 50) for number in range(18)), small=(2, "1")),
        {"head": 2},
    ),
    "workers that end beside those that take their place": (
        with_workers_to_delete(ray_cluster(small=(2, "1")), 5),
        {"small": 7},
    ),
    "fewer workers, as many of which are to end": (
        with_workers_to_delete(ray_cluster(small=(1, "1")), 1),
        None,
    ),
}


@pytest.mark.parametrize(("now", "outgrown"), ADDED.values(), ids=ADDED.keys())
def test_running_object_with_more_pod_sets_is_outgrown(now: Json, outgrown: Json | None) -> None:
    """KubeRay lets users add groups to a RayCluster that runs. What cannot be read may be anything."""
    name = workload_name(kind="RayCluster", group="ray.io", name="ray", uid="u-ray")
    body = with_quota("ray", "u-ray", 1)
    body["metadata"] |= {
        "name": name,
        "ownerReferences": [
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "u-ray"}
        ],
    }
    template = ray_cluster(small=(2, "1"))["spec"]["workerGroupSpecs"][0]["template"]
    counts = {"head": 1, "small": 2}
    body["spec"]["podSets"] = [
        {"name": name, "count": count, "template": template} for name, count in counts.items()
    ]
    body["status"]["admission"]["podSetAssignments"] = [
        {"name": name, "count": count, "flavors": {"cpu": "f"}} for name, count in counts.items()
    ]
    projector = Projector("hub")
    admitted = ray_cluster(("empty", 0), small=(2, "1"))
    for obj in (seen(kinds.WORKLOAD, body), seen(RAY, admitted)):
        projector.observe(obj)
    [(state, _)] = projector.changes()
    assert state.outgrown is None
    for version in ("6", "7"):  # What has outgrown its admission does so until it is stopped.
        metadata = {**now["metadata"], "resourceVersion": version, "labels": {"version": version}}
        projector.observe(seen(RAY, {**now, "metadata": metadata}))
        [*_, state] = [state, *(change.state for change in projector.changes())]
        assert state.outgrown == outgrown


ASSIGNMENTS: dict[str, tuple[list[Json], Json | None]] = {
    "each has its pods": ([{"name": "a", "count": 2}, {"name": "b", "count": 1}], None),
    "one of them has fewer": ([{"name": "a", "count": 1}, {"name": "b", "count": 1}], {"a": 2}),
    "without a count it is for all pods of its set": ([{"name": "a"}, {"name": "b"}], None),
    "one was never admitted, the other is without a count": ([{"name": "a"}], {"b": 1}),
}


@pytest.mark.parametrize(("assigned", "outgrown"), ASSIGNMENTS.values(), ids=list(ASSIGNMENTS))
def test_what_was_let_go_of_a_group_beyond_its_assignments_is_outgrown(
    assigned: list[Json], outgrown: Json | None
) -> None:
    holder = as_body({"status": {"admission": {"podSetAssignments": assigned}}})
    assert growth._outgrown([], holder, {"a": 2, "b": 1}) == outgrown
