"""Pods that cost differently are of different roles, and one that costs more than its role is found."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import Object
from shared.integrations.groups import beyond, too_large
from shared.integrations.shape import asked_by, role_hash
from tests.unit.integrations.grouped_pods import group_of, pod

GPU: Object = {"name": "gpu", "resourceClaimTemplateName": "gpu"}


def container(cpu: str = "1", **more: Any) -> Object:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def spec(cpu: str = "1", **more: Any) -> Object:
    return {"containers": [container(cpu)], **more}


LIMITED: Object = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "8"}}}]}
STARTS: Object = spec(initContainers=[container()] * 3)
SIDECARS: Object = spec(initContainers=[container(restartPolicy="Always")] * 3)

COSTS: dict[str, tuple[Object, Object, str]] = {
    "the same": (spec(), spec(), ""),
    "less": (spec("500m"), spec(), ""),
    "the same in other words": (spec("1000m"), spec(), ""),
    "other limits": (
        {
            "containers": [
                container() | {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 9}}}
            ]
        },
        spec(),
        "",
    ),
    "more": (spec("8"), spec(), "8 cpu, admitted 1"),
    "another resource": (
        {"containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": "8"}}}]},
        spec(),
        "8 example.com/gpu, admitted 0",
    ),
    "a limit without a request": (LIMITED, spec(), "8 cpu, admitted 1"),
    "more containers": (spec() | {"containers": [container()] * 2}, spec(), "2 cpu, admitted 1"),
    "overhead": (spec(overhead={"cpu": "2"}), spec(), "3 cpu, admitted 1"),
    "a larger start": (spec(initContainers=[container("5")]), spec(), "5 cpu, admitted 1"),
    "a start that is no larger": (STARTS, spec(), ""),
    "sidecars": (SIDECARS, STARTS, "4 cpu, admitted 1"),
    "no sidecars": (STARTS, SIDECARS, ""),
    "resources of the pod": (
        spec(resources={"requests": {"cpu": "7"}}),
        spec(resources={"requests": {"cpu": "1"}}),
        "7 cpu, admitted 1",
    ),
    "a claim": (spec(resourceClaims=[GPU]), spec(), "1 more resource claims of template gpu"),
    "a claim of its own name": (
        spec(resourceClaims=[{"name": "g", "resourceClaimName": "y"}]),
        spec(resourceClaims=[{"name": "g", "resourceClaimName": "x"}]),
        "",
    ),
    "what is no amount": (spec("x"), spec(), "an amount that cannot be read"),
}


@pytest.mark.parametrize(("asked", "admitted", "expected"), COSTS.values(), ids=COSTS.keys())
def test_pod_asks_for_more_than_was_admitted(
    asked: Object, admitted: Object, expected: str
) -> None:
    found = beyond(asked, admitted)
    assert expected in found
    assert bool(found) == bool(expected)


def test_pod_as_its_template_is_too_large_where_quota_counts_less() -> None:
    """The template is of a pod that came behind the decision, in the place of a smaller one."""
    large = spec("8")
    assert beyond(large, large, {"cpu": 10**9}) == "8 cpu, admitted 1"
    assert beyond(large, large, {"cpu": 8 * 10**9, "memory": 0}) == ""
    group = group_of(pod("x", cpu="8"))
    found = too_large(group, {"a": {"spec": large}}, {"a": {"cpu": 10**9}})
    assert [*found.values()] == ["8 cpu, admitted 1"]


OTHER_ROLES: dict[str, tuple[Object, Object]] = {
    "sidecars": (STARTS, SIDECARS),
    "a limit that is a request": (LIMITED, {"containers": [{"name": "c"}]}),
    "a limit of the pod": (
        spec(resources={"limits": {"cpu": "8"}}),
        spec(resources={"limits": {"cpu": "1"}}),
    ),
}


@pytest.mark.parametrize(("one", "other"), OTHER_ROLES.values(), ids=OTHER_ROLES.keys())
def test_pods_that_cost_differently_are_of_different_roles(one: Object, other: Object) -> None:
    assert role_hash(one) != role_hash(other)


def test_what_does_not_run_on_leaves_the_hash_as_it_is() -> None:
    """Users know these hashes, and Kueue makes the same."""
    assert role_hash(STARTS) == "9cc5d8cd"
    for policy in (None, "Never", "OnFailure"):
        again = spec(initContainers=[container(restartPolicy=policy)] * 3)
        assert role_hash(again) == role_hash(STARTS)
    with_limits = {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}
    assert role_hash({"containers": [{"resources": with_limits}]}) == role_hash(spec())


def test_pods_of_a_named_role_with_other_claims_disagree() -> None:
    assert asked_by(spec(resourceClaims=[GPU])) != asked_by(spec())
    assert asked_by(STARTS) != asked_by(SIDECARS)


def test_objects_that_are_too_large_are_found_by_what_they_ask_for() -> None:
    group = group_of(pod("x", "Running"), pod("y", cpu="8"), pod("z", cpu="500m"))
    template = {"spec": spec()}
    large = group.members["y"]
    assert too_large(group, {"a": template}) == {("a", large.asks): "8 cpu, admitted 1"}
    assert too_large(group, {"b": template}) == {}
    group.remove("y", 9)
    assert too_large(group, {"a": template}) == {}
