"""What the webhook knows of the cluster, and which priority a job gets from what is around it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.policy import Policy
from services.classifier.projection.priority import Priority, external_priority, job_priority
from services.classifier.webhook.namespace_defaults import NamespaceDefaults
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import as_body
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


def namespace_defaults(*observed: Observed, **configuration: Any) -> NamespaceDefaults:
    policy = Policy.of(Configuration.model_validate(configuration))
    subject = NamespaceDefaults(cluster="hub", policy=policy, job_default_queue="fallback")
    for one in observed:
        subject.observe(one)
    return subject


def test_the_queue_called_default_is_that_of_its_namespace_alone() -> None:
    subject = namespace_defaults(queue("default"))

    assert subject.context("team-a").default_queue == "default"
    assert subject.context("team-b").default_queue == "fallback"


def test_a_queue_that_is_gone_is_nobodys_default() -> None:
    subject = namespace_defaults(queue("default"))
    subject.observe(queue("default").model_copy(update={"deleted": True}))

    assert subject.context("team-a").default_queue == "fallback"


@pytest.mark.parametrize("namespace", ["kube-system", "kueue-system", "sluicegate"])
def test_namespaces_of_the_system_are_not_managed_unless_the_configuration_says_so(
    namespace: str,
) -> None:
    assert not namespace_defaults().context(namespace).managed
    assert namespace_defaults(managedJobsNamespaceSelector={}).context(namespace).managed


def test_a_namespace_is_managed_by_its_labels() -> None:
    selector = {
        "matchLabels": {"batch": "yes"},
        "matchExpressions": [{"key": "off", "operator": "DoesNotExist"}],
    }
    labels = [{"batch": "yes"}, {"batch": "yes", "off": ""}, {}]
    namespaces = [
        seen(kinds.NAMESPACE, f"n-{n}", metadata={"labels": one}) for n, one in enumerate(labels)
    ]
    subject = namespace_defaults(*namespaces, managedJobsNamespaceSelector=selector)

    assert [subject.context(f"n-{n}").managed for n in range(3)] == [True, False, False]
    assert not subject.context("unheard-of").managed


def test_a_class_called_default_is_for_everybody_but_queues_with_a_priority_of_their_own() -> None:
    class_ = seen(kinds.WORKLOAD_PRIORITY_CLASS, "default", value=5)
    subject = namespace_defaults(class_, queue("plain"), queue("own", priority="7"))
    default_class = subject.context("team-a").default_priority_class

    assert (default_class("plain"), default_class("own")) == ("default", "")
    assert namespace_defaults().context("team-a").default_priority_class("plain") == ""


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
    subject = namespace_defaults(queue("plain"), whole, check("other", "example.com/other"), spokes)
    leads_elsewhere = subject.context("team-a").uses_multikueue

    assert leads_elsewhere("plain")
    assert not leads_elsewhere("unheard-of")
    assert not subject.context("team-b").uses_multikueue("plain")
    subject.observe(spokes.model_copy(update={"deleted": True}))
    assert not leads_elsewhere("plain")


def test_another_controllers_check_keeps_a_queue_here() -> None:
    whole = seen(kinds.CLUSTER_QUEUE, "q", spec={"admissionChecks": ["other"]})
    subject = namespace_defaults(queue("plain"), whole, check("other", "example.com/other"))

    assert not subject.context("team-a").uses_multikueue("plain")


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
def test_where_a_jobs_priority_comes_from(case: Case) -> None:
    cluster_objects = ClusterObjects()
    for one in case.cluster_objects:
        cluster_objects.observe(one)
    labels = {names.PRIORITY_CLASS_LABEL: case.label} if case.label else {}
    job = as_body({"metadata": {"name": "j", "namespace": "team-a", "labels": labels}})
    template = {"spec": {"priorityClassName": case.pod_class} if case.pod_class else {}}

    found = job_priority(
        job,
        [{"name": "main", "template": template}],
        queue=case.queue,
        workload=case.recorded,
        cluster_objects=cluster_objects,
    )

    assert found.value == case.wants
    assert case.missing in (found.missing or "")
    assert bool(found.missing) is bool(case.missing)


def test_a_workload_of_somebody_else_has_its_own_priority_or_that_of_its_queue() -> None:
    cluster_objects = ClusterObjects()
    cluster_objects.observe(queue("plain", priority="50"))

    assert external_priority(workload(9), cluster_objects).value == 9
    assert external_priority(workload(None), cluster_objects) == Priority(value=50)


def test_a_queues_status_changes_nothing_around() -> None:
    cluster_objects = ClusterObjects()
    first = queue("plain", priority="50")
    assert cluster_objects.observe(first)
    assert first.object is not None
    counted = {**first.object, "status": {"pendingWorkloads": 3}}
    assert not cluster_objects.observe(first.model_copy(update={"object": counted}))
    assert cluster_objects.observe(queue("plain", priority="60"))
