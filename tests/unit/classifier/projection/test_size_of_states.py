"""A state repeats little of what its object says, and only when that matters to somebody."""

from typing import Any

import pytest

from services.classifier.projection.pods.requests import resolve_pod_sets
from services.classifier.projection.pods.size import REQUESTS_BYTES_MAX
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.names import COSCHEDULE, MAX_EXECUTION, ORIGIN
from shared.contracts.messages.workloads import WorkloadState
from tests.unit.classifier.projection.objects import QUEUE, Json, job, seen

MEGABYTE = {f"{'p' * 63}.example.com/{number:050d}": "v" * 63 for number in range(5000)}
SMALL_BYTES = 8 << 10


@pytest.fixture
def projector() -> Projector:
    return Projector("hub")


def states(projector: Projector, number: int, **parts: Any) -> list[WorkloadState]:
    """What is published when a Job is seen with these parts."""
    version = {"resourceVersion": str(number)}
    projector.observe(seen(kinds.JOB, job(metadata=version, **parts)))
    return [change.state for change in projector.changes()]


def test_labels_of_a_megabyte_are_not_repeated(projector: Projector) -> None:
    [state] = states(projector, 1, labels={**MEGABYTE, **QUEUE, ORIGIN: "hub"})
    assert len(state.encode()) < SMALL_BYTES
    assert state.labels[ORIGIN] == "hub"


def pods(**spec: Any) -> Json:
    """The spec of a Job whose pods have these fields beside a container."""
    requests = {"cpu": "1", **spec.pop("requests", {})}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return {"template": {"spec": {"containers": containers, **spec}}}


LONG = "x" * 200_000
WIDE = [{"key": f"example.com/{n:04d}", "operator": "Exists"} for n in range(6000)]
PLACES = "spec.podSets: nodeSelector, tolerations and nodeAffinity have"
LARGE: dict[str, tuple[Json, str]] = {
    "tolerations": ({"spec": pods(tolerations=WIDE)}, PLACES),
    "node selector": (
        {"spec": pods(nodeSelector={f"example.com/{n:04d}": "v" * 63 for n in range(3000)})},
        PLACES,
    ),
    "node affinity": (
        {"spec": pods(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": WIDE}]}}})},
        PLACES,
    ),
    "resources": (
        {"spec": pods(requests={f"example.com/{n:05d}": "1" for n in range(9000)})},
        "spec.podSets: resources.requests have",
    ),
    "names that are no resources": (
        {"spec": pods(requests={f"example.com/{LONG}{n}": "1" for n in range(9)})},
        "spec.podSets: resources.requests have",
    ),
    "gates": ({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": LONG}}}, ""),
    "mode of coscheduling": ({"metadata": {"annotations": {COSCHEDULE: LONG}}}, ""),
    "a time limit": ({"labels": {**QUEUE, MAX_EXECUTION: LONG}}, "characters more"),
}  # fmt: skip


@pytest.mark.parametrize("what", LARGE)
def test_large_object_has_a_small_state_that_says_why_it_waits(
    projector: Projector, what: str
) -> None:
    parts, problem = LARGE[what]
    metadata = {**parts.get("metadata", {}), "resourceVersion": "1"}
    projector.observe(seen(kinds.JOB, job(**{**parts, "metadata": metadata})))
    [change] = projector.changes()
    state = change.state
    assert len(state.encode()) < REQUESTS_BYTES_MAX + SMALL_BYTES
    assert problem in (state.inadmissible or "")
    assert state.pod_sets[0].requests["cpu"] == "1"


def test_largest_honest_pod_sets_are_admissible() -> None:
    term = [
        {"key": f"example.com/{n}", "operator": "In", "values": ["v" * 30] * 5} for n in range(5)
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": term}] * 5}}}  # fmt: skip
    selector = {f"example.com/{n}": "v" * 30 for n in range(10)}
    spec = pods(affinity=affinity, tolerations=WIDE[:20], nodeSelector=selector)["template"]["spec"]
    raw = [{"name": f"p{n}", "count": 1, "template": {"spec": spec}} for n in range(18)]
    asked = resolve_pod_sets(raw, limit_ranges=[], runtime_class=lambda _: None)
    assert [len(one.tolerations) for one in asked] == [20] * 18


def test_labels_of_a_usual_job_are_all_there(projector: Projector) -> None:
    usual = {**QUEUE, **{f"app.example.com/label-{number}": "v" * 20 for number in range(40)}}
    [state] = states(projector, 1, labels=usual)
    assert state.labels == usual


@pytest.mark.parametrize("size", [0, len(MEGABYTE)])
def test_change_of_labels_alone_writes_nothing(projector: Projector, size: int) -> None:
    some = {**QUEUE, **dict(list(MEGABYTE.items())[:size])}
    [first] = states(projector, 1, labels={**some, "team": "a"})
    for number in range(2, 5):
        assert states(projector, number, labels={**some, "team": f"b{number}"}) == []
    [moved] = states(projector, 5, labels={**some, **dict.fromkeys(QUEUE, "other"), "team": "c"})
    assert (first.queue, moved.queue) == ("main", "other")
    if not size:
        assert moved.labels["team"] == "c"


def test_multikueue_label_of_a_copy_is_published_at_once(projector: Projector) -> None:
    states(projector, 1)
    [state] = states(projector, 2, labels={**QUEUE, ORIGIN: "hub"})
    assert state.labels[ORIGIN] == "hub"
    assert states(projector, 3, labels=QUEUE)[0].labels == QUEUE
