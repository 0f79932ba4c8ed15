"""What an admission adds to the pods of a job: of its flavors, its queues and its checks."""

from typing import Any

import pytest

from services.patcher.jobs.pod_set_infos import pod_set_infos
from shared.contracts.kube.bodies import as_body
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.integrations import JOB, ObjectError, PodSetInfo
from tests.unit.patcher.stage import NOON

Json = dict[str, Any]
FLAVOR = {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot"}]}
QUEUES = {
    "kueue.x-k8s.io/cluster-queue-name": "cq",
    "kueue.x-k8s.io/local-queue-name": "team-q",
    "kueue.x-k8s.io/podset": "main",
}


OTHER = {"name": "other", "labels": {"of": "other"}, "tolerations": [{"key": "other"}]}
"""What a check asks for another pod set."""


def infos(
    *updates: Json,
    template: Json | None = None,
    cluster_queue: str = "cq",
    queue: str = "team-q",
    decided_queue: str = "",
) -> PodSetInfo:
    """Of the one pod set of a workload whose checks ask for these updates, each check for one."""
    flavors = {"cpu": "f", "memory": "f"}
    assigned = PodSetAssignment(name="main", count=1, flavors=flavors, usage={"cpu": "1"})
    admission = Admission(
        cluster="hub", namespace="ns", name="w", uid="u", state="admitted", term=1, number=1,
        decided_at=NOON, cluster_queue=cluster_queue, pod_sets=[assigned], queue=decided_queue,
    )  # fmt: skip
    checks = [
        {"name": f"check-{n}", "podSetUpdates": [{"name": "main", **update}, OTHER]}
        for n, update in enumerate(updates)
    ]
    pod_set = {"name": "main", "template": template or {}}
    spec = {"queueName": queue, "podSets": [pod_set]}
    workload = as_body({"spec": spec, "status": {"admissionChecks": checks}})
    [info] = pod_set_infos(admission, workload, {"f": as_body({"spec": FLAVOR})})
    return info


def test_updates_of_all_checks_are_merged_with_the_flavor() -> None:
    given = infos(
        {"labels": {"a": "1"}, "nodeSelector": {"zone": "x", "pool": "spot"}},
        {"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}, "tolerations": [{"key": "z"}]},
        {"tolerations": [{"key": "z"}, {"key": "spot"}]},
    )
    assert given == PodSetInfo(
        name="main",
        count=1,
        labels={**QUEUES, "a": "1", "b": "2"},
        annotations={"c": "3"},
        node_selector={"pool": "spot", "zone": "x"},
        tolerations=({"key": "spot"}, {"key": "z"}),
    )


def test_toleration_that_the_pods_have_is_not_added_again() -> None:
    own = {"key": "own"}
    given = infos({"tolerations": [own]}, template={"spec": {"tolerations": [own]}})
    assert given.tolerations == ({"key": "spot"},)


def test_pods_get_the_queue_of_the_decision_where_the_workload_names_none() -> None:
    assert infos(queue="", decided_queue="team-q").labels == QUEUES


CONFLICTS: dict[str, tuple[list[Json], Json | None, str]] = {
    "with a flavor": (
        [{"nodeSelector": {"pool": "big"}}],
        None,
        r"'check-0': podSetUpdates\[main\].nodeSelector\[pool\]: 'big': conflicts with 'spot'",
    ),
    "with another check": (
        [{"labels": {"a": "1"}}, {"labels": {"a": "2"}}],
        None,
        r"'check-1': podSetUpdates\[main\].labels\[a\]: '2': conflicts with '1'",
    ),
    "with a label of ours": ([{"labels": {"kueue.x-k8s.io/podset": "x"}}], None, "'main'"),
    "with the pod template": (
        [{"annotations": {"a": "1"}}],
        {"metadata": {"annotations": {"a": "0"}}},
        r"annotations\[a\]: '1': conflicts with '0'",
    ),
}


@pytest.mark.parametrize(("updates", "template", "message"), CONFLICTS.values(), ids=CONFLICTS)
def test_conflict_is_refused(updates: list[Json], template: Json | None, message: str) -> None:
    with pytest.raises(ObjectError, match=message):
        infos(*updates, template=template)


def test_queue_name_that_is_no_label_value_is_left_out() -> None:
    given = infos(cluster_queue="x" * 64, queue="")
    assert given.labels == {"kueue.x-k8s.io/podset": "main"}


@pytest.mark.parametrize("metadata", [{}, {"metadata": {"labels": {"job-name": "j"}}}])
def test_labels_are_given_with_the_release_and_taken_back_with_the_stop(metadata: Json) -> None:
    template = {**metadata, "spec": {"containers": []}}
    held: Json = {"metadata": {"name": "j", "uid": "u"}, "spec": {"suspend": True}}
    held["spec"]["template"] = template
    operations = JOB.release(held, [infos({"annotations": {"c": "3"}}, template=template)])
    added = {o["path"]: o["value"] for o in operations if "/metadata/" in o["path"]}
    if metadata:
        labels = added["/spec/template/metadata/labels"]
        assert labels == {"job-name": "j", **QUEUES}
    else:
        [given] = [o["value"] for o in operations if o["path"] == "/spec/template/metadata"]
        assert given == {"labels": QUEUES, "annotations": {"c": "3"}}
    stopped: Json = {**held, "spec": {"suspend": True, "template": {**template}}}
    stopped["spec"]["template"]["metadata"] = {"labels": {"job-name": "j", **QUEUES}}
    restored = JOB.restore(stopped, [{"name": "main", "template": {"spec": {"containers": []}}}])
    assert (restored or [])[-1]["value"] == {"job-name": "j"}
