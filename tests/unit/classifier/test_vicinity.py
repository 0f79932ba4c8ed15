"""What the webhook knows of the cluster, and which priority a job gets from what is around it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.classifier.projection.cluster_objects import Surroundings
from services.classifier.projection.policy import Policy
from services.classifier.projection.priority import Priority, foreign_priority, job_priority
from services.classifier.webhook.namespace_defaults import Vicinity
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.observed import Observed
from shared.settings.configuration import Configuration


def seen(kind: Kind, name: str, namespace: str | None = None, **obj: Any) -> Observed:
    metadata = {"name": name, "uid": f"{kind.plural}-{name}", **obj.pop("metadata", {})}
    if namespace is not None:
        metadata["namespace"] = namespace
    return Observed(
        cluster="hub",
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespace=namespace,
        name=name,
        uid=metadata["uid"],
        resource_version="1",
        object={"kind": kind.kind, "metadata": metadata, **obj},
    )


def queue(name: str, *, priority: str | None = None) -> Observed:
    annotations = {} if priority is None else {names.DEFAULT_PRIORITY: priority}
    metadata = {"annotations": annotations}
    return seen(kinds.LOCAL_QUEUE, name, "team-a", metadata=metadata, spec={"clusterQueue": "q"})


def vicinity(*observed: Observed, **configuration: Any) -> Vicinity:
    policy = Policy.of(Configuration.model_validate(configuration))
    subject = Vicinity(cluster="hub", policy=policy, job_default_queue="fallback")
    for one in observed:
        subject.take(one)
    return subject


def test_the_queue_called_default_is_that_of_its_namespace_alone() -> None:
    subject = vicinity(queue("default"))

    assert subject.place("team-a").default_queue == "default"
    assert subject.place("team-b").default_queue == "fallback"


def test_a_queue_that_is_gone_is_nobodys_default() -> None:
    subject = vicinity(queue("default"))
    subject.take(queue("default").model_copy(update={"deleted": True}))

    assert subject.place("team-a").default_queue == "fallback"


@pytest.mark.parametrize("namespace", ["kube-system", "kueue-system", "sluicegate"])
def test_namespaces_of_the_system_are_not_managed_unless_the_configuration_says_so(
    namespace: str,
) -> None:
    assert not vicinity().place(namespace).managed
    assert vicinity(managedJobsNamespaceSelector={}).place(namespace).managed


def test_a_namespace_is_managed_by_its_labels() -> None:
    selector = {
        "matchLabels": {"batch": "yes"},
        "matchExpressions": [{"key": "off", "operator": "DoesNotExist"}],
    }
    labels = [{"batch": "yes"}, {"batch": "yes", "off": ""}, {}]
    namespaces = [
        seen(kinds.NAMESPACE, f"n-{n}", metadata={"labels": one}) for n, one in enumerate(labels)
    ]
    subject = vicinity(*namespaces, managedJobsNamespaceSelector=selector)

    assert [subject.place(f"n-{n}").managed for n in range(3)] == [True, False, False]
    assert not subject.place("unheard-of").managed


def test_a_class_called_default_is_for_everybody_but_queues_with_a_priority_of_their_own() -> None:
    class_ = seen(kinds.WORKLOAD_PRIORITY_CLASS, "default", value=5)
    subject = vicinity(class_, queue("plain"), queue("own", priority="7"))
    default_class = subject.place("team-a").default_class

    assert (default_class("plain"), default_class("own")) == ("default", "")
    assert vicinity().place("team-a").default_class("plain") == ""


def check(name: str, controller: str) -> Observed:
    return seen(kinds.ADMISSION_CHECK, name, spec={"controllerName": controller})


CHECK_LISTS: dict[str, Object] = {
    "as a strategy": {"admissionChecksStrategy": {"admissionChecks": [{"name": "spokes"}]}},
    "as the older list": {"admissionChecks": ["other", "spokes"]},
}


@pytest.mark.parametrize("spec", CHECK_LISTS.values(), ids=list(CHECK_LISTS))
def test_a_queue_leads_elsewhere_by_a_multikueue_check_of_its_cluster_queue(spec: Object) -> None:
    spokes = check("spokes", "kueue.x-k8s.io/multikueue")
    whole = seen(kinds.CLUSTER_QUEUE, "q", spec=spec)
    subject = vicinity(queue("plain"), whole, check("other", "example.com/other"), spokes)
    leads_elsewhere = subject.place("team-a").leads_elsewhere

    assert leads_elsewhere("plain")
    assert not leads_elsewhere("unheard-of")
    assert not subject.place("team-b").leads_elsewhere("plain")
    subject.take(spokes.model_copy(update={"deleted": True}))
    assert not leads_elsewhere("plain")


def test_another_controllers_check_keeps_a_queue_here() -> None:
    whole = seen(kinds.CLUSTER_QUEUE, "q", spec={"admissionChecks": ["other"]})
    subject = vicinity(queue("plain"), whole, check("other", "example.com/other"))

    assert not subject.place("team-a").leads_elsewhere("plain")


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
    around: tuple[Observed, ...] = ()
    label: str = ""
    pod_class: str = ""
    queue: str = "plain"
    recorded: Object | None = None
    missing: str = ""
    more: dict[str, Any] = field(default_factory=dict)


CASES = {
    "the label's class goes before all": Case(
        around=(CLASS, POD_CLASS, USUAL, queue("plain", priority="50")),
        label="urgent",
        pod_class="batch",
        wants=100,
    ),
    "then the pods' class": Case(
        around=(POD_CLASS, USUAL, queue("plain", priority="50")), pod_class="batch", wants=7
    ),
    "then the annotation of the queue": Case(
        around=(USUAL, queue("plain", priority="-50")), wants=-50
    ),
    "then the cluster's default": Case(around=(USUAL, queue("plain")), wants=3),
    "then nothing": Case(around=(), wants=0),
    "an annotation of another queue does not count": Case(
        around=(queue("plain"), queue("other", priority="50")), wants=0
    ),
    "a class that is missing is told": Case(label="urgent", wants=0, missing='"urgent" not found'),
    "a pods' class that is missing is told": Case(
        pod_class="batch", wants=0, missing='PriorityClass "batch" not found'
    ),
    "an annotation that is no number is told": Case(
        around=(queue("plain", priority="high"),),
        wants=0,
        missing="LocalQueue plain: annotation kueue.x-k8s.io/default-priority: 'high'",
    ),
    "an annotation beyond 32 bits is told": Case(
        around=(queue("plain", priority="2147483648"),), wants=0, missing="no 32-bit integer"
    ),
    "a class that was deleted leaves the priority as it was": Case(
        label="urgent", recorded=workload(80, "urgent"), wants=80
    ),
    "another class while it waits is followed": Case(
        around=(CLASS,), label="urgent", recorded=workload(1, "low"), wants=100
    ),
    "another class while it has quota is followed": Case(
        around=(CLASS,), label="urgent", recorded=workload(1, "low", reserves=True), wants=100
    ),
    "another class that is missing changes nothing while it has quota": Case(
        label="nonesuch", recorded=workload(1, "low", reserves=True), wants=1
    ),
    "a class comes too late for who has quota without one": Case(
        around=(CLASS,), label="urgent", recorded=workload(1, reserves=True), wants=1
    ),
    "the queue's annotation comes too late for who has quota": Case(
        around=(queue("plain", priority="50"),), recorded=workload(1, reserves=True), wants=1
    ),
    "the queue's annotation is followed while it waits": Case(
        around=(queue("plain", priority="50"),), recorded=workload(1), wants=50
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_a_jobs_priority_comes_from(case: Case) -> None:
    around = Surroundings()
    for one in case.around:
        around.take(one)
    labels = {names.PRIORITY_CLASS_LABEL: case.label} if case.label else {}
    job = {"metadata": {"name": "j", "namespace": "team-a", "labels": labels}}
    template = {"spec": {"priorityClassName": case.pod_class} if case.pod_class else {}}

    found = job_priority(
        job,
        [{"name": "main", "template": template}],
        queue=case.queue,
        workload=case.recorded,
        around=around,
    )

    assert found.value == case.wants
    assert case.missing in (found.missing or "")
    assert bool(found.missing) is bool(case.missing)


def test_a_workload_of_somebody_else_has_its_own_priority_or_that_of_its_queue() -> None:
    around = Surroundings()
    around.take(queue("plain", priority="50"))

    assert foreign_priority(workload(9), around).value == 9
    assert foreign_priority(workload(None), around) == Priority(value=50)


def test_a_queues_status_changes_nothing_around() -> None:
    around = Surroundings()
    first = queue("plain", priority="50")
    assert around.take(first)
    assert first.object is not None
    counted = {**first.object, "status": {"pendingWorkloads": 3}}
    assert not around.take(first.model_copy(update={"object": counted}))
    assert around.take(queue("plain", priority="60"))
