"""Groups of pods: one workload that waits for its last pod, starts whole, and is made whole again."""

import functools
from typing import Any, Final

import pytest

from shared.contracts.kube.bodies import annotations_of
from shared.contracts.kube.conditions import find_condition, is_true, message_of, reason_of
from shared.contracts.kube.kinds import POD, WORKLOAD, Object
from shared.contracts.kube.names import GROUP_WORKLOAD, MANAGED_LABEL, POD_SET_LABEL
from shared.contracts.messages.admissions import Admission
from shared.contracts.simulation import OUTCOME
from shared.kube.port import NotFoundError, RefusedError
from tests.conformance.seeds.stage import Stage, job, story
from tests.simulation.kinds.pods import FLAVOR, PODS, is_gated, member, opened
from tests.simulation.tenants.hostile_input import used

FAILS: Final = {OUTCOME: "fail"}
TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"


async def pods(stage: Stage) -> dict[str, Object]:
    found = (await stage.kube.list(POD, namespace="team-a")).items
    return {one["metadata"]["name"]: one for one in found}


async def group(stage: Stage, name: str = "g") -> Object:
    try:
        return await stage.kube.get(WORKLOAD, "team-a", name)
    except NotFoundError:
        return {}


async def says(stage: Stage, condition: str, status: bool = True) -> bool:
    found = find_condition(await group(stage), condition)
    return found is not None and found["status"] == str(status)


async def are_gated(stage: Stage, **expected: bool) -> bool:
    """Whether exactly these pods exist, each gated or not."""
    found = {name.replace("-", "_"): is_gated(one) for name, one in (await pods(stage)).items()}
    return found == expected


async def started(stage: Stage, *members: Object) -> None:
    """Create the pods of a group, and wait until all of them are let go."""
    for one in members:
        await stage.create(one)
    expected = {one["metadata"]["name"].replace("-", "_"): False for one in members}
    await stage.until(functools.partial(are_gated, stage, **expected))


async def until_used(stage: Stage, cpu: str) -> None:
    """Wait until the queue says that so much is in use."""

    async def is_so() -> bool:
        return await used(stage, "q") == cpu

    await stage.until(is_so)


def last_reason(stage: Stage) -> str:
    decided: list[Admission] = [one.message for one in stage.system.message_logs().admissions]
    return next((one.message for one in reversed(decided) if one.name == "g"), "")


@story(configuration=PODS)
async def test_group_waits_for_its_last_pod_and_starts_and_ends_as_one(stage: Stage) -> None:
    await opened(stage, cpu=4)
    for name in ("leader", "one"):
        await stage.create(member(name, 3, cpu="2" if name == "leader" else "1", seconds=60))
    await stage.settle()
    assert await are_gated(stage, leader=True, one=True)
    assert await group(stage) == {}
    assert "2 of 3 Pods" in last_reason(stage)
    assert "create 1 more" in last_reason(stage)
    last = await stage.create(member("two", 3, seconds=60))
    assert annotations_of(last)["kueue.x-k8s.io/role-hash"]
    await stage.until(functools.partial(are_gated, stage, leader=False, one=False, two=False))

    workload, made = await group(stage), await pods(stage)
    assert annotations_of(workload)[GROUP_WORKLOAD] == "true"
    roles = {p["name"]: p["count"] for p in workload["spec"]["podSets"]}
    assert list(roles) == sorted(roles)
    assert sorted(roles.values()) == [1, 2]
    owners = {one["uid"] for one in workload["metadata"]["ownerReferences"]}
    assert owners == {one["metadata"]["uid"] for one in made.values()}
    for one in made.values():
        assert one["spec"]["nodeSelector"] == FLAVOR["spec"]["nodeLabels"]
        assert FLAVOR["spec"]["tolerations"][0] in one["spec"]["tolerations"]
        role = annotations_of(one)["kueue.x-k8s.io/role-hash"]
        assert one["metadata"]["labels"][POD_SET_LABEL] == role
    await until_used(stage, "4")

    await stage.until(functools.partial(says, stage, "Finished"))
    await stage.settle()
    assert message_of(find_condition(await group(stage), "Finished")) == "Pods succeeded: 3/3."
    assert not [one for one in (await pods(stage)).values() if one["metadata"].get("finalizers")]
    await until_used(stage, "0")
    for name in made:
        await stage.kube.delete(POD, "team-a", name)
    await stage.settle()
    assert await pods(stage) == {}
    assert await group(stage) == {}


@story(configuration=PODS)
async def test_failed_pod_is_kept_until_another_one_runs_in_its_place(stage: Stage) -> None:
    await opened(stage, cpu=2)
    await started(stage, member("good", 2), member("bad", 2, seconds=30, annotations=FAILS))
    await stage.until(functools.partial(says, stage, "WaitingForReplacementPods"))
    assert (await pods(stage))["bad"]["metadata"]["finalizers"] == [MANAGED_LABEL]
    await stage.create(member("better", 2))
    await stage.until(functools.partial(are_gated, stage, good=False, bad=False, better=False))
    await stage.settle()
    assert await says(stage, "WaitingForReplacementPods", status=False)
    assert not (await pods(stage))["bad"]["metadata"].get("finalizers")
    workload = await group(stage)
    better = (await pods(stage))["better"]["metadata"]["uid"]
    assert better in {one["uid"] for one in workload["metadata"]["ownerReferences"]}
    assert is_true(workload, "Admitted")
    await until_used(stage, "2")


@pytest.mark.parametrize("when", ["before it is admitted", "after"])
@story(configuration=PODS)
async def test_pod_too_many_is_never_started_and_deleted(stage: Stage, when: str) -> None:
    await opened(stage, cpu=2 if when == "after" else 1)
    await stage.create(member("one", 2))
    await stage.create(member("two", 2))
    await stage.settle()
    gated = when != "after"
    assert await are_gated(stage, one=gated, two=gated)
    third = await stage.create(member("third", 2))
    await stage.until(functools.partial(are_gated, stage, one=gated, two=gated))
    await stage.settle()
    assert await stage.events(third, "ExcessPodDeleted")
    assert await are_gated(stage, one=gated, two=gated)
    await until_used(stage, "0" if gated else "2")


@story(configuration=PODS)
async def test_evicted_group_is_deleted_and_waits_for_new_pods_under_its_name(
    stage: Stage,
) -> None:
    await opened(stage, cpu=2)
    await started(stage, member("one", 2), member("two", 2))
    before = await group(stage)
    await stage.patch(before, {"spec": {"active": False}})

    await stage.until(functools.partial(says, stage, "QuotaReserved", status=False))
    await stage.settle()
    for one in (await pods(stage)).values():
        assert "deletionTimestamp" in one["metadata"]
        assert reason_of(find_condition(one, "TerminationTarget")) == "WorkloadEvicted"
    assert await says(stage, "WaitingForReplacementPods")
    after = await group(stage)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert not is_true(after, "QuotaReserved")

    await stage.patch(after, {"spec": {"active": True}})
    third = await stage.create(member("three", 2))
    await stage.settle()
    assert not await says(stage, "QuotaReserved")
    # Before one of the old pods went, or the Workload would go with the last of them.
    owners = {one["uid"] for one in (await group(stage))["metadata"]["ownerReferences"]}
    assert third["metadata"]["uid"] in owners
    assert len(await pods(stage)) == 2
    await stage.create(member("four", 2))
    await stage.until(functools.partial(are_gated, stage, three=False, four=False))
    assert (await group(stage))["metadata"]["uid"] == before["metadata"]["uid"]
    await until_used(stage, "2")


@story(configuration=PODS)
async def test_group_that_is_not_retriable_ends_with_its_last_pod(stage: Stage) -> None:
    await opened(stage, cpu=2)
    fails = member("bad", 2, seconds=30, retriable_in_group="false", annotations=FAILS)
    await started(stage, member("good", 2, seconds=60), fails)
    await stage.until(functools.partial(says, stage, "Finished"))
    await stage.settle()
    assert message_of(find_condition(await group(stage), "Finished")) == "Pods succeeded: 1/2."
    assert not [one for one in (await pods(stage)).values() if one["metadata"].get("finalizers")]
    await until_used(stage, "0")


@story(configuration=PODS, refuses_starts=True)
async def test_user_ends_a_group_that_runs_and_its_quota_is_free_with_its_last_pod(
    stage: Stage,
) -> None:
    await opened(stage, cpu=3)
    bad = member("bad", 3, seconds=20, annotations=FAILS)
    long = member("long", 3, seconds=120)
    await started(stage, bad, long, member("short", 3, seconds=40))
    for count in ("1", "4"):
        fewer = {"metadata": {"annotations": {TOTAL: count}}}
        with pytest.raises(RefusedError, match="must stay '3'"):
            await stage.patch(long, fewer)
    await stage.settle(60)
    await stage.patch(long, {"metadata": {"annotations": {RETRIABLE: "false"}}})
    await stage.settle(10)
    assert not await says(stage, "Finished")
    await until_used(stage, "2")  # The one that failed may still be made up for.
    await stage.until(functools.partial(says, stage, "Finished"))
    await until_used(stage, "0")
    assert (await pods(stage))["long"]["status"]["phase"] == "Succeeded"


@story(configuration=PODS)
async def test_pod_that_starts_in_a_group_that_has_finished_is_stopped(stage: Stage) -> None:
    await opened(stage, cpu=1)
    await started(stage, member("one", 1, seconds=20))
    await stage.until(functools.partial(says, stage, "Finished"))
    late = await stage.create(member("late", 1))
    await stage.patch(late, {"spec": {"schedulingGates": None}})

    async def is_gone() -> bool:
        return "late" not in await pods(stage)

    await stage.until(is_gone)
    await until_used(stage, "0")
    assert await says(stage, "Finished")


@story(configuration=PODS)
async def test_group_with_fast_admission_waits_with_its_first_pod(stage: Stage) -> None:
    await opened(stage, cpu=3)
    fast = functools.partial(member, pod_group_fast_admission="true")
    await started(stage, fast("one", 3))
    assert [p["count"] for p in (await group(stage))["spec"]["podSets"]] == [3]
    await stage.create(fast("two", 3))
    await stage.until(functools.partial(are_gated, stage, one=False, two=False))
    await stage.create(fast("three", 3))
    await stage.until(functools.partial(are_gated, stage, one=False, two=False, three=False))
    await until_used(stage, "3")


@story(configuration=PODS)
async def test_serving_group_goes_on_when_a_pod_has_succeeded(stage: Stage) -> None:
    await opened(stage, cpu=2)
    serving = functools.partial(member, pod_group_serving="true")
    await started(stage, serving("one", 2, seconds=30), serving("two", 2, seconds=30))
    await stage.settle(60)
    assert not await says(stage, "Finished")
    await until_used(stage, "2")
    await stage.delete(member("one", 2))
    await stage.until(functools.partial(are_gated, stage, two=False))
    await stage.create(serving("one", 2))
    await stage.until(functools.partial(are_gated, stage, one=False, two=False))


@pytest.mark.parametrize("which", ["that runs", "that waits", "that is not complete"])
@story(configuration=PODS)
async def test_group_whose_user_deletes_all_pods_is_gone(stage: Stage, which: str) -> None:
    await opened(stage, cpu=2 if which == "that runs" else 1)
    await stage.create(member("one", 2))
    if which != "that is not complete":
        await stage.create(member("two", 2))
    await stage.settle()
    for name in await pods(stage):
        await stage.kube.delete(POD, "team-a", name)
    await stage.until(functools.partial(are_gated, stage))
    await stage.settle()
    assert await group(stage) == {}
    await until_used(stage, "0")


@story(configuration=PODS)
async def test_finished_pods_give_their_quota_back_before_the_others_end(stage: Stage) -> None:
    await opened(stage, cpu=2)
    await started(stage, member("short", 2, seconds=30), member("long", 2))
    await until_used(stage, "2")
    await until_used(stage, "1")
    assert [one["count"] for one in (await group(stage))["status"]["reclaimablePods"]] == [1]


@story(configuration=PODS)
async def test_group_does_not_take_the_workload_of_a_job(stage: Stage) -> None:
    await opened(stage, cpu=3)
    mine = await stage.create(job("mine", "q", {"cpu": 1}))
    await stage.until_admitted(mine)
    name = (await stage.workload(mine))["metadata"]["name"]
    await stage.create(member("one", 1, group=name))
    await stage.settle()
    assert await are_gated(stage, one=True) or is_gated((await pods(stage))["one"])
    owners = (await stage.workload(mine))["metadata"]["ownerReferences"]
    assert [one["kind"] for one in owners] == ["Job"]
    await stage.delete(mine)
    await stage.delete(member("one", 1))
    await stage.settle(30)
    assert "one" not in await pods(stage)


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "without a number of pods": (
        {"annotations": {"kueue.x-k8s.io/pod-group-total-count": ""}},
        "belong together",
    ),
    "with a number that is none": (
        {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "two"}},
        "from 1 to 99999",
    ),
    "with a name that no Workload can have": ({"group": "Mine"}, "lower case letters"),
    "with a role that is no pod set's name": ({"role_hash": "A B"}, "DNS label"),
    "with a Workload of its user": (
        {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}},
        "not offered",
    ),
    "by an annotation": (
        {"annotations": {"kueue.x-k8s.io/pod-group-name": "g"}},
        "into a label",
    ),
}


@story(configuration=PODS, refuses_starts=True)
async def test_group_that_cannot_be_counted_is_refused_with_the_remedy(stage: Stage) -> None:
    await opened(stage)
    for number, (given, why) in enumerate(REFUSED.values()):
        with pytest.raises(RefusedError, match=why):
            await stage.create(member(f"p-{number}", 2, **given))
    made = await stage.create(member("one", 2))
    with pytest.raises(RefusedError, match="must stay 'g'"):
        await stage.patch(made, {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "h"}}})
