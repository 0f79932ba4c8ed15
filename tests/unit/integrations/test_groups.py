"""What follows from the objects of a group."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import POD, Object
from shared.integrations.groups import Groups, group_in, grouped, member_of
from shared.integrations.shape import role_hash
from shared.testing.builders import observed_object
from tests.unit.integrations.grouped_pods import PODS, deleted, group_of, pod

KEPT: dict[str, tuple[Object, bool]] = {
    "by the finalizer of its kind": (pod("x"), True),
    "by nothing": (pod("x", kept=False), False),
    "by the finalizer of somebody else": (pod("x", finalizers=["example.com/theirs"]), False),
    "by nothing, said outright": (pod("x", finalizers=None), False),
}

GATED = (pod("x"), pod("y"), pod("z"))
RUNS = (pod("x", "Running"), pod("y", "Running"), pod("z", "Running"))
FAST: dict[str, Any] = {"pod_group_fast_admission": "true"}
FINAL: dict[str, Any] = {"retriable_in_group": "false"}
SERVING: dict[str, Any] = {"pod_group_serving": "true"}

STATES: dict[str, tuple[tuple[Object, ...], dict[str, object]]] = {
    "is not complete before its last pod": (
        GATED[:2],
        {"complete": False, "runs": False, "counts": {"a": 2}},
    ),
    "is complete with its last pod": (
        GATED,
        {"complete": True, "runs": False, "counts": {"a": 3}, "released": {}},
    ),
    "has no more pods than its total": (
        (*GATED, pod("more"), pod("other", role="b")),
        {"complete": True, "counts": {"a": 3}},
    ),
    "has a pod set for each role": (
        (pod("x"), pod("y", role="b"), pod("z")),
        {"counts": {"a": 2, "b": 1}},
    ),
    "runs while one of its pods does": (
        (pod("x", "Running"), *GATED[1:]),
        {"runs": True, "released": {"a": 1}, "counts": {"a": 3}},
    ),
    "uses quota for a pod that was let go and has no node yet": (
        (pod("x", "Pending", gated=False), *GATED[1:]),
        {"runs": True},
    ),
    "uses quota for a pod that still stops": (
        (deleted("x", seconds=30, node="n"), *GATED[1:]),
        {"runs": True, "complete": True},
    ),
    "uses none for a pod that has stopped, and misses it": (
        (deleted("x", node="n"), *GATED[1:]),
        {"runs": False, "complete": False},
    ),
    "misses a pod that was deleted before it started": (
        (deleted("x", "Pending"), *GATED[1:]),
        {"runs": False, "complete": False},
    ),
    "misses a pod that failed": (
        (pod("x", "Failed"), *RUNS[1:]),
        {"complete": False, "runs": True, "finished": None},
    ),
    "prefers pods that run to those that wait": (
        (*GATED[1:], *RUNS[:1], pod("more", "Running", role="b")),
        {"counts": {"a": 2, "b": 1}},
    ),
    "has ended when all have succeeded": (
        tuple(pod(name, "Succeeded") for name in "xyz"),
        {"finished": "Pods succeeded: 3/3.", "succeeded": {"a": 3}},
    ),
    "has not ended while one runs": (
        (pod("x", "Succeeded"), pod("y", "Succeeded"), RUNS[2]),
        {"finished": None, "succeeded": {"a": 2}},
    ),
    "has not ended while more pods run than it has in all": (
        (pod("x", "Succeeded", total=1), pod("y", "Running", total=1)),
        {"finished": None, "runs": True},
    ),
    "has not ended while one more stops": (
        (pod("x", "Succeeded", total=1), deleted("y", seconds=30, total=1)),
        {"finished": None, "runs": True},
    ),
    "waits for another pod where one failed and all others succeeded": (
        (pod("x", "Succeeded"), pod("y", "Succeeded"), pod("z", "Failed")),
        {"finished": None, "runs": False},
    ),
    "has ended with its last pod where it is not retriable": (
        (pod("x", "Succeeded"), pod("y", "Failed", **FINAL), pod("z", "Failed")),
        {"finished": "Pods succeeded: 1/3."},
    ),
    "has not ended while one waits, though it is not retriable": (
        (pod("x", "Failed", **FINAL), pod("y")),
        {"finished": None},
    ),
    "never ends where it serves": (
        tuple(pod(name, "Succeeded", **SERVING) for name in "xyz"),
        {"finished": None},
    ),
    "is complete with its first pod under fast admission": (
        (pod("x", **FAST),),
        {"complete": True, "counts": {"a": 3}},
    ),
    "asks for its first role only under fast admission": (
        (pod("x", **FAST), pod("y", role="b", **FAST)),
        {"counts": {"a": 3}},
    ),
    "keeps its total when no pod counts": (
        (pod("x", "Failed", total=2),),
        {"total": 2, "complete": False, "counts": {}},
    ),
    "is given up when its user deletes all": (
        (deleted("x", "Pending"), deleted("y", "Pending")),
        {"given_up": True},
    ),
    "is not given up when it was stopped": (
        (deleted("x", stopped=True), deleted("y", stopped=True)),
        {"given_up": False},
    ),
    "cannot be complete with a total that is no number": (
        (pod("x", total="many"),),
        {"total": 0, "complete": False},
    ),
}


@pytest.mark.parametrize(("pods", "expected"), STATES.values(), ids=STATES.keys())
def test_pods_decide_whether_their_group_is_complete_runs_or_has_finished(
    pods: tuple[Object, ...], expected: dict[str, object]
) -> None:
    group = group_of(*pods)
    finish = group.finish()
    found: dict[str, object] = {
        "complete": group.complete,
        "runs": group.runs,
        "counts": {one["name"]: one["count"] for one in group.pod_sets()},
        "released": group.released(),
        "succeeded": group.succeeded(),
        "finished": finish and finish.message,
        "given_up": group.given_up,
        "total": group.total,
    }
    assert {key: found[key] for key in expected} == expected


PROBLEMS = {
    "queues": (
        (pod("x"), pod("y", queue="r")),
        "metadata.labels[kueue.x-k8s.io/queue-name]: 'q', 'r'",
    ),
    "totals": ((pod("x"), pod("y", total=4)), "pod-group-total-count]: '3', '4'"),
    "requests of one role": (
        (pod("x"), pod("y", cpu="2")),
        "'a': Pods of that role ask for different",
    ),
    "too many roles": (
        tuple(pod(f"p-{n}", role=f"r-{n}", total=20) for n in range(19)),
        "more than 18 values",
    ),
}


@pytest.mark.parametrize(("pods", "text"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_disagreement_of_pods_is_named_with_its_values(pods: tuple[Object, ...], text: str) -> None:
    [problem] = group_of(*pods).problems()
    assert text in problem
    assert group_of(pods[0]).problems() == []


def test_missing_pods_are_named_with_the_remedy() -> None:
    why = group_of(pod("x"), pod("y", "Failed")).why_incomplete()
    assert why == (
        "group 'g' has 1 of 3 Pods (annotation kueue.x-k8s.io/pod-group-total-count), 1 more have "
        "failed or are deleted: create 2 more"
    )


def test_template_is_that_of_a_pod_which_no_admission_has_changed() -> None:
    placed = pod("x", "Running", node="n")
    placed["spec"]["nodeSelector"] = {"disk": "ssd"}
    group = group_of(placed, pod("y"))
    assert "nodeSelector" not in group.pod_sets()[0]["template"]["spec"]


def test_pod_that_grows_while_it_runs_is_seen_beside_its_pod_set() -> None:
    group = group_of(*RUNS, pod("x", "Running", cpu="9", version=2))
    asked = {
        one["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]: one["count"]
        for one in group.variants()
    }
    assert asked == {"1": 2, "9": 1}


def test_latest_pod_of_a_group_is_the_newest_that_waits() -> None:
    group = group_of(pod("x"), pod("y"))
    assert group.latest() == "y/uid-y"
    assert group.has_seen("x/uid-x")
    assert not group.has_seen("y/another")
    for name in ("x", "y"):
        group = group_of(pod("x"), pod("y"), pod(name, "Running", version=2))
    assert group.latest() == "x/uid-x"
    assert group_of(*RUNS).latest() == ""


SAID_LATER: dict[str, dict[str, Any]] = {
    "fewer pods": {"total": 1},
    "no number of pods": {"total": "none"},
    "another role": {"role": "b"},
    "that it serves": SERVING,
    "that it waits with its first pod": FAST,
}


@pytest.mark.parametrize("said", SAID_LATER.values(), ids=SAID_LATER)
def test_pod_that_was_let_go_counts_as_it_was_then(said: dict[str, Any]) -> None:
    two, done = ("x", "y"), pod("z", "Succeeded")
    group = group_of(*(pod(name, "Running", role="a") for name in two), done)
    later = [pod(name, "Running", version=2, **said) for name in two]
    for one in (*later, pod("z", "Succeeded", version=2, **said)):
        group.put(member_of(one, PODS), one)
    assert (group.total, group.released(), group.succeeded()) == (3, {"a": 3}, {"a": 1})
    assert (group.serving, group.early, group.finish()) == (False, False, None)


def test_waiting_pod_may_change_its_group_and_a_new_pod_of_that_name_counts_anew() -> None:
    group = group_of(pod("x", total=1))
    for one in (pod("x", total=2, role="b"), pod("x", "Running", total=2, role="b", version=2)):
        group.put(member_of(one, PODS), one)
    assert (group.total, group.released()) == (2, {"b": 1})
    again = pod("x", total=5, role="c", version=3, uid="another")
    group.put(member_of(again, PODS), again)
    assert (group.total, {one["name"] for one in group.pod_sets()}) == (5, {"c"})


def test_user_ends_a_group_that_runs_by_its_last_pod_and_for_good() -> None:
    group = group_of(pod("x", "Running"), pod("y", "Failed"))
    for one in (pod("x", "Running", version=2, **FINAL), pod("x", "Running", version=3)):
        group.put(member_of(one, PODS), one)
        assert group.finish() is None
    ended = pod("x", "Failed", version=4)
    group.put(member_of(ended, PODS), ended)
    finish = group.finish()
    assert finish is not None
    assert finish.message == "Pods succeeded: 0/3."


def observed(groups: Groups, obj: Object) -> list[str]:
    return [one.name for one in groups.observe(obj, PODS)]


def test_index_follows_pods_from_group_to_group_and_forgets_empty_ones() -> None:
    groups = Groups()
    assert observed(groups, pod("x", version=5)) == ["g"]
    assert observed(groups, pod("x", "Running", version=4)) == []
    moved = pod("x", version=6)
    moved["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "h"
    assert observed(groups, moved) == ["g", "h"]
    assert groups.find(PODS.kind, "team-a", "g") is None
    another = pod("x", version=5, uid="another")
    assert groups.forget(PODS.kind, observed_object(POD, another, deleted=True)) is None
    end = observed_object(POD, pod("x", version=9), deleted=True)
    left = groups.forget(PODS.kind, end)
    assert left is not None
    assert (left.name, left.version) == ("h", 9)
    assert groups.find(PODS.kind, "team-a", "h") is None


def test_group_reads_like_an_object_of_its_kind() -> None:
    group = group_of(*GATED)
    reader = grouped(PODS)
    body = group.body(uid="u", created="", finish=None)
    assert reader is grouped(PODS)
    assert group_in(body) is group
    assert reader.held(body)
    assert not reader.active(body)
    assert [one["name"] for one in reader.pod_sets(body)] == ["a"]
    assert reader.detail != PODS.detail


FOR_A_WHILE = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{why}", **FOR_A_WHILE} for why in ("not-ready", "unreachable")
]


@pytest.mark.parametrize(
    ("requests", "expected"), [({}, "bf90803c"), ({"cpu": "1"}, "4b0469f7")], ids=["none", "cpu"]
)
def test_role_hash_is_that_of_kueue(requests: dict[str, Any], expected: str) -> None:
    """The hashes stand in kubernetes-sigs/kueue test/integration/singlecluster/controller/jobs/pod."""
    container = {"name": "c", "image": "pause", "resources": {"requests": requests}}
    spec = {"restartPolicy": "Never", "priority": 0, "tolerations": TOLERATIONS}
    assert role_hash({**spec, "containers": [container]}) == expected
    assert role_hash({**spec, "containers": [container], "nodeSelector": {"a": "<b>"}}) != expected


def test_group_that_lives_on_forgets_roles_of_pods_that_are_gone() -> None:
    group = group_of(pod("stays", "Running", role="a", total=1))
    for number in range(20):
        for role in (f"r-{number}", f"s-{number}"):  # The second one is a change of it.
            one = pod("x", role=role)
            group.put(member_of(one, PODS), one)
        group.remove("x", 9)
    assert group.roles.keys() == {"a"}


@pytest.mark.parametrize(("obj", "kept"), KEPT.values(), ids=KEPT)
def test_member_is_kept_by_the_finalizer_of_its_kind(obj: Object, kept: bool) -> None:
    assert member_of(obj, PODS).kept is kept
