"""Which documents are in force: those that ship, and those of a cluster's Integration objects."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import INTEGRATION, Object
from shared.contracts.messages.observed import Observed
from shared.integrations import (
    JOB,
    JOB_SET,
    PIPELINE_RUN,
    Integration,
    Integrations,
    controller_uid,
    opted_documents,
)
from shared.testing.builders import observed_object
from tests.unit.integrations.gadgets import document


def seen(obj: Object, *, deleted: bool = False, **metadata: Any) -> Observed:
    obj = {**obj, "metadata": {"uid": "u", "resourceVersion": "1", **obj["metadata"], **metadata}}
    return observed_object(INTEGRATION, obj, deleted=deleted)


def count_of(integrations: Integrations) -> object:
    found = integrations.find(group="example.com", plural="gadgets")
    return None if found is None else found.document.spec.pod_sets[0].count


GOOD = document()
BAD = document(ready="1")


def test_kind_is_integrated_from_creation_to_deletion_of_its_document() -> None:
    integrations = Integrations()
    assert count_of(integrations) is None
    standing = integrations.observe(seen(GOOD))
    assert standing is not None
    assert standing.problem is None
    assert integrations.find(group="example.com", kind="Gadget") is standing.in_force
    assert [kind.plural for kind in integrations.added_kinds()] == ["gadgets"]
    assert integrations.observe(seen(GOOD, deleted=True)) is None
    assert count_of(integrations) is None
    assert integrations.added_kinds() == ()


def test_webhook_is_asked_about_home_made_kinds_also_where_their_pods_wait_instead() -> None:
    integrations = Integrations()
    for opted in opted_documents(("statefulset", "deployment")):
        integrations.apply(opted)
    assert integrations.reviewed_kinds() == (), "they have a webhook of their own"
    integrations.apply(document(propagate="spec.template"))
    assert [kind.plural for kind in integrations.reviewed_kinds()] == ["gadgets"]
    assert "gadgets" not in {kind.plural for kind in integrations.added_kinds()}, "not watched"


def test_pods_at_a_gate_are_no_kind_of_other_clusters() -> None:
    integrations = Integrations()
    for obj in (*opted_documents(("pod", "statefulset")), document()):
        integrations.apply(obj)
    assert {kind.plural for kind in integrations.added_kinds()} >= {"pods", "gadgets"}
    assert [kind.plural for kind in integrations.copied_kinds()] == ["gadgets"]


def test_invalid_update_keeps_the_valid_document() -> None:
    integrations = Integrations()
    integrations.observe(seen(GOOD))
    standing = integrations.observe(seen(BAD))
    assert standing is not None
    assert standing.problem is not None
    assert "spec.ready: must return bool or null, but returns int" in standing.problem
    assert count_of(integrations) == "spec.replicas"
    integrations.observe(seen(document(podSets=[{"template": "spec.template", "count": "3"}])))
    assert count_of(integrations) == "3"


def test_service_started_with_an_invalid_document_uses_the_accepted_one() -> None:
    accepted = {**BAD, "status": {"accepted": GOOD["spec"]}}
    integrations = Integrations()
    standing = integrations.observe(seen(accepted))
    assert standing is not None
    assert standing.problem is not None
    assert count_of(integrations) == "spec.replicas"
    never = Integrations()
    never.observe(seen({**BAD, "status": {"accepted": BAD["spec"]}}))
    assert count_of(never) is None


def test_same_document_seen_again_is_the_same_integration() -> None:
    integrations = Integrations()
    integrations.observe(seen(GOOD))
    before = integrations.find(group="example.com", plural="gadgets")
    integrations.observe(seen({**GOOD, "status": {"conditions": []}}, resourceVersion="2"))
    assert integrations.find(group="example.com", plural="gadgets") is before


def test_document_overrides_a_shipped_one() -> None:
    kind = {"group": "batch", "version": "v1", "kind": "Job", "plural": "jobs"}
    integrations = Integrations()
    integrations.observe(seen(document(kind=kind)))
    assert count_of_jobs(integrations) == "spec.replicas"
    integrations.observe(seen(document(kind=kind), deleted=True))
    assert integrations.find(group="batch", plural="jobs") is JOB


def count_of_jobs(integrations: Integrations) -> object:
    found = integrations.find(group="batch", plural="jobs")
    assert found is not None
    return found.document.spec.pod_sets[0].count


OTHER = document(podSets=[{"template": "spec.template", "count": "7"}])
OLDER = seen(GOOD, creationTimestamp="2026-01-01T00:00:00Z")
LATER = seen(OTHER, name="another", creationTimestamp="2026-01-01T00:00:01Z")


@pytest.mark.parametrize("order", [(OLDER, LATER), (LATER, OLDER)], ids=["in order", "restarted"])
def test_older_of_two_documents_for_a_kind_is_used_and_the_later_is_reported(
    order: tuple[Observed, Observed],
) -> None:
    integrations = Integrations()
    for observed in order:
        integrations.observe(observed)
    told = {
        standing.obj["metadata"]["name"]: standing.problem for standing in integrations.states()
    }
    assert told == {
        "gadgets.example.com": None,
        "another": "Integration gadgets.example.com speaks for that kind already",
    }
    assert count_of(integrations) == "spec.replicas"


@pytest.mark.parametrize("turned", [False, True])
def test_first_name_is_used_of_two_documents_of_one_second(turned: bool) -> None:
    at = "2026-01-01T00:00:00Z"
    order = [seen(GOOD, creationTimestamp=at), seen(OTHER, name="a", creationTimestamp=at)]
    integrations = Integrations()
    for observed in order[::-1] if turned else order:
        integrations.observe(observed)
    assert count_of(integrations) == "7"


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        ([{"uid": "a"}, {"uid": "b", "controller": True}], "b"),
        ([{"uid": "a", "controller": False}], ""),
        (None, ""),
    ],
)
def test_controller_is_the_owner_with_controller_true(
    owners: list[Object] | None, uid: str
) -> None:
    assert controller_uid({"metadata": {"ownerReferences": owners}}) == uid


def test_later_document_is_used_after_the_older_is_deleted_or_changes_its_kind() -> None:
    kind = {"group": "example.com", "version": "v1", "kind": "Widget", "plural": "widgets"}
    moved = seen(document(kind=kind), creationTimestamp="2026-01-01T00:00:00Z")
    for end in (OLDER.model_copy(update={"deleted": True}), moved):
        integrations = Integrations()
        for observed in (OLDER, LATER, end):
            integrations.observe(observed)
        assert count_of(integrations) == "7"
        assert all(standing.problem is None for standing in integrations.states())


def test_object_that_is_no_integration_is_ignored() -> None:
    observed = seen(GOOD).model_copy(update={"plural": "jobs", "group": "batch"})
    assert Integrations().observe(observed) is None


MAKER = document(children=[{"group": "batch", "kind": "Job"}])
OWNERS: dict[str, tuple[Object, Integration, bool]] = {
    "a Job of a JobSet": ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}, JOB, True),
    "a run of a JobSet": (
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"},
        PIPELINE_RUN,
        False,
    ),
    "a Job of a Job": ({"apiVersion": "batch/v1", "kind": "Job"}, JOB, False),
    "a Job of a run": ({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}, JOB, False),
    "a run of a run": ({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}, PIPELINE_RUN, False),
    "a run of a task": ({"apiVersion": "tekton.dev/v1", "kind": "TaskRun"}, PIPELINE_RUN, False),
    "a Job of a kind that declares it": (
        {"apiVersion": "example.com/v1", "kind": "Gadget"},
        JOB,
        True,
    ),
    "a JobSet of that kind": ({"apiVersion": "example.com/v1", "kind": "Gadget"}, JOB_SET, False),
    "a Job of that name in another group": (
        {"apiVersion": "b.com/v1", "kind": "Gadget"},
        JOB,
        False,
    ),
    "a Job of a kind without document": (
        {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
        JOB,
        False,
    ),
}


@pytest.mark.parametrize(("owner", "child", "waits"), OWNERS.values(), ids=OWNERS.keys())
def test_job_waits_with_a_controller_that_makes_such_jobs(
    owner: Object, child: Integration, waits: bool
) -> None:
    integrations = Integrations()
    integrations.observe(seen(MAKER))
    owned = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
    assert integrations.has_waiting_controller(owned, child.kind) is waits
    mentioned = {"metadata": {"ownerReferences": [owner]}}
    assert not integrations.has_waiting_controller(mentioned, child.kind)


@pytest.mark.parametrize(
    ("api_version", "kind", "is_left_alone"),
    [
        ("batch/v1", "Job", True),
        ("kubeflow.org/v2beta1", "MPIJob", True),  # It makes a Job, and pods beside it.
        ("jobset.x-k8s.io/v1alpha2", "JobSet", False),
        ("tekton.dev/v1", "PipelineRun", False),
        ("tekton.dev/v1", "TaskRun", False),
        ("apps/v1", "ReplicaSet", False),
    ],
)
def test_pod_is_left_alone_only_with_a_controller_that_makes_pods_and_waits(
    api_version: str, kind: str, is_left_alone: bool
) -> None:
    """Others a tenant has written: what they wait for is not for this pod."""
    integrations = Integrations()
    for opted in opted_documents(("pod",)):
        integrations.apply(opted)
    pods = integrations.find(group="", kind="Pod")
    assert pods is not None
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    pod = {"metadata": {"name": "one", "ownerReferences": [owner]}}
    assert integrations.runs_with_controller(pod, pods) is is_left_alone


@pytest.mark.parametrize("kind", ["PipelineRun", "MPIJob"])
def test_pods_and_task_runs_are_no_jobs_of_a_controller(kind: str) -> None:
    by_kind = {one.kind.kind: one for one in Integrations()}
    assert by_kind[kind].makes_jobs is (kind == "MPIJob")
