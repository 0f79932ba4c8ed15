"""Which writes the API server asks the classifier about, by two evaluators of CEL.

`tests/contract/kubernetes` creates the same configuration in a real API server, which compiles it.
"""

from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel

from services.ctl.setup.match_conditions import (
    CHANGES_ADMISSION,
    CHANGES_GATE,
    CHANGES_RULES,
    CHANGES_SPEC,
    CHANGES_TEMPLATE,
    COSCHEDULED_BY_CLAIM,
    NOT_OUR_OWN,
    NOT_OUR_STATUS,
)
from services.simulator.http.match_conditions import ConditionError, match
from shared.contracts.kube.names import (
    GATED_BY,
    MANAGED_LABEL,
    MAX_EXECUTION,
    MIN_PARALLELISM,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL,
    QUEUE,
    REQUESTS_PREFIX,
    USER_PENDING,
)
from shared.contracts.webhook import FIELD_MANAGER, PATCHER_USER

KUBERNETES = Path(__file__).parents[3] / "deploy/kubernetes"
MANIFESTS = ("base/webhook/classifier.yaml", "components/pods/webhook.yaml")
Json = dict[str, Any]

CPU = f"{REQUESTS_PREFIX}cpu"
ROLE = "kueue.x-k8s.io/role-hash"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "u", "controller": True}


def a_job(**metadata: Any) -> Json:
    return {
        "metadata": {"name": "x", "namespace": "team-a", "uid": "u-1", **metadata},
        "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "c"}]}}},
        "status": {},
    }


def changed(path: str, value: Any, obj: Json | None = None) -> Json:
    """The object with another value at a path; None removes it."""
    first, _, rest = path.partition("/")
    obj = dict(obj or a_job())
    if rest:
        obj[first] = changed(rest, value, obj.get(first) or {"": None})
        obj[first].pop("", None)
    elif value is None:
        obj.pop(first, None)
    else:
        obj[first] = value
    return obj


QUEUED = a_job(labels={QUEUE: "q", PRIORITY_CLASS_LABEL: "p"}, annotations={CPU: "1"})

ASKED: dict[str, tuple[Json, Json]] = {
    "it is un-suspended": (a_job(), changed("spec/suspend", False)),
    "suspend is removed": (a_job(), changed("spec/suspend", None)),
    "it is suspended": (changed("spec/suspend", False), a_job()),
    "a run is un-paused": (changed("spec/status", "PipelineRunPending"), a_job()),
    "a run is cancelled": (a_job(), changed("spec/status", "Cancelled")),
    "its queue": (QUEUED, changed("metadata/labels", {QUEUE: "r"}, QUEUED)),
    "its first queue": (a_job(), a_job(labels={QUEUE: "q"})),
    "an empty queue": (a_job(), a_job(labels={QUEUE: ""})),
    "its queue is removed": (
        QUEUED,
        changed("metadata/labels", {PRIORITY_CLASS_LABEL: "p"}, QUEUED),
    ),
    "its priority": (QUEUED, changed("metadata/labels", {QUEUE: "q"}, QUEUED)),
    "its time": (QUEUED, a_job(labels={**QUEUED["metadata"]["labels"], MAX_EXECUTION: "5"})),
    "its gates": (a_job(annotations={GATED_BY: "a.io/b"}), a_job()),
    "the Workload that it names": (a_job(), a_job(annotations={PREBUILT_WORKLOAD: "w"})),
    "what it requests": (QUEUED, changed("metadata/annotations", {CPU: "2"}, QUEUED)),
    "it requests less": (QUEUED, changed("metadata/annotations", None, QUEUED)),
    "it requests more": (
        QUEUED,
        changed("metadata/annotations", {CPU: "1", f"{CPU}2": "1"}, QUEUED),
    ),
    "its pods": (a_job(), changed("spec/template", {"spec": {}})),
    "its jobs": (a_job(), changed("spec/replicatedJobs", [{"name": "a"}])),
    "its controller": (a_job(), a_job(ownerReferences=[OWNER])),
    "no controller": (a_job(ownerReferences=[OWNER]), a_job()),
    "the mark of our hold goes": (a_job(annotations={USER_PENDING: "false"}), a_job()),
    "the mark of our hold becomes another": (
        a_job(annotations={USER_PENDING: "false"}),
        a_job(annotations={USER_PENDING: "true"}),
    ),
}

PASSES: dict[str, tuple[Json, Json]] = {
    "a finalizer is added": (QUEUED, changed("metadata/finalizers", ["tekton.dev/f"], QUEUED)),
    "a finalizer is removed": (
        changed("metadata/finalizers", ["batch/f"], QUEUED),
        changed("metadata/finalizers", None, QUEUED),
    ),
    "a label of another controller": (
        QUEUED,
        changed("metadata/labels/tekton.dev~pipeline", "p", QUEUED),
    ),
    "a first label": (a_job(), a_job(labels={"a": "b"})),
    "a first annotation": (a_job(), a_job(annotations={"chains.tekton.dev/signed": "true"})),
    "an annotation of another controller": (
        QUEUED,
        changed("metadata/annotations", {CPU: "1", "results.tekton.dev/log": "x"}, QUEUED),
    ),
    "our own mark comes": (
        QUEUED,
        changed("metadata/annotations", {CPU: "1", USER_PENDING: "false"}, QUEUED),
    ),
    "another annotation beside our mark": (
        a_job(annotations={USER_PENDING: "false"}),
        a_job(annotations={USER_PENDING: "false", "a": "b"}),
    ),
    "its status": (QUEUED, changed("status/active", 1, QUEUED)),
    "its deletion": (QUEUED, changed("metadata/deletionTimestamp", "2026-01-01T00:00:00Z", QUEUED)),
    "nothing": (QUEUED, QUEUED),
    "an object without a spec": ({"metadata": {"name": "x"}}, {"metadata": {"name": "x"}}),
}


def review(old: Json | None, new: Json, *, user: str = "jane") -> Json:
    return {
        "object": new,
        "oldObject": old,
        "operation": "UPDATE" if old is not None else "CREATE",
        "userInfo": {"username": user},
    }


def by_celpy(condition: Json, request: Json) -> bool:
    """The answer of cel-python, an evaluator of its own."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(condition["expression"]))
    activation = {name: json_to_cel(request[name]) for name in ("object", "oldObject")}
    return bool(program.evaluate({**activation, "request": json_to_cel(request)}))


def is_asked(condition: Json, request: Json) -> bool:
    answers = {match([condition], request), by_celpy(condition, request)}
    assert len(answers) == 1, "two evaluators differ"
    return answers.pop()


@pytest.mark.parametrize(("old", "new"), ASKED.values(), ids=ASKED)
def test_classifier_is_asked_about_what_decides_about_admission(old: Json, new: Json) -> None:
    assert is_asked(CHANGES_ADMISSION, review(old, new))


@pytest.mark.parametrize(
    "change", ["its queue", "its time", "its gates", "the Workload that it names"]
)
def test_classifier_is_asked_about_what_rules_of_every_kind_read(change: str) -> None:
    assert is_asked(CHANGES_SPEC, review(*ASKED[change]))


@pytest.mark.parametrize(("old", "new"), PASSES.values(), ids=PASSES)
def test_other_writes_pass_without_the_classifier(old: Json, new: Json) -> None:
    assert not is_asked(CHANGES_ADMISSION, review(old, new))


JOBS = {name: pair for name, pair in PASSES.items() if "spec" in pair[0]}


@pytest.mark.parametrize(("old", "new"), JOBS.values(), ids=JOBS)
def test_writes_of_other_controllers_pass_without_validation(old: Json, new: Json) -> None:
    assert not is_asked(CHANGES_RULES, review(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, QUEUED),
        (QUEUED, changed("spec/parallelism", 2, QUEUED)),
        (QUEUED, changed("metadata/labels", {QUEUE: "r", PRIORITY_CLASS_LABEL: "p"}, QUEUED)),
        (QUEUED, changed("metadata/annotations", {CPU: "1", MIN_PARALLELISM: "1"}, QUEUED)),
    ],
    ids=["its creation", "its spec", "its queue", "its smallest size"],
)
def test_what_rules_read_is_validated(old: Json | None, new: Json) -> None:
    assert is_asked(CHANGES_RULES, review(old, new))


GATED = a_job(labels={QUEUE: "q", MANAGED_LABEL: "true"}) | {
    "spec": {"schedulingGates": [{"name": "g"}]}
}


@pytest.mark.parametrize(
    ("new", "asked"),
    [
        (changed("spec/schedulingGates", [], GATED), True),
        (changed("spec/schedulingGates", None, GATED), True),
        (changed("metadata/labels", {QUEUE: "q"}, GATED), True),
        (changed("metadata/ownerReferences", [OWNER], GATED), True),
        (changed("metadata/annotations", {ROLE: "a"}, GATED), True),
        (changed("metadata/annotations", {"example.com/ip": "::1"}, GATED), False),
        (changed("spec/nodeName", "n", GATED), False),
        (changed("metadata/finalizers", ["f"], GATED), False),
        (changed("status/phase", "Running", GATED), False),
    ],
    ids=[
        *("its gate", "no gates", "its label", "its owner", "its role in a group"),
        *("an annotation of others", "its node", "a finalizer", "its status"),
    ],
)
def test_pod_is_reviewed_when_its_gate_owner_or_mark_changes(new: Json, asked: bool) -> None:
    assert is_asked(CHANGES_GATE, review(GATED, new)) is asked


def test_what_makes_pods_is_reviewed_when_its_pods_may_change() -> None:
    assert is_asked(CHANGES_TEMPLATE, review(None, QUEUED))
    assert is_asked(CHANGES_TEMPLATE, review(QUEUED, changed("spec/template", {}, QUEUED)))
    assert not is_asked(CHANGES_TEMPLATE, review(QUEUED, changed("status/replicas", 1, QUEUED)))


def test_patcher_is_not_asked_about() -> None:
    for user, asked in ((PATCHER_USER, False), ("jane", True)):
        assert is_asked(NOT_OUR_OWN, review(a_job(), a_job(), user=user)) is asked


@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, True), ({"fieldManager": "x"}, True), ({"fieldManager": FIELD_MANAGER}, False)],
)
def test_our_statuses_are_not_asked_about_where_all_have_one_name(
    options: Json, *, asked: bool
) -> None:
    write = review(a_job(), a_job()) | {"options": options}
    assert is_asked(NOT_OUR_STATUS, write) is asked
    del write["options"]
    assert is_asked(NOT_OUR_STATUS, write), "whoever does not say who writes is asked about"


def test_large_annotations_cost_nothing_where_they_do_not_change() -> None:
    """An API server gives all conditions a budget; who exceeds it would block finalizers, too."""
    many = {f"{n}": "" for n in range(50_000)}
    old = a_job(annotations=many, finalizers=["f"])
    assert not match([CHANGES_ADMISSION], review(old, a_job(annotations=many)))


def test_condition_that_fails_is_an_error() -> None:
    with pytest.raises(ConditionError, match="never"):
        match(
            [{"name": "never", "expression": "object.nothing.at.all == 1"}], review(None, a_job())
        )


def test_manifests_have_these_conditions() -> None:
    found = {
        webhook["name"]: webhook.get("matchConditions", [])
        for manifest in MANIFESTS
        for document in yaml.safe_load_all((KUBERNETES / manifest).read_text())
        for webhook in document.get("webhooks", [])
    }
    assert {
        name: [{**c, "expression": " ".join(c["expression"].split())} for c in conditions]
        for name, conditions in found.items()
    } == {
        "classifier.sluicegate.dev": [],
        "tasks.classifier.sluicegate.dev": [COSCHEDULED_BY_CLAIM],
        "updates.classifier.sluicegate.dev": [NOT_OUR_OWN, CHANGES_ADMISSION],
        "kinds.updates.classifier.sluicegate.dev": [NOT_OUR_OWN, CHANGES_SPEC],
        "pods.classifier.sluicegate.dev": [],
        "updates.pods.classifier.sluicegate.dev": [NOT_OUR_OWN, CHANGES_GATE],
        "templates.pods.classifier.sluicegate.dev": [CHANGES_TEMPLATE],
        "finalizers.classifier.sluicegate.dev": [],
        "validation.sluicegate.dev": [NOT_OUR_OWN],
        "jobs.validation.sluicegate.dev": [NOT_OUR_OWN, CHANGES_RULES],
    }
