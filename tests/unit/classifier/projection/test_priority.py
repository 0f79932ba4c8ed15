"""Where a workload's priority comes from."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.priority import Priority, external_priority, job_priority
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.observed import Observed
from shared.testing import builders
from tests.unit.classifier.observations import queue, seen

# Priority ------------------------------------------------------------------------------------------

CLASS = seen(kinds.WORKLOAD_PRIORITY_CLASS, "urgent", value=100)


POD_CLASS = seen(kinds.PRIORITY_CLASS, "batch", value=7)


USUAL = seen(kinds.PRIORITY_CLASS, "usual", value=3, globalDefault=True)


WORKLOAD_CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}


def workload(priority: int | None, class_: str = "", *, reserves: bool = False) -> Object:
    spec: Object = {"queueName": "plain"}
    if priority is not None:
        spec["priority"] = priority
    if class_:
        spec["priorityClassRef"] = {**WORKLOAD_CLASS, "name": class_}
    status = "True" if reserves else "False"
    conditions = [{"type": "QuotaReserved", "status": status}]
    metadata = {"name": "w", "namespace": "team-a"}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}


@dataclass(frozen=True, kw_only=True)
class Case:
    wants: int
    cluster_objects: tuple[Observed, ...] = ()
    label: str = ""
    pod_class: str = ""
    queue: str = "plain"
    recorded: Object | None = None
    missing: str = ""
    more: dict[str, Any] = field(default_factory=dict)


CASES = {
    "the label's class goes before all": Case(
        cluster_objects=(CLASS, POD_CLASS, USUAL, queue("plain", priority="50")),
        label="urgent",
        pod_class="batch",
        wants=100,
    ),
    "then the pods' class": Case(
        cluster_objects=(POD_CLASS, USUAL, queue("plain", priority="50")),
        pod_class="batch",
        wants=7,
    ),
    "then the annotation of the queue": Case(
        cluster_objects=(USUAL, queue("plain", priority="-50")), wants=-50
    ),
    "then the cluster's default": Case(cluster_objects=(USUAL, queue("plain")), wants=3),
    "then nothing": Case(cluster_objects=(), wants=0),
    "an annotation of another queue does not count": Case(
        cluster_objects=(queue("plain"), queue("other", priority="50")), wants=0
    ),
    "a class that is missing is told": Case(label="urgent", wants=0, missing='"urgent" not found'),
    "a pods' class that is missing is told": Case(
        pod_class="batch", wants=0, missing='PriorityClass "batch" not found'
    ),
    "an annotation that is no number is told": Case(
        cluster_objects=(queue("plain", priority="high"),),
        wants=0,
        missing="LocalQueue plain: annotation kueue.x-k8s.io/default-priority: 'high'",
    ),
    "an annotation beyond 32 bits is told": Case(
        cluster_objects=(queue("plain", priority="2147483648"),),
        wants=0,
        missing="no 32-bit integer",
    ),
    "a class that was deleted leaves the priority as it was": Case(
        label="urgent", recorded=workload(80, "urgent"), wants=80
    ),
    "another class while it waits is followed": Case(
        cluster_objects=(CLASS,), label="urgent", recorded=workload(1, "low"), wants=100
    ),
    "another class while it has quota is followed": Case(
        cluster_objects=(CLASS,),
        label="urgent",
        recorded=workload(1, "low", reserves=True),
        wants=100,
    ),
    "another class that is missing changes nothing while it has quota": Case(
        label="nonesuch", recorded=workload(1, "low", reserves=True), wants=1
    ),
    "a class comes too late for who has quota without one": Case(
        cluster_objects=(CLASS,), label="urgent", recorded=workload(1, reserves=True), wants=1
    ),
    "the queue's annotation comes too late for who has quota": Case(
        cluster_objects=(queue("plain", priority="50"),),
        recorded=workload(1, reserves=True),
        wants=1,
    ),
    "the queue's annotation is followed while it waits": Case(
        cluster_objects=(queue("plain", priority="50"),), recorded=workload(1), wants=50
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_source_of_job_priority(case: Case) -> None:
    cluster_objects = ClusterObjects()
    for one in case.cluster_objects:
        cluster_objects.observe(one)
    labels = {names.PRIORITY_CLASS_LABEL: case.label} if case.label else {}
    job = as_body({"metadata": {"name": "j", "namespace": "team-a", "labels": labels}})
    template = {"spec": {"priorityClassName": case.pod_class} if case.pod_class else {}}

    pods = [{"name": "main", "template": template}]
    found = job_priority(job, pods, "", case.queue, case.recorded, cluster_objects)

    assert found.value == case.wants
    assert case.missing in (found.missing or "")
    assert bool(found.missing) is bool(case.missing)


@dataclass(frozen=True, kw_only=True)
class Before:
    wants: int
    state: dict[str, Any]
    recorded: Object
    label: str = ""
    missing: bool = False


REFUSED = {"priority_class": "urgent", "unresolved": 'WorkloadPriorityClass "urgent" not found'}
WRITTEN = workload(900, reserves=True)
BEFORE = {
    "while it runs": Before(
        state={"admission": {"clusterQueue": "q"}, "held": False}, recorded=WRITTEN, wants=5
    ),
    "while its admission is on the way": Before(state={}, recorded=WRITTEN, wants=5),
    "but what ran before its Workload was seen has what that says": Before(
        state={"held": False}, recorded=WRITTEN, wants=900
    ),
    "but a copy has what its hub writes": Before(
        state={"admission": {"clusterQueue": "q"}},
        recorded={**WRITTEN, "metadata": {"labels": {ORIGIN: "hub"}}},
        wants=900,
    ),
    "but a class that came and went was admitted with what the Workload says": Before(
        state=REFUSED, recorded=WRITTEN, wants=900
    ),
    "and a class that is missing is missing, whatever the Workload says": Before(
        state=REFUSED, recorded=workload(900, "urgent"), label="urgent", wants=0, missing=True
    ),
    "and a class that was deleted leaves it, whatever else is wrong": Before(
        state={"priority_class": "urgent", "unresolved": "another fault"},
        recorded=workload(900, "urgent"),
        label="urgent",
        wants=5,
    ),
}


@pytest.mark.parametrize("case", BEFORE.values(), ids=BEFORE)
def test_priority_stays_what_it_was_whatever_is_written_into_the_workload(case: Before) -> None:
    labels = {names.PRIORITY_CLASS_LABEL: case.label} if case.label else {}
    metadata = {"name": "j", "namespace": "team-a", "uid": "u-1", "labels": labels}
    last = builders.workload("j", uid="u-1", **{"priority": 5, **case.state})
    pods: list[Object] = [{"name": "main", "template": {}}]
    job = as_body({"metadata": metadata})
    found = job_priority(job, pods, "", "plain", case.recorded, ClusterObjects(), last)
    assert (found.value, bool(found.missing)) == (case.wants, case.missing)


def test_class_that_the_job_names_itself_goes_before_that_of_its_pods() -> None:
    job = as_body({"metadata": {"name": "j", "namespace": "team-a"}})
    pods = [{"name": "main", "template": {"spec": {"priorityClassName": "pods"}}}]
    found = job_priority(job, pods, "policy", "", None, ClusterObjects())
    assert (found.name, found.missing) == ("policy", 'PriorityClass "policy" not found')


def test_external_workload_has_its_own_priority_or_its_queues() -> None:
    cluster_objects = ClusterObjects()
    cluster_objects.observe(queue("plain", priority="50"))

    assert external_priority(workload(9), cluster_objects).value == 9
    assert external_priority(workload(None), cluster_objects) == Priority(value=50)


POD_CLASS_REF = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "urgent"}


def copied(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {ORIGIN: "hub"}}}


EXTERNAL = {
    "its class goes before its number": (workload(9, "urgent"), 100),
    "with quota too": (workload(9, "urgent", reserves=True), 100),
    "without a number the class does not count, as with Kueue": (workload(None, "urgent"), 50),
    "a class that is not there leaves its number": (workload(9, "nonesuch"), 9),
    "nor is it looked for elsewhere": (workload(9, "batch"), 9),
    "a hub writes the number of its copy": (copied(workload(9, "urgent")), 9),
    "a class of pods leaves its number": (
        {**workload(9), "spec": {"priority": 9, "priorityClassRef": POD_CLASS_REF}},
        9,
    ),
}


@pytest.mark.parametrize(("obj", "wants"), EXTERNAL.values(), ids=EXTERNAL)
def test_external_workload_follows_the_class_that_it_names(obj: Object, wants: int) -> None:
    cluster_objects = ClusterObjects()
    for one in (CLASS, POD_CLASS, queue("plain", priority="50")):
        cluster_objects.observe(one)
    assert external_priority(as_body(obj), cluster_objects).value == wants


def test_queue_status_is_no_relevant_change() -> None:
    cluster_objects = ClusterObjects()
    first = queue("plain", priority="50")
    assert cluster_objects.observe(first)
    assert first.object is not None
    counted = {**first.object, "status": {"pendingWorkloads": 3}}
    assert not cluster_objects.observe(first.model_copy(update={"object": counted}))
    assert cluster_objects.observe(queue("plain", priority="60"))
