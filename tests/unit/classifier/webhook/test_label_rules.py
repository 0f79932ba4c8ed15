"""Kueue's rules for labels and topologies hold for every kind that waits, at its creation and later."""

import re
from copy import deepcopy
from typing import Any

import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.mutation import mutate
from services.classifier.webhook.updates import review_update
from shared.contracts.kube.names import (
    GATED_BY,
    MANAGED_LABEL,
    MAX_EXECUTION,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL,
    QUEUE,
)
from shared.contracts.webhook import PATCHER_USER
from shared.integrations import Integrations, opted_documents
from shared.integrations.pointers import written
from tests.unit.classifier.webhook.objects import rules

Json = dict[str, Any]
KINDS = Integrations()
for document in opted_documents(("deployment",)):
    KINDS.apply(document)
CONTEXT = NamespaceContext(integrations=KINDS)
PODS = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
Kind = tuple[str, str, Json]
JOB_SET: Kind = ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": []})
TRAINING = (
    "kubeflow.org/v1",
    "PyTorchJob",
    {"pytorchReplicaSpecs": {"Worker": {"template": PODS}}},
)
RAY = ("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": PODS}})
POD = ("v1", "Pod", PODS["spec"])
DEPLOYMENT = ("apps/v1", "Deployment", {"template": PODS})
ALL = {kind[1]: kind for kind in (JOB_SET, TRAINING, RAY, POD, DEPLOYMENT)}


def an(kind: Kind, *, runs: bool = False, **labels: Any) -> Json:
    """An object of that kind; labels by the last part of their name, None: without it."""
    version, name, spec = kind
    obj: Json = {"apiVersion": version, "kind": name, "spec": deepcopy(spec)}
    given = {QUEUE: "q"} | {NAMES[key]: value for key, value in labels.items()}
    present = {key: value for key, value in given.items() if value is not None}
    obj["metadata"] = {"name": "x", "namespace": "n", "uid": "u", "labels": present}
    if kind == DEPLOYMENT:
        obj["status"] = {"readyReplicas": int(runs)}
    elif kind == POD:
        gates = [{"name": "kueue.x-k8s.io/admission"}]
        obj["spec"]["schedulingGates"] = [] if runs else gates
        present[MANAGED_LABEL] = "true"
    elif kind == TRAINING:
        obj["spec"]["runPolicy"] = {"suspend": not runs}
    else:
        obj["spec"]["suspend"] = not runs
    return obj


NAMES = {
    "queue": QUEUE,
    "seconds": MAX_EXECUTION,
    "priority": PRIORITY_CLASS_LABEL,
    "prebuilt": PREBUILT_WORKLOAD,
}
NONSENSE = {
    "a queue that can have no such name": ({"queue": "indexed_job"}, r"queue-name\]: .*RFC 1123"),
    "a Workload that can have no such name": ({"prebuilt": "A"}, r"workload-name\]: .*RFC 1123"),
    "no number of seconds": ({"seconds": "1h"}, r"max-exec-time-seconds\]: .*an integer"),
    "no time at all": ({"seconds": "0"}, r"max-exec-time-seconds\]: .*greater than 0"),
}


@pytest.mark.parametrize(("labels", "why"), NONSENSE.values(), ids=NONSENSE.keys())
@pytest.mark.parametrize("kind", ALL.values(), ids=ALL.keys())
def test_label_that_names_nothing_is_refused_at_creation(
    kind: Kind, labels: Json, why: str
) -> None:
    with pytest.raises(RefusedError, match=rf"^{kind[1]} n/x: .*{why}"):
        mutate(an(kind, **labels), rules(), context=CONTEXT)


def changed(old: Json, new: Json, user: str = "jane") -> None:
    group, kind = old["apiVersion"].rpartition("/")[0], old["kind"]
    integration = KINDS.find(group=group, kind=kind)
    assert integration is not None
    review_update(new, old, integration, user=user, context=CONTEXT)


FIXED: dict[str, tuple[Json, Json, str]] = {
    "another queue": ({}, {"queue": "r"}, r"queue-name\]: .*immutable"),
    "a priority": ({}, {"priority": "p"}, r"priority-class\]: .*cannot be added"),
    "no priority": ({"priority": "p"}, {}, r"priority-class\]: .*cannot be removed"),
    "another time": ({}, {"seconds": "5"}, r"max-exec-time-seconds\]: .*immutable"),
    "a queue of no name": ({}, {"queue": "Q"}, r"queue-name\]: .*RFC 1123"),
}


@pytest.mark.parametrize(("before", "now", "why"), FIXED.values(), ids=FIXED.keys())
@pytest.mark.parametrize("kind", ALL.values(), ids=ALL.keys())
def test_labels_of_what_runs_stay(kind: Kind, before: Json, now: Json, why: str) -> None:
    with pytest.raises(RefusedError, match=rf"^{kind[1]} n/x: .*{why}"):
        changed(an(kind, runs=True, **before), an(kind, runs=True, **now))


@pytest.mark.parametrize("runs", [True, False], ids=["while it runs", "while it waits"])
@pytest.mark.parametrize("kind", ALL.values(), ids=ALL.keys())
def test_queue_is_not_taken_away_from_what_runs_nor_from_what_makes_pods(
    kind: Kind, runs: bool
) -> None:
    old, new = an(kind, runs=runs), an(kind, runs=runs, queue=None)
    if runs or kind == DEPLOYMENT:
        with pytest.raises(RefusedError, match=r"queue-name\]"):
            changed(old, new)
    else:
        changed(old, new)


@pytest.mark.parametrize("kind", ALL.values(), ids=ALL.keys())
def test_what_waits_goes_to_another_queue_with_another_priority(
    kind: Kind,
) -> None:
    new = an(kind, queue="r", priority="high", seconds="9")
    changed(an(kind, priority="low"), new)


@pytest.mark.parametrize("kind", [JOB_SET, TRAINING, POD], ids=["JobSet", "PyTorchJob", "Pod"])
def test_what_is_deleted_or_was_wrong_before_may_be_changed(kind: Kind) -> None:
    old, new = an(kind, runs=True), an(kind, runs=True, queue="r")
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    changed(old, new)
    wrong = an(kind, queue="Q")
    changed(wrong, {**wrong, "metadata": {**wrong["metadata"], "annotations": {"a": "b"}}})


GATES = {
    "one that is empty": ("a.io/b,,a.io/c", "cannot contain empty gate names"),
    "one that comes twice": ("a.io/b, a.io/b", "duplicate gate name: a.io/b"),
    "one without a domain": ("budget", "budget: must be a domain-prefixed path"),
    "one of no domain": ("A_B/c", "A_B/c: must be a domain-prefixed path"),
    "one that is too long": ("a.io/" + 60 * "b", "no more than 63 characters"),
}


def gated(kind: Kind, gates: str | None) -> Json:
    obj = an(kind)
    obj["metadata"]["annotations"] = {} if gates is None else {GATED_BY: gates}
    return obj


@pytest.mark.parametrize(("gates", "why"), GATES.values(), ids=GATES.keys())
@pytest.mark.parametrize("kind", [JOB_SET, POD], ids=["JobSet", "Pod"])
def test_gate_that_no_controller_could_remove_is_refused(kind: Kind, gates: str, why: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(why)):
        mutate(gated(kind, gates), rules(), context=CONTEXT)


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (None, "a.io/b", "cannot add admission gate after creation"),
        ("a.io/b", "a.io/c", "can only remove gates, not add new ones"),
        ("a.io/b,a.io/c", "a.io/c", None),
        ("a.io/b", " ", None),
        ("a.io/b", None, None),
    ],
)
def test_gates_only_go(before: str | None, now: str | None, why: str | None) -> None:
    old, new = gated(JOB_SET, before), gated(JOB_SET, now)
    if why is None:
        changed(old, new)
        return
    with pytest.raises(RefusedError, match=why):
        changed(old, new)


def test_name_of_a_workload_in_an_annotation_is_one_and_stays_while_its_job_runs() -> None:
    def named(name: str, *, runs: bool = False) -> Json:
        obj = an(JOB_SET, runs=runs)
        obj["metadata"]["annotations"] = {PREBUILT_WORKLOAD: name}
        return obj

    with pytest.raises(RefusedError, match=r"annotations\[.*workload-name\]: .*RFC 1123"):
        mutate(named("A"), rules(), context=CONTEXT)
    changed(named("a"), named("b"))
    with pytest.raises(RefusedError, match=r"workload-name\]: .*immutable"):
        changed(named("a", runs=True), named("b", runs=True))


def test_job_keeps_a_queue_where_others_get_a_default_one() -> None:
    old, new = an(JOB_SET), an(JOB_SET, queue=None)
    integration = KINDS.find(group="jobset.x-k8s.io", kind="JobSet")
    assert integration is not None
    default = NamespaceContext(integrations=KINDS, default_queue="default")
    with pytest.raises(RefusedError, match="must not be empty in namespace with default queue"):
        review_update(new, old, integration, user="jane", context=default)
    review_update(an(JOB_SET, queue="r"), old, integration, user="jane", context=default)


BOTH = {f"kueue.x-k8s.io/podset-{how}-topology": "rack" for how in ("preferred", "required")}
SLICE = "kueue.x-k8s.io/podset-slice"
Path = tuple[str, ...]
TEMPLATES: dict[str, tuple[Kind, Path, str]] = {
    "TFJob": (
        ("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": {"Chief": {"template": PODS}}}),
        ("spec", "tfReplicaSpecs", "Chief", "template"),
        "chief",
    ),
    "PyTorchJob": (TRAINING, ("spec", "pytorchReplicaSpecs", "Worker", "template"), "worker"),
    "RayCluster": (RAY, ("spec", "headGroupSpec", "template"), "head"),
    "Deployment": (DEPLOYMENT, ("spec", "template"), "main"),
    "Pod": (POD, (), "main"),
}


def asking(kind: Kind, path: Path, annotations: Json) -> Json:
    """An object of that kind whose pods have these annotations."""
    made: Json = written(an(kind), (*path, "metadata", "annotations"), annotations)
    return made


@pytest.mark.parametrize(("kind", "path", "pods"), TEMPLATES.values(), ids=TEMPLATES.keys())
def test_pods_ask_for_one_topology_at_most(kind: Kind, path: Path, pods: str) -> None:
    why = rf"^{kind[1]} n/x: pods of {pods}: metadata.annotations: .*more than one topology"
    with pytest.raises(RefusedError, match=why):
        mutate(asking(kind, path, BOTH), rules(), context=CONTEXT)
    one = {key: BOTH[key] for key in list(BOTH)[:1]}
    mutate(asking(kind, path, one), rules(), context=CONTEXT)
    unqueued = asking(kind, path, BOTH)
    del unqueued["metadata"]["labels"]
    assert not mutate(unqueued, rules(), context=CONTEXT).patch


@pytest.mark.parametrize(
    ("kind", "path"),
    [entry[:2] for name, entry in TEMPLATES.items() if name != "Pod"],
    ids=[name for name in TEMPLATES if name != "Pod"],
)
def test_change_asks_for_no_second_topology_but_may_leave_it(kind: Kind, path: Path) -> None:
    wrong = asking(kind, path, BOTH)
    with pytest.raises(RefusedError, match="more than one topology"):
        changed(an(kind), wrong)
    changed(wrong, written(wrong, ("spec", "other"), 1))


def test_refusal_names_all_errors_and_bounds_slices_by_the_number_of_pods() -> None:
    asked = {f"{SLICE}-required-topology": "rack", f"{SLICE}-size": "30"}
    pods = {"metadata": {"annotations": asked}, "spec": PODS["spec"]}
    jobs = {
        "name": "main",
        "replicas": 2,
        "template": {"spec": {"parallelism": 3, "template": pods}},
    }
    job_set = an((*JOB_SET[:2], {"replicatedJobs": [jobs]}), queue="indexed_job")
    said = rf'queue-name\]: .*; pods of main: .*\[{SLICE}-size\]: Invalid value: "30": .* count 6$'
    with pytest.raises(RefusedError, match=said):
        mutate(job_set, rules(), context=CONTEXT)
    deployment = asking(DEPLOYMENT, ("spec", "template"), asked)
    mutate(written(deployment, ("spec", "replicas"), 0), rules(), context=CONTEXT)


def test_patcher_is_not_asked_about_labels() -> None:
    context = NamespaceContext(integrations=KINDS, patchers=frozenset({PATCHER_USER}))
    integration = KINDS.find(group="jobset.x-k8s.io", kind="JobSet")
    assert integration is not None
    old, new = an(JOB_SET, runs=True), an(JOB_SET, runs=True, queue="r")
    review_update(new, old, integration, user=PATCHER_USER, context=context)
