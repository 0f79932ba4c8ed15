"""Mutation of Jobs and custom kinds: defaults of the namespace, MultiKueue, owners."""

from dataclasses import replace
from typing import Any

import pytest

from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.mutation import RefusedError, mutate
from services.classifier.webhook.updates import review_update
from shared.contracts.kube import names
from shared.integrations import Integrations, opted_documents
from tests.unit.classifier.webhook.objects import R, annotations, job, rules, run
from tests.unit.integrations.gadgets import document, gadget

# --- Jobs and others ------------------------------------------------------------------------------


def test_job_with_queue_is_suspended() -> None:
    made = mutate(job(labels={names.QUEUE: "mine"}), rules('priority("x")'))

    assert made.object["spec"]["suspend"] is True
    assert made.patch == ({"op": "add", "path": "/spec/suspend", "value": True},)


def test_job_without_queue_is_unchanged() -> None:
    assert mutate(job(), rules()).patch == ()
    assert mutate(job(labels={names.QUEUE: ""}), rules()).patch == ()


@pytest.mark.parametrize("labels", [{}, {names.QUEUE: ""}])
def test_job_without_queue_gets_default_queue_of_namespace(labels: dict[str, str]) -> None:
    made = mutate(
        job(labels=labels), rules(), context=NamespaceContext(default_queue="jobs")
    ).object

    assert made["metadata"]["labels"] == {names.QUEUE: "jobs"}
    assert made["spec"]["suspend"] is True


def test_job_without_queue_is_held_if_all_jobs_are_managed() -> None:
    made = mutate(job(), rules(), context=NamespaceContext(manage_without_queue=True)).object

    assert names.QUEUE not in made["metadata"].get("labels", {})
    assert made["spec"]["suspend"] is True


@pytest.mark.parametrize("build", [run, job])
def test_object_in_unmanaged_namespace_is_unchanged(build: Any) -> None:
    given = build(labels={names.QUEUE: "mine"})

    assert mutate(given, rules(), context=NamespaceContext(managed=False)).patch == ()


def test_default_priority_class_is_set_if_job_names_none() -> None:
    place = NamespaceContext(default_priority_class=lambda queue: f"default-of-{queue}")
    plain = mutate(job(labels={names.QUEUE: "mine"}), rules(), context=place).object
    named = {names.QUEUE: "mine", names.PRIORITY_CLASS_LABEL: "urgent"}

    assert plain["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] == "default-of-mine"
    assert mutate(job(labels=named), rules(), context=place).object["metadata"]["labels"] == named
    assert mutate(plain, rules(), context=place).patch == ()


ELSEWHERE = NamespaceContext(uses_multikueue=lambda queue: queue == "far")


MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("queue", "given", "becomes"),
    [
        ("far", None, MULTIKUEUE),
        ("far", "kubernetes.io/job-controller", MULTIKUEUE),
        ("far", "example.com/mine", "example.com/mine"),
        ("near", None, None),
        ("near", "kubernetes.io/job-controller", "kubernetes.io/job-controller"),
    ],
)
def test_job_in_multikueue_queue_gets_managed_by(
    queue: str, given: str | None, becomes: str | None
) -> None:
    before = job(labels={names.QUEUE: queue})
    if given is not None:
        before["spec"]["managedBy"] = given

    made = mutate(before, rules(), context=ELSEWHERE).object

    assert made["spec"].get("managedBy") == becomes
    assert mutate(made, rules(), context=ELSEWHERE).patch == ()


def test_managed_by_depends_on_the_queue_after_mutation() -> None:
    place = NamespaceContext(default_queue="far", uses_multikueue=ELSEWHERE.uses_multikueue)

    assert mutate(job(), rules(), context=place).object["spec"]["managedBy"] == MULTIKUEUE


def test_managed_by_of_run_comes_from_user_or_configuration() -> None:
    made = mutate(run(labels={names.QUEUE: "far"}), rules(), context=ELSEWHERE).object

    assert "managedBy" not in made["spec"]


OWNERS = (
    ("tekton.dev/v1", "PipelineRun"),
    ("tekton.dev/v1", "TaskRun"),
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
)


def owned(build: Any, version: str, kind: str) -> Any:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    return build(labels={names.QUEUE: "q"}, ownerReferences=[owner])


def admitted_as(*kinds: str) -> NamespaceContext:
    return NamespaceContext(
        is_admitted={"u"}.__contains__,
        is_admitted_as=lambda uid, kind: uid == "u" and kind in kinds,
    )


def test_job_of_an_admitted_job_set_is_unchanged() -> None:
    made = mutate(owned(job, *OWNERS[-1]), rules(), context=admitted_as("JobSet"))
    assert made.patch == ()


@pytest.mark.parametrize(
    ("build", "version", "kind", "context"),
    [
        *((build, *owner, admitted_as(owner[1])) for build in (run, job) for owner in OWNERS[:-1]),
        (run, *OWNERS[-1], admitted_as("JobSet")),
        (job, *OWNERS[-1], admitted_as("Job")),
    ],
)
def test_object_of_an_admitted_controller_that_makes_no_such_jobs_is_held(
    build: Any, version: str, kind: str, context: NamespaceContext
) -> None:
    made = mutate(owned(build, version, kind), rules(), context=context).object
    assert made["spec"].get("suspend") or made["spec"].get("status") == "PipelineRunPending"
    assert made["metadata"]["annotations"][names.USER_PENDING] == "false"


@pytest.mark.parametrize(
    ("admitted", "left_alone"),
    [("TrainJob", True), ("PyTorchJob", False), ("Job", False), ("", False)],
)
def test_job_of_a_job_set_that_may_be_below_an_admitted_object_is_unchanged(
    admitted: str, left_alone: bool
) -> None:
    """The JobSet itself has no workload: who reads the job's controller decides whether it is covered."""
    context = NamespaceContext(has_admitted={admitted}.__contains__)
    made = mutate(owned(job, *OWNERS[-1]), rules(), context=context)
    assert (made.patch == ()) == left_alone


def in_wrapper(api_version: str, kind: str) -> Any:
    owner = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "name": "o",
        "uid": "u",
        "controller": True,
    }
    metadata = {"labels": {names.QUEUE: "q"}, "ownerReferences": [owner], "name": "x"}
    spec: Any = {"template": {"spec": {"containers": []}}, "containers": []}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


WRAPPED = (
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Pod"),
)


@pytest.mark.parametrize(("version", "kind"), WRAPPED)
def test_labelled_object_of_an_admitted_app_wrapper_is_unchanged(version: str, kind: str) -> None:
    """Its pods, too: they run on the AppWrapper's quota."""
    integrations = Integrations()
    for obj in opted_documents(("deployment", "statefulset")):
        integrations.apply(obj)
    context = replace(admitted_as("AppWrapper"), integrations=integrations)
    obj = in_wrapper(version, kind)
    assert mutate(obj, rules(), context=context).patch == ()
    if kind != "Pod":
        integration = integrations.find(group=version.rpartition("/")[0], kind=kind)
        assert integration is not None
        grown = {**obj, "spec": {**obj["spec"], "replicas": 2}}
        assert review_update(grown, obj, integration, user="u", context=context).patch == ()


@pytest.mark.parametrize(("version", "kind"), OWNERS)
@pytest.mark.parametrize("build", [run, job])
def test_object_controlled_by_unadmitted_object_is_held(
    build: Any, version: str, kind: str
) -> None:
    context = NamespaceContext(is_admitted={"other"}.__contains__)

    made = mutate(owned(build, version, kind), rules(), context=context).object
    assert made["spec"].get("suspend") or made["spec"].get("status") == "PipelineRunPending"
    assert made["metadata"]["annotations"][names.USER_PENDING] == "false"


def test_kind_without_integration_is_unchanged() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {names.QUEUE: "q"}}}

    assert mutate(pod, rules()).patch == ()


# --- kinds that nobody wrote code for ------------------------------------------------------------


def classified(**spec: Any) -> NamespaceContext:
    """A place where Gadgets are known, and classified like runs."""
    integrations = Integrations()
    integrations.apply(document(webhook={"classify": True}, **spec))
    return NamespaceContext(integrations=integrations)


def test_custom_kind_is_classified_without_tekton_defaults() -> None:
    given = gadget()
    given["spec"]["colour"] = None
    expressions = (
        'pipelineRun.spec.replicas == 2.0 ? priority("pair") : priority("other")',
        'has(pipelineRun.spec.colour) ? annotation("colour", "some") : annotation("colour", "none")',
        'resource("tekton.dev/slots", 3)',
    )

    made = mutate(given, rules(*expressions), namespace="ns", context=classified()).object

    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"] == {
        names.QUEUE: "q",
        "kueue.x-k8s.io/priority-class": "pair",
    }
    assert annotations(made) == {"colour": "none", R + "tekton.dev/slots": "3"}
    assert made["spec"]["replicas"] == 2, "what expressions see is a copy"
    assert mutate(made, rules(*expressions), context=classified()).object == made


def test_coscheduled_custom_kind_is_refused() -> None:
    given = gadget()
    given["metadata"]["annotations"] = {names.COSCHEDULE: "pipelineruns"}

    with pytest.raises(RefusedError, match="only PipelineRuns can be coscheduled"):
        mutate(given, rules('priority("x")'), context=classified())


def test_failing_expression_on_custom_kind_is_an_internal_error() -> None:
    with pytest.raises(RefusedError, match="no such key: pipelineSpec"):
        mutate(gadget(), rules("priority(pipelineRun.spec.pipelineSpec.x)"), context=classified())


def test_custom_kind_without_classify_is_not_classified() -> None:
    integrations = Integrations()
    integrations.apply(document())
    made = mutate(
        gadget(), rules('priority("x")'), context=NamespaceContext(integrations=integrations)
    )
    assert made.patch == ()
