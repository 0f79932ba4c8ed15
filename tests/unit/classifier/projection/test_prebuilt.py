"""Which Workload a job has whose user names one."""

import copy
from typing import Any

import pytest

from services.classifier.projection.owners.prebuilt import why_not
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.names import PREBUILT_WORKLOAD
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import JOB
from tests.unit.classifier.projection.objects import QUEUE, Json, job, seen
from tests.unit.classifier.projection.test_nesting import Counting

NAMED = {**QUEUE, PREBUILT_WORKLOAD: "plan"}
LATER = "Workload plan, which the job names, does not exist"


def condition(type_: str) -> Json:
    return {"type": type_, "status": "True"}


def states(projector: Projector, *observations: Observed) -> list[WorkloadState]:
    found = []
    for observed in observations:
        projector.observe(observed)
        found += [change.state for change in projector.changes()]
    return found


def workload(*conditions: Json, owner: str = "", **spec: Any) -> Json:
    owners = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner, "controller": True}
    ]
    template = copy.deepcopy(job(labels=NAMED)["spec"]["template"])
    return {
        "metadata": {
            "name": "plan", "namespace": "team-a", "uid": "w-1", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners if owner else [],
        },
        "spec": {
            "queueName": "main",
            "podSets": [{"name": "main", "count": 1, "template": template}],
            **spec,
        },
        "status": {"conditions": list(conditions)},
    }  # fmt: skip


JOB_SEEN = seen(kinds.JOB, job(uid="u-1", labels=NAMED))


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a restart before each"])
@pytest.mark.parametrize("first", ["workload", "job"])
def test_job_gets_the_workload_in_any_order(first: str, restarts: bool) -> None:
    observations = [seen(kinds.WORKLOAD, workload()), JOB_SEEN]
    if first == "job":
        observations.reverse()
    projector = Projector("hub")
    last: dict[str, WorkloadState] = {}
    for number in range(1, 3):
        if restarts:
            projector = Projector("hub")
            for state in last.values():
                projector.restore(state)
        shown = observations[:number] if restarts else observations[number - 1 : number]
        last |= {state.name: state for state in states(projector, *shown)}
    live = {name: state for name, state in last.items() if state.phase != "gone"}
    assert list(live) == ["plan"]
    assert (live["plan"].uid, live["plan"].prebuilt, live["plan"].inadmissible) == (
        "u-1",
        True,
        None,
    )


def test_quota_of_a_workload_without_a_job_is_inherited() -> None:
    held = workload(condition("QuotaReserved"))
    held["status"]["admission"] = {"clusterQueue": "cq"}
    found = states(Projector("hub"), seen(kinds.WORKLOAD, held), JOB_SEEN)
    assert [(state.uid, state.adopts) for state in found][-1] == ("u-1", "w-1")


HAS_QUOTA = [condition("QuotaReserved")]


@pytest.mark.parametrize(
    ("label", "conditions", "suspended", "queue"),
    [
        pytest.param("main", HAS_QUOTA, True, "main", id="the same queue, with quota"),
        pytest.param("other", [], True, "other", id="another queue, without quota"),
        pytest.param("other", HAS_QUOTA, True, "main", id="another queue, with quota"),
        pytest.param("other", HAS_QUOTA, False, "main", id="another queue, with quota, and it runs"),
        pytest.param("other", [], False, "other", id="another queue, without quota, and it runs"),
    ],
)  # fmt: skip
def test_queue_of_a_workload_counts_while_it_holds_quota(
    label: str, conditions: list[Json], suspended: bool, queue: str
) -> None:
    theirs = workload(*conditions)
    theirs["status"]["admission"] = {"clusterQueue": "cq"} if conditions else None
    labels = {**NAMED, names.QUEUE: label}
    ours = job(uid="u-1", labels=labels, spec={"suspend": suspended}, status={"active": 1})
    projector = Projector("hub")
    [*_, taken] = states(projector, seen(kinds.WORKLOAD, theirs), seen(kinds.JOB, ours))
    assert (taken.name, taken.uid, taken.queue) == ("plan", "u-1", queue)
    if conditions:  # It is evicted: then its job's queue counts.
        theirs["status"] = {}
        theirs["metadata"]["resourceVersion"] = "2"
        [*_, taken] = states(projector, seen(kinds.WORKLOAD, theirs))
        assert (taken.name, taken.uid, taken.queue) == ("plan", "u-1", label)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        pytest.param(job(labels=NAMED), None, LATER, id="it does not exist"),
        pytest.param(job(labels=NAMED), workload(owner="u-9"), "belongs to Job j", id="it is another's"),
        pytest.param(job(labels=NAMED), workload(condition("Finished")), "is finished", id="it is over"),
        pytest.param(job(labels=NAMED), workload(podSets=[]), "it has 0 pod sets", id="no pods"),
        pytest.param(job(labels=NAMED), workload(), None, id="it fits"),
    ],
)  # fmt: skip
def test_reason_names_what_does_not_fit(ours: Json, theirs: Json | None, why: str | None) -> None:
    body: Body | None = None if theirs is None else as_body(theirs)
    found = why_not(as_body(ours), JOB, body, "plan")
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("field", "ours", "theirs", "fits"),
    [
        ("resources", {"requests": {"cpu": "1000m"}}, {"requests": {"cpu": 1}}, True),
        ("resources", {"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, False),
        ("imagePullPolicy", "Always", None, True),
        ("ports", [], None, True),
        ("env", [{"name": "A", "value": "1"}], None, False),
    ],
)
def test_what_the_api_server_fills_in_makes_no_difference(
    field: str, ours: Any, theirs: Any, fits: bool
) -> None:
    one, other = job(labels=NAMED), workload()
    for obj, value in ((one["spec"], ours), (other["spec"]["podSets"][0], theirs)):
        container = obj["template"]["spec"]["containers"][0]
        container.pop(field, None)
        if value is not None:
            container[field] = value
    assert (why_not(as_body(one), JOB, as_body(other), "plan") is None) == fits


def test_job_with_quota_of_its_own_does_not_move() -> None:
    projector = Projector("hub")
    [own] = states(projector, seen(kinds.JOB, job(uid="u-1", labels=QUEUE)))
    held = workload(condition("QuotaReserved"), owner="u-1")
    held["metadata"]["name"] = own.name
    moved = states(
        projector, seen(kinds.WORKLOAD, held), seen(kinds.WORKLOAD, workload()), JOB_SEEN
    )
    assert {state.name: state.uid for state in moved} == {own.name: "u-1", "plan": "w-1"}


def test_job_that_loses_its_workload_waits_under_its_own_name_before_the_other_name_ends() -> None:
    """What runs is counted again before the name that it had gives its quota back."""
    projector = Projector("hub")
    states(projector, seen(kinds.WORKLOAD, workload()), JOB_SEEN)
    told = states(projector, seen(kinds.WORKLOAD, workload(owner="another")))
    assert [(state.uid, state.phase) for state in told] == [("u-1", "waiting"), ("u-1", "gone")]
    assert told[1].name == "plan"


OTHER_NAME = {
    "name": "worker",
    "count": 1,
    "template": workload()["spec"]["podSets"][0]["template"],
}


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_pods_of_a_workload_may_have_another_name_than_those_of_its_job(restarts: bool) -> None:
    """Kueue compares them in their order."""
    theirs = workload(*HAS_QUOTA, owner="u-1", podSets=[OTHER_NAME])
    given = {"name": "worker", "count": 1, "flavors": {"cpu": "f"}}
    theirs["status"]["admission"] = {"clusterQueue": "cq", "podSetAssignments": [given]}
    waits = seen(kinds.JOB, job(uid="u-1", labels=NAMED))
    projector = Projector("hub")
    [*_, state] = states(projector, seen(kinds.WORKLOAD, theirs), waits)
    for version, (pods, is_outgrown) in enumerate(((1, False), (1, False), (5, True), (5, True))):
        if restarts:
            projector = Projector("hub")
            projector.restore(state)
            projector.observe(seen(kinds.WORKLOAD, theirs))
        runs = job(
            uid="u-1", labels={**NAMED, "version": str(version)},
            metadata={"resourceVersion": str(6 + version)},
            spec={"suspend": False, "parallelism": pods, "completions": 9}, status={"active": 1},
        )  # fmt: skip
        [*_, state] = [state, *states(projector, seen(kinds.JOB, runs))]
        assert (state.outgrown is not None) == is_outgrown, version


def test_jobs_that_wait_for_a_workload_are_not_read_each_time_that_it_changes() -> None:
    """Whoever has hundreds of jobs name one would keep the classifier busy."""
    projector, jobs = Counting("hub"), 40
    states(projector, seen(kinds.WORKLOAD, workload()), JOB_SEEN)
    for number in range(jobs):
        body = job(f"j-{number}", uid=f"u-j-{number}", labels=NAMED)
        states(projector, seen(kinds.JOB, body))
    before = projector.reads
    for priority in range(10):
        states(projector, seen(kinds.WORKLOAD, workload(owner="u-1", priority=priority)))
    assert projector.reads - before < jobs
