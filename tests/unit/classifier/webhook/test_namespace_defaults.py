"""Policies and defaults of a namespace, from the objects of the cluster."""

from typing import Any

import pytest

from services.classifier.projection.policy import Policy
from services.classifier.webhook.namespace_defaults import NamespaceDefaults
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.observed import Observed
from shared.settings.configuration import Configuration
from shared.testing.builders import admission, workload
from tests.unit.classifier.observations import queue, seen


def namespace_defaults(*observed: Observed, **configuration: Any) -> NamespaceDefaults:
    policy = Policy.of(Configuration.model_validate(configuration))
    subject = NamespaceDefaults(cluster="hub", policy=policy, job_default_queue="fallback")
    for one in observed:
        subject.observe(one)
    return subject


def test_queue_named_default_is_the_default_in_its_namespace_only() -> None:
    subject = namespace_defaults(queue("default"))

    assert subject.context("team-a").default_queue == "default"
    assert subject.context("team-b").default_queue == "fallback"


def test_deleted_queue_is_no_default() -> None:
    subject = namespace_defaults(queue("default"))
    subject.observe(queue("default").model_copy(update={"deleted": True}))

    assert subject.context("team-a").default_queue == "fallback"


@pytest.mark.parametrize("namespace", ["kube-system", "kueue-system", "sluicegate"])
def test_system_namespace_is_unmanaged_unless_configured(
    namespace: str,
) -> None:
    assert not namespace_defaults().context(namespace).managed
    assert namespace_defaults(managedJobsNamespaceSelector={}).context(namespace).managed


def test_namespace_is_managed_by_its_labels() -> None:
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


def test_class_named_default_is_the_default_except_for_queues_with_own_priority() -> None:
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
def test_queue_uses_multikueue_by_check_of_its_cluster_queue(spec: Object) -> None:
    spokes = check("spokes", "kueue.x-k8s.io/multikueue")
    whole = seen(kinds.CLUSTER_QUEUE, "q", spec=spec)
    subject = namespace_defaults(queue("plain"), whole, check("other", "example.com/other"), spokes)
    leads_elsewhere = subject.context("team-a").uses_multikueue

    assert leads_elsewhere("plain")
    assert not leads_elsewhere("unheard-of")
    assert not subject.context("team-b").uses_multikueue("plain")
    subject.observe(spokes.model_copy(update={"deleted": True}))
    assert not leads_elsewhere("plain")


def test_check_of_other_controller_does_not_mean_multikueue() -> None:
    whole = seen(kinds.CLUSTER_QUEUE, "q", spec={"admissionChecks": ["other"]})
    subject = namespace_defaults(queue("plain"), whole, check("other", "example.com/other"))

    assert not subject.context("team-a").uses_multikueue("plain")


def test_kind_is_admitted_in_a_namespace_while_a_workload_of_it_is() -> None:
    subject = namespace_defaults()
    names = ("trainjob-a-00000", "trainjob-b-00000", "job-c-00000")
    first, second, third = (workload(name, namespace="team-a") for name in names)
    for one in (first, second, third):
        subject.observe_admission(admission(one))
    subject.observe_admission(admission(first, "released"))
    here, elsewhere = (subject.context(place) for place in ("team-a", "team-b"))
    assert [here.has_admitted(kind) for kind in ("TrainJob", "Job", "JobSet")] == [
        True,
        True,
        False,
    ]
    assert here.is_admitted_as(f"u-{names[1]}", "TrainJob")
    assert not here.is_admitted_as(f"u-{names[2]}", "JobSet")
    assert not elsewhere.has_admitted("TrainJob")
    subject.observe_admission(admission(second, "evicted"))
    assert not here.has_admitted("TrainJob")
