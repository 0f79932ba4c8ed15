"""Groups of pods become one workload."""

from datetime import UTC, datetime
from typing import Any

import pytest

from services.classifier.projection.owners.groups import by_detail
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import POD, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import Integrations, opted_documents
from shared.integrations.groups import grouped
from tests.unit.classifier.projection.objects import Json, job, seen
from tests.unit.integrations.grouped_pods import deleted, pod, workload


def projector(*published: WorkloadState) -> Projector:
    made = Projector("hub")
    for state in published:
        made.restore(state)
    for document in opted_documents(["pod"]):
        document["metadata"] |= {"uid": "i-1", "resourceVersion": "1"}
        made.observe(seen(kinds.INTEGRATION, document))
    return made


def states(made: Projector, *observations: Observed | Object) -> dict[str, WorkloadState]:
    """The last state of each workload after these observations; pods as bodies."""
    for one in observations:
        made.observe(one if isinstance(one, Observed) else seen(POD, one))
    return {change.state.name: change.state for change in made.changes()}


def gone(name: str, version: int = 90) -> Observed:
    return seen(POD, pod(name, version=version), deleted=True)


def test_token_of_a_kind_names_it_and_its_groups() -> None:
    known = Integrations()
    for document in opted_documents(["pod"]):
        known.apply(document)
    found = [token for token, _ in by_detail(known)]
    assert len(found) == len(set(found))
    pods = known.find(group="", plural="pods")
    assert pods is not None
    assert {token for token, one in by_detail(known) if one.kind == POD} == {
        *(pods.detail, grouped(pods).detail)
    }
    jobs = [one for token, one in by_detail(known) if one.kind == kinds.JOB]
    assert len(jobs) == 1, "it has no groups"


def test_group_is_one_workload_of_its_name_with_a_pod_set_for_each_role() -> None:
    state = states(projector(), pod("x"), pod("y", role="b", cpu="2"), pod("z", version=7))["g"]
    assert {one.name: (one.count, one.requests) for one in state.pod_sets} == {
        "a": (2, {"cpu": "1"}),
        "b": (1, {"cpu": "2"}),
    }
    assert state.owner is not None
    assert (state.owner.kind, state.owner.name, state.owner.is_group) == ("Pod", "g", True)
    assert (state.uid, state.version, state.queue) == ("uid-x", "7", "q")
    assert state.members is not None
    assert (state.members.total, state.members.present, state.members.complete) == (3, 3, True)
    assert (state.phase, state.held, state.inadmissible) == ("waiting", True, None)


def test_incomplete_group_says_what_is_missing_and_waits_since_its_last_pod() -> None:
    made = projector()
    first = states(made, pod("x"))["g"]
    assert first.inadmissible is not None
    assert "1 of 3 Pods" in first.inadmissible
    assert first.unresolved == first.inadmissible, "it is none yet, and nobody waits behind it"
    later = pod("z", creationTimestamp="2026-01-02T00:00:00Z")
    assert states(made, pod("y"), later)["g"].created_at == datetime(2026, 1, 2, tzinfo=UTC)
    # A pod that comes in the place of another one takes nobody's turn.
    again = pod("w", creationTimestamp="2026-01-03T00:00:00Z")
    states(made, gone("z"), again)
    state = states(made, pod("x", version=9, queue="r"))["g"]
    assert state.created_at == datetime(2026, 1, 2, tzinfo=UTC)


def test_group_keeps_its_identity_while_pods_come_and_go_and_over_a_restart() -> None:
    made = projector()
    before = states(made, pod("x"), pod("y"), pod("z"))["g"]
    states(made, gone("x"))
    assert states(made, pod("w"))["g"].uid == before.uid
    restarted = projector(before)
    after = states(restarted, pod("w"), pod("y"), pod("z", "Failed"))["g"]
    assert (after.uid, after.created_at) == (before.uid, before.created_at)


def test_version_of_a_group_does_not_go_back_over_a_restart() -> None:
    """Quota waits for a version: what was the newest may be gone since then."""
    before = states(projector(), pod("x", version=50), pod("y", version=7), pod("z", version=8))[
        "g"
    ]
    after = states(projector(before), pod("y", version=7), pod("z", version=8))["g"]
    assert (before.version, after.version) == ("50", "50")


def test_group_that_a_pod_left_is_incomplete() -> None:
    made = projector()
    assert states(made, pod("x"), pod("y"), pod("z"))["g"].inadmissible is None
    alone = pod("z", version=9)
    alone["metadata"]["labels"].pop("kueue.x-k8s.io/pod-group-name")
    text = states(made, alone)["g"].inadmissible
    assert text is not None
    assert "2 of 3 Pods" in text


def test_group_is_gone_with_its_last_pod_and_the_next_of_that_name_has_a_new_uid() -> None:
    made = projector()
    before = states(made, pod("x", total=1))["g"]
    assert states(made, gone("x"))["g"].phase == "gone"
    after = states(made, pod("y", total=1, version=99))["g"]
    assert (after.phase, after.uid) == ("waiting", "uid-y")
    assert before.uid == "uid-x"


def test_group_stays_finished_while_its_pods_are_deleted() -> None:
    made = projector()
    done = [pod(name, "Succeeded", total=2) for name in "xy"]
    finished = states(made, *done)["g"]
    assert finished.finish is not None
    assert finished.finish.message == "Pods succeeded: 2/2."
    assert states(made, gone("x")).get("g", finished).phase == "finished"
    restarted = projector(finished)
    assert states(restarted, done[1]).get("g", finished).phase == "finished"


def test_group_stays_finished_for_a_projector_without_published_states() -> None:
    on_record = seen(kinds.WORKLOAD, workload(a=2, finished=True))
    left = states(projector(), on_record, pod("x", "Succeeded", total=2))["g"]
    assert left.phase == "finished"
    again = states(projector(), on_record, pod("x", "Running", total=2))["g"]
    assert again.phase == "running", "what runs holds quota, whatever its Workload says"


def test_group_does_not_finish_by_saying_that_it_has_fewer_pods() -> None:
    made = projector()
    before = states(made, pod("x", "Running"), pod("y", "Running"), pod("z", "Succeeded"))
    for version, known in ((2, made), (3, projector())):
        told = [
            *(pod(name, "Running", total=1, version=version) for name in "xy"),
            pod("z", "Succeeded", total=1, version=version),
        ]
        state = {**before, **states(known, *told)}["g"]
        assert (state.phase, state.pods_active, state.finish) == ("running", True, None)


def test_pod_that_starts_in_a_group_that_has_finished_is_seen_until_it_ends() -> None:
    made = projector()
    assert states(made, pod("x", "Succeeded", total=1))["g"].phase == "finished"
    late = states(made, pod("late", gated=False, total=1))["g"]
    assert (late.phase, late.pods_active, late.held) == ("running", True, False)
    assert states(made, gone("late"))["g"].phase == "finished"


RUNNING: dict[str, tuple[list[Object], dict[str, Any]]] = {
    "as admitted": (
        [pod("x", "Running"), pod("y", "Running")],
        {"outgrown": None, "enlarged": False, "inadmissible": None, "counts": {"a": 2}},
    ),
    "with one that failed": (
        [pod("x", "Running"), pod("y", "Failed")],
        {"outgrown": None, "inadmissible": None, "counts": {"a": 2}, "pods_ready": False},
    ),
    "with one too many that waits": (
        [pod("x", "Running"), pod("y", "Running"), pod("z")],
        {"outgrown": None, "counts": {"a": 2}},
    ),
    "with one too many that runs": (
        [pod("x", "Running"), pod("y", "Running"), pod("z", "Running")],
        {"outgrown": {"a": 3}},
    ),
    "with one of a role that nobody admitted": (
        [pod("x", "Running"), pod("y", "Running", role="b")],
        {"outgrown": {"b": 1}},
    ),
    "with one that asks for more than was admitted": (
        [pod("x", "Running"), pod("y", "Running", cpu="2")],
        {"enlarged": True, "requests": {"a": {"cpu": "2"}}, "counts": {"a": 2}},
    ),
    "with one that asks for less than was admitted": (
        [pod("x", "Running"), pod("y", "Running", cpu="500m")],
        {"enlarged": False, "requests": {"a": {"cpu": "1"}}},
    ),
    "with one that asks for more, and waits": (
        [pod("x", "Running"), pod("y", cpu="2")],
        {"enlarged": False, "outgrown": None, "requests": {"a": {"cpu": "1"}}},
    ),
    "with one that asked for more, and has ended": (
        [pod("x", "Running"), pod("y", "Succeeded", cpu="2")],
        {"enlarged": False, "requests": {"a": {"cpu": "1"}}},
    ),
    "with a larger one that runs behind one that waits": (
        [pod("x", "Running"), pod("y", cpu="2"), pod("z", "Running", cpu="2")],
        {"enlarged": True, "requests": {"a": {"cpu": "2"}}},
    ),
    "with one that has succeeded": (
        [pod("x", "Running"), pod("y", "Succeeded")],
        {"reclaimable": 1, "held": False},
    ),
    "with one that stops": (
        [deleted("x", seconds=30), deleted("y")],
        {"held": False, "pods_active": True},
    ),
    "stopped": ([deleted("x"), deleted("y")], {"held": True, "pods_active": False}),
}


@pytest.mark.parametrize(("pods", "expected"), RUNNING.values(), ids=RUNNING.keys())
def test_group_with_quota(pods: list[Object], expected: Json) -> None:
    made = projector()
    state = states(made, seen(kinds.WORKLOAD, workload(a=2)), *pods)["g"]
    found = {
        **vars(state),
        "counts": {one.name: one.count for one in state.pod_sets},
        "requests": {one.name: one.requests for one in state.pod_sets},
        "reclaimable": sum(one.reclaimable for one in state.pod_sets),
    }
    assert {key: found[key] for key in expected} == expected


def test_group_without_pods_asks_for_what_it_had() -> None:
    made = projector()
    had = seen(kinds.WORKLOAD, workload(quota=False, a=2))
    state = states(made, had, deleted("x", stopped=True, total=2))["g"]
    assert [(one.name, one.count) for one in state.pod_sets] == [("a", 2)]
    assert state.inadmissible is not None
    assert "0 of 2 Pods" in state.inadmissible


def test_workload_of_that_name_which_is_no_groups_is_left_alone() -> None:
    made = projector()
    foreign = workload(quota=False, main=1)
    del foreign["metadata"]["annotations"]
    found = states(made, seen(kinds.WORKLOAD, foreign), pod("x", total=1))
    own = workload_name(kind="Pod", group="", name="g", uid="uid-x")
    assert found.keys() == {"g", own}
    assert found["g"].owner is None
    assert "is not a group's" in (found[own].inadmissible or "")


def test_workload_of_a_group_that_is_gone_holds_nothing() -> None:
    made = projector()
    assert states(made, seen(kinds.WORKLOAD, workload(a=2))) == {}


def test_pods_of_what_waits_as_a_whole_are_of_no_group() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1", "controller": True}
    found = states(projector(), seen(kinds.JOB, job(uid="u-1")), pod("x", ownerReferences=[owner]))
    assert "g" not in found
