"""Plain pods that name a queue: held by a scheduling gate, released, deleted, and left alone."""

import functools
from typing import Final

import pytest

from services.ctl.setup.webhook import webhook_manifest
from shared.contracts.kube.bodies import labels_of
from shared.contracts.kube.kinds import INTEGRATION, POD, Object
from shared.contracts.kube.names import MANAGED_LABEL, POD_SET_LABEL, PRIORITY_CLASS_LABEL, QUEUE
from shared.kube.port import NotFoundError, RefusedError
from tests.conformance.seeds.stage import Stage, job, pool, story
from tests.simulation.kinds.pods import (
    DEPLOYMENTS,
    FLAVOR,
    GROUP,
    PODS,
    is_gated,
    opened,
    pod,
    replicated,
)
from tests.simulation.kinds.pods_under_faults import pods_of
from tests.simulation.tenants.hostile_input import used


async def is_gone(stage: Stage, obj: Object) -> bool:
    try:
        return bool((await stage.fresh(obj))["metadata"]["uid"] != obj["metadata"]["uid"])
    except NotFoundError:
        return True


@story(configuration=PODS)
async def test_pod_waits_at_its_gate_runs_on_its_flavor_and_makes_room_when_it_has_ended(
    stage: Stage,
) -> None:
    await opened(stage)
    first = await stage.create(pod("first", seconds=60))
    await stage.until_admitted(first)
    second = await stage.create(pod("second"))
    assert is_gated(second)
    assert second["metadata"]["labels"][MANAGED_LABEL] == "true"
    assert second["metadata"]["finalizers"] == [MANAGED_LABEL]
    await stage.until_waits(second)

    runs = await stage.fresh(first)
    assert not is_gated(runs)
    assert runs["spec"]["nodeSelector"] == FLAVOR["spec"]["nodeLabels"]
    assert FLAVOR["spec"]["tolerations"][0] in runs["spec"]["tolerations"]
    assert runs["metadata"]["labels"][POD_SET_LABEL] == "main"
    assert await used(stage, "q") == "1"

    await stage.until_finished(first)
    await stage.until_admitted(second)
    await stage.settle()
    ended = await stage.fresh(first)
    assert ended["status"]["phase"] == "Succeeded"
    assert not ended["metadata"].get("finalizers")
    assert not is_gated(await stage.fresh(second))


@story(configuration=PODS)
async def test_evicted_pod_is_deleted_and_its_quota_is_free_when_it_is_gone(stage: Stage) -> None:
    await opened(stage)
    runs = await stage.create(pod("runs"))
    await stage.until_admitted(runs)
    waits = await stage.create(pod("waits"))
    await stage.until_waits(waits)
    await stage.settle()
    await stage.patch(await stage.workload(runs), {"spec": {"active": False}})
    await stage.until(functools.partial(is_gone, stage, runs))
    await stage.until_admitted(waits)
    await stage.settle()
    assert not await stage.workload(runs)
    assert await stage.events(runs, "Stopped")
    assert not is_gated(await stage.fresh(waits))
    assert await used(stage, "q") == "1"


@pytest.mark.parametrize("which", ["that runs", "that waits"])
@story(configuration=PODS)
async def test_deleted_pod_disappears_and_gives_its_quota_back(stage: Stage, which: str) -> None:
    await opened(stage)
    runs = await stage.create(pod("runs"))
    await stage.until_admitted(runs)
    waits = await stage.create(pod("waits"))
    await stage.until_waits(waits)
    await stage.settle()
    deleted, left = (runs, waits) if which == "that runs" else (waits, runs)
    await stage.delete(deleted)
    await stage.until(functools.partial(is_gone, stage, deleted))
    await stage.until_admitted(left)
    await stage.settle()
    assert not await stage.workload(deleted)
    assert await used(stage, "q") == "1"


@story(configuration=DEPLOYMENTS)
async def test_deployment_gives_its_queue_to_its_pods_and_each_waits_by_itself(
    stage: Stage,
) -> None:
    await opened(stage)
    made = await stage.create(replicated("Deployment", {QUEUE: "q", PRIORITY_CLASS_LABEL: "high"}))
    given = {"app": "web", QUEUE: "q", PRIORITY_CLASS_LABEL: "high"}
    assert made["spec"]["template"]["metadata"]["labels"] == given
    # No ReplicaSet is between them here.
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    owner["uid"] = made["metadata"]["uid"]
    first, second = [
        await stage.create(pod(name, ownerReferences=[{**owner, "controller": True}]))
        for name in ("web-1", "web-2")
    ]
    await stage.until_admitted(first)
    await stage.until_waits(second)
    await stage.patch(made, {"metadata": {"labels": {QUEUE: "r"}}})
    template = (await stage.fresh(made))["spec"]["template"]
    assert template["metadata"]["labels"] == {**given, QUEUE: "r"}
    other = await stage.create(replicated("Deployment", {}, name="other"))
    assert other["spec"]["template"]["metadata"]["labels"] == {"app": "web"}


@story(configuration=DEPLOYMENTS)
async def test_pods_of_a_stateful_set_wait_together_and_come_back_after_a_preemption(
    stage: Stage,
) -> None:
    await opened(stage, cpu=2)
    web = await stage.create(replicated("StatefulSet", {QUEUE: "q"}))
    group = labels_of(web["spec"]["template"])[GROUP]
    of_group = {"kind": "Workload", "metadata": {"namespace": "team-a", "name": group}}
    await stage.until_admitted(of_group)
    [pods] = (await stage.workload(of_group))["spec"]["podSets"]
    assert pods["count"] == 2
    await stage.settle(60)
    running = await pods_of(stage)
    assert [one["status"]["phase"] for one in running] == ["Running", "Running"]

    waits = await stage.create(pod("waits"))
    await stage.until_waits(waits)
    await stage.patch(await stage.workload(of_group), {"spec": {"active": False}})
    await stage.until_admitted(waits)
    first, *others = [one for one in await pods_of(stage) if GROUP in labels_of(one)]
    assert is_gated(first)
    assert not others, "the second comes when the first is ready"
    await stage.patch(waits, {"metadata": {"finalizers": None}})
    await stage.delete(waits)
    await stage.patch(await stage.workload(of_group), {"spec": {"active": True}})
    await stage.until_admitted(of_group)
    await stage.settle(60)
    assert not [one for one in await pods_of(stage) if is_gated(one)]
    assert await used(stage, "q") == "2"

    await stage.patch(web, {"spec": {"replicas": 0}})
    await stage.settle(60)
    assert not await pods_of(stage)
    assert await used(stage, "q") == "0"
    await stage.patch(web, {"spec": {"replicas": 1}})
    await stage.settle(60)
    assert await used(stage, "q") == "1"


OWNED: Final[dict[str, Object]] = {
    "without a queue": pod("other", None),
    "of a Job, which waits as a whole": pod(
        "other",
        ownerReferences=[
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        ],
    ),
    "of a TaskRun, with the labels of its PipelineRun": pod(
        "other",
        ownerReferences=[
            {
                "apiVersion": "tekton.dev/v1",
                "kind": "TaskRun",
                "name": "t",
                "uid": "u",
                "controller": True,
            }
        ],
    ),
    "in a namespace that is not managed": pod("other", namespace="kube-system"),
}


@pytest.mark.parametrize("obj", OWNED.values(), ids=OWNED.keys())
@story(configuration=PODS)
async def test_pod_is_left_alone(stage: Stage, obj: Object) -> None:
    await opened(stage)
    made = await stage.create(obj)
    assert not is_gated(made)
    assert MANAGED_LABEL not in labels_of(made)
    assert not made["metadata"].get("finalizers")


@story(configuration=PODS)
async def test_webhook_of_all_jobs_is_not_asked_about_pods(stage: Stage) -> None:
    """It selects by no label: every pod of the cluster would depend on it."""
    manifest = webhook_manifest(url="https://127.0.0.1", authority=b"ca").object
    await stage.create(dict(manifest))
    await opened(stage)
    await stage.settle(60)
    rules = [rule for hook in (await stage.fresh(manifest))["webhooks"] for rule in hook["rules"]]
    assert not [rule for rule in rules if "pods" in rule["resources"]]


@story()
async def test_pods_do_not_wait_unless_the_configuration_lists_them(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    made = await stage.create(pod("first"))
    await stage.settle()
    assert not is_gated(made)
    assert not (await stage.kube.list(INTEGRATION)).items


@story(configuration=PODS, refuses_starts=True)
async def test_user_can_neither_start_a_waiting_pod_nor_hide_a_running_pod(stage: Stage) -> None:
    await opened(stage)
    runs = await stage.create(pod("runs"))
    await stage.until_admitted(runs)
    waits = await stage.create(pod("waits"))
    await stage.until_waits(waits)
    await stage.settle()
    with pytest.raises(RefusedError, match="may not be changed to start it"):
        await stage.patch(waits, {"spec": {"schedulingGates": []}})
    for one in (runs, waits):
        with pytest.raises(RefusedError, match=r"must stay .true. until it has ended"):
            await stage.patch(one, {"metadata": {"labels": {MANAGED_LABEL: None}}})
    assert await used(stage, "q") == "1"


@story(configuration=PODS)
async def test_pods_of_an_admitted_job_run_on_its_quota_whatever_their_labels(stage: Stage) -> None:
    await opened(stage, cpu=2)
    obj = job("two", "q", {"cpu": 1}, parallelism=2)
    obj["spec"]["template"]["metadata"]["labels"] = {QUEUE: "q", MANAGED_LABEL: "true"}
    two = await stage.create(obj)
    await stage.until_admitted(two)
    await stage.settle(60)
    pods = (await stage.kube.list(POD, namespace="team-a")).items
    assert [one["status"]["phase"] for one in pods] == ["Running", "Running"]
    assert await used(stage, "q") == "2"
