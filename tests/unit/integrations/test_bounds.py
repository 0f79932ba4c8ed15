"""Whatever an object holds, its expressions are given no more than they can look at soon."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import Object
from shared.integrations import IntegrationError, Integrations, ObjectError
from tests.unit.integrations.app_wrappers import component, wrapper
from tests.unit.integrations.gadgets import gadget, loaded
from tests.unit.integrations.ml_kinds import template

BY_KIND = {one.kind.kind: one for one in Integrations()}
POD = template("1")
TOO_MANY, TOO_LONG = "entries are too many for its expressions", "characters are too many"
TOGETHER = "the objects inside are together too large"


def job_set(parts: int, statuses: int, *, name: str = "job-of-a-very-long-name-{}") -> Object:
    job = {"spec": {"parallelism": 2, "completions": 4, "template": POD}}
    counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 1)
    return {
        "spec": {
            "replicatedJobs": [
                {"name": name.format(n), "replicas": 2, "template": job} for n in range(parts)
            ]
        },
        "status": {
            "replicatedJobsStatus": [
                {"name": name.format(n % parts), **counts} for n in range(statuses)
            ]
        },
    }


def indexed(indexes: str) -> Object:
    spec = {"completionMode": "Indexed", "completions": 100_000, "parallelism": 50_000}
    return {"spec": {**spec, "template": POD}, "status": {"completedIndexes": indexes, "active": 7}}


def spark(executors: int, sidecars: int = 0) -> Object:
    role = {"cores": 1, "memory": "1g", "sidecars": [{"name": "s"}] * sidecars}
    states = {f"an-application-of-a-long-name-exec-{n}": "RUNNING" for n in range(executors)}
    return {
        "spec": {"driver": role, "executor": {**role, "instances": 500}},
        "status": {"applicationState": {"state": "RUNNING"}, "executorState": states},
    }


def mpi(roles: int) -> Object:
    states = {f"r{n}": {"active": 0} for n in range(roles)}
    return {
        "spec": {"mpiReplicaSpecs": {"Worker": {"template": POD}}},
        "status": {"replicaStatuses": states},
    }


def ray(groups: int) -> Object:
    group = {"groupName": "head", "template": POD}
    return {"spec": {"headGroupSpec": {"template": POD}, "workerGroupSpecs": [group] * groups}}


def inside(kind: str, *objects: Object) -> Object:
    version = BY_KIND[kind].kind.api_version
    return wrapper(*(component(version, kind, **one) for one in objects))


def made(kind: str, fields: Object) -> Object:
    version = BY_KIND[kind].kind.api_version
    given = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "uid": "u"}, **fields}
    return {"status": {}, **given}


HOSTILE: dict[str, tuple[str, Object, str]] = {
    "JobSet with thousands of statuses": ("JobSet", job_set(1, 9_000), TOO_MANY),
    "JobSet with thousands of parts": ("JobSet", job_set(9_000, 1), TOO_MANY),
    "Job with a megabyte of indexes": ("Job", indexed("7," * 700_000), TOO_LONG),
    "Job with indexes of many digits": ("Job", indexed("9" * 400_000), "is no index"),
    "SparkApplication with thousands of executors": ("SparkApplication", spark(9_000), TOO_MANY),
    "SparkApplication with thousands of sidecars": ("SparkApplication", spark(0, 9_000), TOO_MANY),
    "MPIJob with thousands of roles": ("MPIJob", mpi(9_000), TOO_MANY),
    "RayCluster with thousands of groups": ("RayCluster", ray(90_000), "more than 18 items"),
    "AppWrapper with a SparkApplication of sidecars": (
        "AppWrapper",
        inside("SparkApplication", spark(0, 9_000)),
        TOO_MANY,
    ),
    "AppWrapper with many that are just small enough": (
        "AppWrapper",
        inside("SparkApplication", *[spark(0, 1_000)] * 9),
        TOGETHER,
    ),
}


@pytest.mark.parametrize(("kind", "fields", "why"), HOSTILE.values(), ids=HOSTILE.keys())
def test_expression_is_not_given_what_is_too_much(kind: str, fields: Object, why: str) -> None:
    with pytest.raises(ObjectError, match=why):
        BY_KIND[kind].pod_sets(made(kind, fields))


HONEST: dict[str, tuple[str, Object, dict[str, int]]] = {
    "JobSet with as many parts as a Workload has pod sets": (
        "JobSet",
        job_set(18, 18, name="job-of-a-name-that-is-as-long-as-names-may-be-in-here-{}"),
        {f"job-of-a-name-that-is-as-long-as-names-may-be-in-here-{n}": 4 for n in range(18)},
    ),
    "Job with 100,000 indexes, of which each second one is done": (
        "Job",
        indexed(",".join(map(str, range(0, 100_000, 2)))),
        {"main": 50_000},
    ),
    "Job with 100,000 indexes, of which each third one is not done": (
        "Job",
        indexed(",".join(f"{n}-{n + 1}" for n in range(0, 99_999, 3))),
        {"main": 50_000},
    ),
    "SparkApplication with 500 executors that were all replaced": (
        "SparkApplication",
        spark(1_500),
        {"driver": 1, "executor": 500},
    ),
}


@pytest.mark.parametrize(("kind", "fields", "pods"), HONEST.values(), ids=HONEST.keys())
def test_large_object_of_an_honest_user_is_counted(
    kind: str, fields: Object, pods: dict[str, int]
) -> None:
    integration, obj = BY_KIND[kind], made(kind, fields)
    assert {one["name"]: one["count"] for one in integration.pod_sets(obj)} == pods
    assert integration.active(obj)


def test_what_a_large_status_leaves_readable_is_read() -> None:
    job = made("Job", indexed("7," * 700_000))
    integration = BY_KIND["Job"]
    assert integration.active(job)
    assert integration.running(job) == {"main": 7}
    # A controller has written it: the webhook has no reason to refuse a change.
    assert not integration.refusals(job)


def test_status_of_a_wrapped_object_does_not_count() -> None:
    obj = made("AppWrapper", inside("JobSet", *[job_set(1, 9_000)] * 3))
    assert [one["count"] for one in BY_KIND["AppWrapper"].pod_sets(obj)] == [4, 4, 4]


REFUSED = (
    *("JobSet with thousands of parts", "SparkApplication with thousands of sidecars"),
    "AppWrapper with many that are just small enough",
)


@pytest.mark.parametrize("name", REFUSED)
def test_spec_that_is_too_large_is_refused(name: str) -> None:
    kind, fields, why = HOSTILE[name]
    assert why in "; ".join(BY_KIND[kind].refusals(made(kind, fields)))


def test_rule_that_cannot_be_applied_refuses() -> None:
    integration = loaded(
        refuse=[{"when": "spec.parts.exists(p, p == 'x')", "field": "spec.parts", "message": "no"}]
    )
    (refusal,) = integration.refusals(gadget(parts=["y"] * 9_000))
    assert refusal.startswith("spec.parts: spec.parts: 9,000 entries are too many")


def doubled(times: int) -> str:
    text = f"v{times} != ''"
    for n in range(times, 0, -1):
        text = f"cel.bind(v{n}, v{n - 1} + v{n - 1}, {text})"
    return f"cel.bind(v0, spec.s, {text})"


def test_document_whose_result_doubles_without_end_is_refused() -> None:
    with pytest.raises(IntegrationError, match="could fill the memory"):
        loaded(active=doubled(16))


GROWING: dict[str, tuple[str, Object]] = {
    "searches one text for another in a loop": (
        "[1, 2, 3, 4, 5, 6, 7, 8].all(i, spec.t.all(j, !spec.s.contains(spec.u)))",
        {"s": "y" * 100_000, "u": "y" * 5_000 + "z", "t": [1] * 100},
    ),
    "puts one text into another for each character": (
        "spec.s.replace('y', spec.u) != ''",
        {"s": "y" * 9_000, "u": "x" * 9_000},
    ),
    "doubles": (doubled(8), {"s": "y" * 100_000}),
    "collects the parts of a text": (
        "spec.s.split(',').filter(part, part == '').size() > 0",
        {"s": "," * 9_000},
    ),
    "collects what it collects": (
        "spec.t.map(a, spec.t.map(b, [a, b])).size() > 0",
        {"t": [1] * 200},
    ),
    "counts anew for each of thousands": (
        "spec.t.all(name, spec.l.valuesIn([name]) == 0)",
        {"t": ["n"] * 2_000, "l": [{"name": "m"}] * 2_000},
    ),
}


@pytest.mark.parametrize(("active", "spec"), GROWING.values(), ids=GROWING.keys())
def test_expression_that_makes_more_is_given_less(active: str, spec: dict[str, Any]) -> None:
    (problem,) = loaded(active=active).problems(gadget(**spec))
    assert TOO_MANY in problem or TOO_LONG in problem


def test_lists_that_are_short_by_themselves_are_too_much_together() -> None:
    integration = loaded(active="spec.a.size() + spec.b.size() > 0")
    (problem,) = integration.problems(gadget(a=[1] * 3_000, b=[1] * 3_000))
    assert "6,000 entries" in problem or "in lists and maps together" in problem


def test_after_a_loop_that_needs_too_much_no_other_loop_is_tried() -> None:
    nested = "spec.t.all(a, spec.t.all(b, spec.t.all(c, true)))"
    integration = loaded(active=nested, ready="spec.t.exists(one, one == 1)", held="spec.u == 1")
    problems = integration.problems(gadget(t=[1] * 100, u=1))
    assert sorted(problem.partition(": ")[2].partition(":")[0] for problem in problems) == [
        "spec.active",
        "spec.ready",
    ]


FUNCTIONS = {
    "counts texts of a map": ("spec.m.valuesIn(['x', 'y']) == 2", True),
    "counts texts of a list": ("['x', 'x', 'z'].valuesIn(['x']) == 2", True),
    "reads sizes of the JVM": (
        "['512m', '4gb', '1T', '1500k', '7', '9b'].map(s, s.mebibytes()) == [512, 4096, 1048576, 1, 7, 0]",
        True,
    ),
    "counts no index twice": ("'1,1-3,2-4,9'.indexesBelow(5) == 4", True),
}


@pytest.mark.parametrize(("active", "result"), FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_function_of_ours_computes_what_its_page_says(active: str, result: bool) -> None:
    obj = gadget(m={"a": "x", "b": "y", "c": "z", "d": 1, "e": None})
    assert loaded(active=active).active(obj) is result
