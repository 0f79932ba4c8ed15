"""Which objects of a group lose their finalizer, and which are too many."""

from typing import Any

import pytest

from services.patcher.jobs.group_cleanup import done_with, excess, releasable_counts
from shared.contracts.kube.kinds import Object
from tests.unit.integrations.grouped_pods import deleted, group_of, pod, workload

ADMITTED = workload(a=2, b=1)
WAITS = workload(quota=False, a=2, b=1)
SERVING: dict[str, Any] = {"pod_group_serving": "true"}


def named(pods: tuple[Object, ...], which: str, of: Object | None) -> set[str]:
    rule = {"done": done_with, "excess": excess}[which]
    return {one.name for one in rule(group_of(*pods), of)}


DONE: dict[str, tuple[tuple[Object, ...], Object | None, set[str]]] = {
    "nobody of a group that waits": ((pod("x"), pod("y"), pod("z")), WAITS, set()),
    "not what failed while nobody is in its place": (
        (pod("x", "Failed"), pod("y", "Running")),
        ADMITTED,
        set(),
    ),
    "what failed once another one of its role is there": (
        (pod("x", "Failed"), pod("y", "Running"), pod("new")),
        ADMITTED,
        {"x"},
    ),
    "not what failed for one of another role": (
        (pod("x", "Failed"), pod("y", "Running"), pod("new", role="b")),
        ADMITTED,
        set(),
    ),
    "as many as there are others for": (
        (pod("w", "Failed"), pod("x", "Failed"), pod("new")),
        ADMITTED,
        {"w"},
    ),
    "what was stopped, once there is another one": (
        (deleted("x", stopped=True), deleted("y", stopped=True), pod("v"), pod("w")),
        WAITS,
        {"x", "y"},
    ),
    "all that its user deletes": (
        (deleted("x", "Pending"), deleted("y", seconds=30)),
        ADMITTED,
        {"x", "y"},
    ),
    "all of a group that has ended": (
        (pod("x", "Succeeded", total=2), pod("y", "Succeeded", total=2), pod("z", "Failed")),
        ADMITTED,
        {"x", "y", "z"},
    ),
    "not what runs on after the end": (
        (pod("x", "Succeeded", total=1), pod("y", "Running", total=1)),
        workload(finished=True, a=1),
        {"x"},
    ),
    "what does not count while there is no Workload": (
        (pod("x", "Failed"), pod("y"), deleted("z", "Pending")),
        None,
        {"x", "z"},
    ),
    "what is deleted of a group that serves": (
        (pod("x", "Running", **SERVING), deleted("y", "Succeeded", **SERVING)),
        ADMITTED,
        {"y"},
    ),
    "nobody without a finalizer": (
        (pod("x", "Failed", kept=False), pod("y", "Running"), pod("new")),
        ADMITTED,
        set(),
    ),
}


@pytest.mark.parametrize(("pods", "of", "expected"), DONE.values(), ids=DONE.keys())
def test_pod_that_is_done_loses_its_finalizer(
    pods: tuple[Object, ...], of: Object | None, expected: set[str]
) -> None:
    assert named(pods, "done", of) == expected


LATE = "2026-01-01T13:00:00Z"

EXCESS: dict[str, tuple[tuple[Object, ...], Object | None, set[str]]] = {
    "nobody of a whole group": ((pod("x"), pod("y"), pod("z")), WAITS, set()),
    "the youngest before there is a Workload": (
        (pod("x", creationTimestamp=LATE), pod("y"), pod("z"), pod("w")),
        None,
        {"x"},
    ),
    "the youngest of all without quota": (
        (pod("x"), pod("y"), pod("z"), pod("w", role="c", creationTimestamp=LATE)),
        WAITS,
        {"w"},
    ),
    "the youngest of a role with quota": (
        (pod("x", "Running"), pod("y", "Running"), pod("w"), pod("z", role="b")),
        ADMITTED,
        {"w"},
    ),
    "first of all of a role with quota what asks for more": (
        (pod("x", "Running"), pod("w", cpu="8"), pod("y", kept=False, creationTimestamp=LATE)),
        ADMITTED,
        {"w"},
    ),
    "nobody of a role that was not admitted": (
        (pod("x", "Running"), pod("y", "Running"), pod("w", role="c")),
        ADMITTED,
        set(),
    ),
    "nobody that runs": (
        (pod("x", "Running"), pod("y", "Running"), pod("w", "Running")),
        ADMITTED,
        set(),
    ),
    "first of all what has no finalizer": (
        (pod("x", kept=False), pod("y"), pod("z"), pod("w", creationTimestamp=LATE)),
        WAITS,
        {"x"},
    ),
    "what comes after the end": (
        (pod("x", "Succeeded"), pod("w")),
        workload(finished=True, a=2, b=1),
        {"w"},
    ),
}


@pytest.mark.parametrize(("pods", "of", "expected"), EXCESS.values(), ids=EXCESS.keys())
def test_pod_beyond_the_total_of_its_group_is_excess(
    pods: tuple[Object, ...], of: Object | None, expected: set[str]
) -> None:
    assert named(pods, "excess", of) == expected


def test_room_is_what_was_admitted_and_not_let_go_yet() -> None:
    group = group_of(pod("x", "Running"), pod("y", "Succeeded"), pod("z", "Failed", role="b"))
    assert releasable_counts(group, ADMITTED) == {"a": 0, "b": 1}
