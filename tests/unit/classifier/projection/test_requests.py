from dataclasses import dataclass, field
from typing import Any

import pytest

from services.classifier.projection.pods.requests import RequestsError, resolve_pod_sets

Json = dict[str, Any]


def container(cpu: str | None = None, *, limit: str | None = None, **more: Any) -> Json:
    resources: Json = {}
    if cpu is not None:
        resources["requests"] = {"cpu": cpu}
    if limit is not None:
        resources["limits"] = {"cpu": limit}
    return {"name": "c", "resources": resources, **more}


SIDECAR = {"restartPolicy": "Always"}


@dataclass(frozen=True, kw_only=True)
class Case:
    spec: Json
    asks: str | None
    ranges: list[Json] = field(default_factory=list)
    problem: str = ""


def limit_range(type_: str = "Container", **item: Any) -> Json:
    return {"metadata": {"name": "r"}, "spec": {"limits": [{"type": type_, **item}]}}


CASES = {
    "containers add up": Case(
        spec={"containers": [container("1"), container("500m")]}, asks="1500m"
    ),
    "a limit without a request is the request": Case(
        spec={"containers": [container(limit="2")]}, asks="2"
    ),
    "the greediest init container counts if it is greedier than all containers": Case(
        spec={"containers": [container("1")], "initContainers": [container("3"), container("2")]},
        asks="3",
    ),
    "a sidecar runs beside the containers": Case(
        spec={"containers": [container("1")], "initContainers": [container("2", **SIDECAR)]},
        asks="3",
    ),
    "an init container after a sidecar runs beside it": Case(
        spec={
            "containers": [container("1")],
            "initContainers": [container("2", **SIDECAR), container("4")],
        },
        asks="6",
    ),
    "an init container before a sidecar does not": Case(
        spec={
            "containers": [container("1")],
            "initContainers": [container("4"), container("2", **SIDECAR)],
        },
        asks="4",
    ),
    "overhead of the RuntimeClass is added": Case(
        spec={"containers": [container("1")], "runtimeClassName": "kata"}, asks="1250m"
    ),
    "overhead of the pod itself wins": Case(
        spec={"containers": [container("1")], "runtimeClassName": "kata", "overhead": {"cpu": "1"}},
        asks="2",
    ),
    "a RuntimeClass that does not exist adds nothing": Case(
        spec={"containers": [container("1")], "runtimeClassName": "gone"}, asks="1"
    ),
    "a limit that is exceeded is told in the reference's words, and ranges are not looked at": Case(
        spec={"containers": [container("2", limit="1"), container("3", limit="1")]},
        ranges=[limit_range(max={"cpu": "1"})],
        asks="5",
        problem=(
            r"^resources validation failed: "
            r"\[spec\.podSets\[0\]\.template\.spec\.containers\[0\]: Invalid value: \[\"cpu\"\]: "
            r"requests must not exceed its limits, "
            r"spec\.podSets\[0\]\.template\.spec\.containers\[1\]: Invalid value: \[\"cpu\"\]: "
            r"requests must not exceed its limits\]$"
        ),
    ),
    "one broken range stands without brackets": Case(
        spec={"containers": [container("2")]},
        ranges=[limit_range(max={"cpu": "1"})],
        asks="2",
        problem=(
            r"^resources didn't satisfy LimitRange constraints: "
            r"spec\.podSets\[0\]\.template\.spec\.containers\[0\]: Invalid value: \[\"cpu\"\]: "
            r"requests must not be above the limitRange max$"
        ),
    ),
    "pod-level requests override the sum": Case(
        spec={"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}}, asks="5"
    ),
    "a default request fills in": Case(
        spec={"containers": [container()]},
        ranges=[limit_range(defaultRequest={"cpu": "300m"})],
        asks="300m",
    ),
    "a default limit becomes the request": Case(
        spec={"containers": [container()]}, ranges=[limit_range(default={"cpu": "2"})], asks="2"
    ),
    "the first range to give a default wins": Case(
        spec={"containers": [container()]},
        ranges=[
            limit_range(defaultRequest={"cpu": "1"}),
            limit_range(defaultRequest={"cpu": "2"}),
        ],
        asks="1",
    ),
    "more than the limit is told": Case(
        spec={"containers": [container("2", limit="1")]}, asks="2", problem="exceed its limits"
    ),
    "more than the range allows is told": Case(
        spec={"containers": [container("2")]},
        ranges=[limit_range(max={"cpu": "1"})],
        asks="2",
        problem="above the limitRange max",
    ),
    "the tightest of several bounds counts": Case(
        spec={"containers": [container("2")]},
        ranges=[limit_range(max={"cpu": "3"}), limit_range(max={"cpu": "1"})],
        asks="2",
        problem="above the limitRange max",
    ),
    "less than the range demands of the pod is told": Case(
        spec={"containers": [container("1")]},
        ranges=[limit_range("Pod", min={"cpu": "2"})],
        asks="1",
        problem="below the limitRange min",
    ),
    "a limit may be as many times its request as the range allows": Case(
        spec={"containers": [container("500m", limit="1")]},
        ranges=[limit_range(maxLimitRequestRatio={"cpu": "2"})],
        asks="500m",
    ),
    "a limit of more times its request is told": Case(
        spec={"containers": [container("500m", limit="1001m")]},
        ranges=[limit_range(maxLimitRequestRatio={"cpu": "2"})],
        asks="500m",
        problem=r"containers\[0\].*by more than the limitRange maxLimitRequestRatio",
    ),
    "no limit is no ratio": Case(
        spec={"containers": [container("500m")]},
        ranges=[limit_range(maxLimitRequestRatio={"cpu": "2"})],
        asks="500m",
        problem="maxLimitRequestRatio",
    ),
    "the tightest of several ratios counts, of init containers too": Case(
        spec={"initContainers": [container("1", limit="2")]},
        ranges=[limit_range(maxLimitRequestRatio={"cpu": n}) for n in ("3", "1500m", "2")],
        asks="1",
        problem=r"initContainers\[0\].*maxLimitRequestRatio",
    ),
    "the ratio of a pod is that of its sums": Case(
        spec={"containers": [container("1", limit="1"), container("1", limit="4")]},
        ranges=[limit_range("Pod", maxLimitRequestRatio={"cpu": "2"})],
        asks="2",
        problem=r"template\.spec: Invalid value.*maxLimitRequestRatio",
    ),
    "a container may break what its pod keeps": Case(
        spec={"containers": [container("2", limit="2"), container("1", limit="4")]},
        ranges=[limit_range("Pod", maxLimitRequestRatio={"cpu": "2"})],
        asks="3",
    ),
    "less than the range demands of a container is told": Case(
        spec={"containers": [container("3")], "initContainers": [container("1")]},
        ranges=[limit_range(min={"cpu": "2"})],
        asks="3",
        problem=r"initContainers\[0\].*below the limitRange min",
    ),
    "more than the range allows of the pod is told": Case(
        spec={"containers": [container("1"), container("2")]},
        ranges=[limit_range("Pod", max={"cpu": "2"}), limit_range(max={"cpu": "2"})],
        asks="3",
        problem=r"template\.spec: Invalid value.*above the limitRange max",
    ),
    "pods is not for users": Case(
        spec={"containers": [{"name": "c", "resources": {"requests": {"pods": "1"}}}]},
        asks=None,
        problem="reserved for internal kueue use",
    ),
    "a bad quantity is named with its place": Case(
        spec={"containers": [container("1_0")]},
        asks=None,
        problem=r"containers\[0\]\.resources\.requests\[cpu\]: '1_0' is no quantity",
    ),
    "less than nothing is told": Case(
        spec={"containers": [container("-1")]}, asks="0", problem="greater than or equal to 0"
    ),
    "so is an overhead of less than nothing": Case(
        spec={"containers": [container("2")], "overhead": {"cpu": "-1"}},
        asks="1",
        problem=r"template\.spec\.overhead\[cpu\]: Invalid value: -1",
    ),
}


def ask(case: Case) -> str | None:
    classes = {"kata": {"overhead": {"podFixed": {"cpu": "250m"}}}}
    raw = [{"name": "main", "count": 2, "template": {"spec": case.spec}}]
    [pod_set] = resolve_pod_sets(raw, limit_ranges=case.ranges, runtime_class=classes.get)
    return pod_set.requests.get("cpu")


@pytest.mark.parametrize(
    "case",
    [c for c in CASES.values() if not c.problem],
    ids=[n for n, c in CASES.items() if not c.problem],
)
def test_requests_of_one_pod(case: Case) -> None:
    assert ask(case) == case.asks


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c.problem], ids=[n for n, c in CASES.items() if c.problem]
)
def test_violated_rule_is_reported_with_resolved_pod_sets(case: Case) -> None:
    with pytest.raises(RequestsError, match=case.problem) as caught:
        ask(case)
    assert caught.value.pod_sets[0].requests.get("cpu") == case.asks


def terms(*of: Any) -> Json:
    """A pod spec that requires a node by these terms."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(of)}}
    return {"affinity": {"nodeAffinity": required}}


AFFINITY = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
UNREADABLE: dict[str, tuple[Any, str]] = {
    "no object": ("x", ": must be an object, got str"),
    "containers that are no list": ({"containers": {}}, ".containers: must be a list, got dict"),
    "a container that is a name": (
        {"containers": ["c"]},
        ".containers[0]: must be an object, got str",
    ),
    "an init container that is a name": (
        {"initContainers": ["c"]},
        ".initContainers[0]: must be an object, got str",
    ),
    "resources in a word": (
        {"containers": [{"resources": "much"}]},
        ".containers[0].resources: must be an object, got str",
    ),
    "requests in a list": (
        {"containers": [{"resources": {"requests": ["cpu"]}}]},
        ".containers[0].resources.requests: must be an object, got list",
    ),
    "resources of the pod in a word": (
        {"resources": "much"},
        ".resources: must be an object, got str",
    ),
    "an overhead in a word": ({"overhead": "much"}, ".overhead: must be an object, got str"),
    "a selector by a number": (
        {"nodeSelector": {"pool": 1}},
        ".nodeSelector[pool]: must be a string, got int",
    ),
    "a toleration in a word": (
        {"tolerations": ["spot"]},
        ".tolerations[0]: must be an object, got str",
    ),
    "affinity in a word": ({"affinity": "near"}, ".affinity: must be an object, got str"),
    "a term in a word": (terms("spot"), f".{AFFINITY}[0]: must be an object, got str"),
    "an operator that there is not": (
        terms({"matchExpressions": [{"key": "pool", "operator": "Like"}]}),
        (
            f".{AFFINITY}[0].matchExpressions[0].operator: must be one of In, NotIn, Exists, "
            "DoesNotExist, Gt, Lt, got 'Like'"
        ),
    ),
    "values that are no list": (
        terms({"matchExpressions": [{"key": "pool", "operator": "In", "values": 5}]}),
        f".{AFFINITY}[0].matchExpressions[0].values: must be a list, got int",
    ),
}


@pytest.mark.parametrize(("spec", "problem"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_template_is_reported_with_its_path(spec: Any, problem: str) -> None:
    """A kind of one's own, or somebody's Workload, may have anything there."""
    raw = [{"name": "main", "count": 1, "template": {"spec": spec}}]
    with pytest.raises(RequestsError) as caught:
        resolve_pod_sets(raw, limit_ranges=[], runtime_class=dict[str, Json]().get)
    assert str(caught.value) == f"spec.podSets[0].template.spec{problem}"
    assert [pod_set.name for pod_set in caught.value.pod_sets] == ["main"]
