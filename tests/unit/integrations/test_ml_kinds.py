"""Each ML kind that ships is recognised, held, counted as Kueue counts it, released and finished."""

from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.context import DEFAULT_CONTEXT
from services.classifier.webhook.mutation import mutate
from services.classifier.webhook.updates import review_update
from shared.contracts.kube.kinds import Object
from shared.integrations import SHIPPED, WHERE_SERVED, Integration, PodSetInfo
from shared.integrations.pointers import found
from tests.unit.classifier.webhook.reviews import RULES
from tests.unit.integrations.ml_kinds import KINDS, QUEUE, REFUSED, MlKind, said, with_status

KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def integration_of(obj: Object) -> Integration:
    group = obj["apiVersion"].rpartition("/")[0]
    integration = SHIPPED.find(group=group, kind=obj["kind"])
    assert integration is not None
    assert integration.kind.api_version == obj["apiVersion"]
    return integration


def held(kind: MlKind) -> Object:
    """The object as the webhook lets it be created."""
    return mutate(kind.new, RULES).object


def applied(obj: Object, patch: Any) -> Object:
    return jsonpatch.apply_patch(obj, patch)


def cpu_of(pod_set: Object) -> str:
    requests = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
    return str(requests.get("cpu") or "")


def infos(pod_sets: list[Object]) -> list[PodSetInfo]:
    return [
        PodSetInfo(
            name=one["name"],
            count=one["count"],
            node_selector={"flavor": one["name"]},
            tolerations=({"key": "spot"},),
        )
        for one in pod_sets
    ]


@KIND
def test_webhook_holds_a_new_object_with_a_queue(kind: MlKind) -> None:
    integration = integration_of(kind.new)
    assert integration.kind in WHERE_SERVED
    assert integration.matches(kind.new)
    assert not integration.held(kind.new)
    after = held(kind)
    assert integration.held(after)
    assert found(after, kind.suspended_at) is True
    assert not integration.active(after)
    assert integration.finish(after) is None
    unnamed = {**kind.new, "metadata": {**kind.new["metadata"], "labels": {}}}
    assert mutate(unnamed, RULES).patch == ()


@KIND
def test_pod_sets_are_those_of_kueue(kind: MlKind) -> None:
    pod_sets = integration_of(kind.new).pod_sets(held(kind))
    assert tuple((p["name"], p["count"], cpu_of(p)) for p in pod_sets) == kind.pod_sets


@KIND
def test_released_object_runs_where_its_flavors_are_and_forgets_them_when_stopped(
    kind: MlKind,
) -> None:
    integration, before = integration_of(kind.new), held(kind)
    asked = integration.pod_sets(before)
    running = applied(before, integration.release(before, infos(asked)))
    assert not integration.held(running)
    wanted = [{"flavor": name} for name, _, _ in kind.pod_sets] if kind.selectors else []
    assert [found(running, path) for path in kind.selectors] == wanted
    stop = integration.stop(with_status(running, kind.running))
    assert (stop is not None) == kind.stoppable
    if stop is not None:
        stopped = applied(running, stop)
        restore = integration.restore(stopped, asked)
        again = applied(stopped, restore)
        assert integration.held(again)
        assert integration.pod_sets(again) == asked


@KIND
def test_status_says_whether_it_runs_is_ready_and_has_ended(kind: MlKind) -> None:
    integration = integration_of(kind.new)
    assert integration.active(with_status(kind.new, kind.running))
    assert integration.ready(with_status(kind.new, {})) is (None if kind.ready is None else False)
    if kind.ready is not None:
        assert integration.ready(with_status(kind.new, kind.ready)) is True
    assert integration.finish(with_status(kind.new, kind.running)) is None
    for status, success in ((kind.succeeded, True), (kind.failed, False)):
        if status is None:
            continue
        ended = with_status(kind.new, status)
        finish = integration.finish(ended)
        assert finish is not None
        assert finish.success is success
        assert not integration.active(ended)


@KIND
def test_object_of_another_cluster_is_known_by_its_own_field(kind: MlKind) -> None:
    integration = integration_of(kind.new)
    assert (integration.managed_by, integration.own_controller) == (
        kind.managed_by,
        kind.own_controller,
    )
    assert not integration.runs_elsewhere(kind.new)


@pytest.mark.parametrize(("obj", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_object_that_cannot_be_counted_is_refused_by_field_value_and_remedy(
    obj: Object, why: str
) -> None:
    with pytest.raises(RefusedError, match="x: spec") as caught:
        mutate(obj, RULES)
    assert f"{obj['kind']} team/x: {why}" in str(caught.value)
    unnamed = {**obj, "metadata": {**obj["metadata"], "labels": {}}}
    assert mutate(unnamed, RULES).patch == ()


def test_change_that_makes_an_object_uncountable_is_refused_and_others_pass() -> None:
    old = {**KINDS["RayCluster"].new}
    integration = integration_of(old)
    changed = {**old, "spec": {**old["spec"], "enableInTreeAutoscaling": True}}
    with pytest.raises(RefusedError, match="an autoscaler takes pods"):
        review_update(changed, old, integration, user="u", context=DEFAULT_CONTEXT)
    labelled = {**changed, "metadata": {**changed["metadata"], "labels": {QUEUE: "main", "a": "b"}}}
    assert not review_update(
        labelled, changed, integration, user="u", context=DEFAULT_CONTEXT
    ).patch


UNREADABLE: dict[str, Callable[[list[Object]], list[Object]]] = {
    "two groups of one name": lambda groups: [*groups, groups[0]],
    "a group without a name": lambda groups: [*groups, {**groups[0], "groupName": ""}],
    "more groups than a Workload has": lambda groups: [
        {**groups[0], "groupName": f"g-{number}"} for number in range(19)
    ],
}


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_change_to_an_unreadable_object_is_refused_and_an_unreadable_object_may_stay(
    change: Callable[[list[Object]], list[Object]],
) -> None:
    old = KINDS["RayCluster"].new
    integration = integration_of(old)
    spec = {**old["spec"], "workerGroupSpecs": change(old["spec"]["workerGroupSpecs"])}
    changed = {**old, "spec": spec}
    with pytest.raises(RefusedError, match="workerGroupSpecs"):
        review_update(changed, old, integration, user="u", context=DEFAULT_CONTEXT)
    again = {**changed, "spec": {**spec, "suspend": True}}
    assert not review_update(again, changed, integration, user="u", context=DEFAULT_CONTEXT).patch


ROLES = {
    "a role that is null": ({"Master": None, "Worker": {"replicas": 2}}, [("worker", 2)]),
    "a role that nobody knows": (
        {"Alpha": {"replicas": 3}, "Worker": {"replicas": 2}},
        [("worker", 2), ("alpha", 3)],
    ),
    "no role": ({}, []),
}


@pytest.mark.parametrize(("roles", "asked"), ROLES.values(), ids=ROLES.keys())
def test_roles_of_a_map_are_counted_in_the_order_of_the_document(
    roles: Object, asked: list[tuple[str, int]]
) -> None:
    obj = {**KINDS["PyTorchJob"].new, "spec": {"pytorchReplicaSpecs": roles}}
    pod_sets = integration_of(obj).pod_sets(obj)
    assert [(p["name"], p["count"]) for p in pod_sets] == asked


SUBMITTERS = {
    "K8sJobMode": (["head", "small", "hosts", "one", "submitter"], 1),
    "HTTPMode": (["head", "small", "hosts", "one"], 1),
    "SidecarMode": (["head", "small", "hosts", "one"], 2),
}


@pytest.mark.parametrize(("mode", "named"), SUBMITTERS.items(), ids=SUBMITTERS.keys())
def test_submitter_of_a_ray_job_is_counted_where_it_runs(
    mode: str, named: tuple[list[str], int]
) -> None:
    new = KINDS["RayJob"].new
    obj = {**new, "spec": {**new["spec"], "submissionMode": mode}}
    pod_sets = integration_of(obj).pod_sets(obj)
    assert [p["name"] for p in pod_sets] == named[0]
    containers = pod_sets[0]["template"]["spec"]["containers"]
    assert len(containers) == named[1]
    if mode == "SidecarMode":
        assert containers[1]["resources"] == {"requests": {"cpu": "500m", "memory": "200Mi"}}


def test_ray_job_that_uses_another_cluster_does_not_wait() -> None:
    obj = {**KINDS["RayJob"].new, "spec": {"clusterSelector": {"ray.io/cluster": "shared"}}}
    assert not integration_of(obj).matches(obj)
    assert mutate(obj, RULES).patch == ()


def test_memory_and_devices_of_spark_are_read_as_its_operator_reads_them() -> None:
    new = KINDS["SparkApplication"].new
    executor = {
        "memory": "4G",
        "memoryLimit": "5000mb",
        "coreLimit": "2",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
        "sidecars": [{"name": "s"}],
        "priorityClassName": "high",
    }
    obj = {**new, "spec": {**new["spec"], "executor": executor}}
    spec = integration_of(obj).pod_sets(obj)[1]["template"]["spec"]
    assert spec["containers"] == [
        {
            "name": "spark-kubernetes-executor",
            "resources": {
                "requests": {"cpu": "1", "memory": "4505Mi"},
                "limits": {"cpu": "2", "memory": "5000Mi", "nvidia.com/gpu": 1},
            },
        },
        {"name": "s"},
    ]
    assert spec["priorityClassName"] == "high"


def test_configuration_of_spark_that_says_what_is_counted_passes() -> None:
    new = KINDS["SparkApplication"].new
    said_twice = {"spark.executor.instances": "3", "spark.dynamicAllocation.enabled": "false"}
    obj = {**new, "spec": {**new["spec"], "sparkConf": said_twice}}
    assert integration_of(obj).refusals(obj) == []


def test_paused_workflow_keeps_its_quota_while_its_pods_may_run() -> None:
    integration, new = integration_of(KINDS["Workflow"].new), KINDS["Workflow"].new
    waiting = {**new, "spec": {"suspend": True}, "status": {"phase": "Running"}}
    assert not integration.active(waiting)
    paused = with_status(waiting, {"phase": "Running", "nodes": {"a": {}}})
    assert integration.active(paused)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Error"])
def test_workflow_runs_until_its_controller_says_that_it_is_done_with_it(phase: str) -> None:
    """Argo makes pods whatever the phase says, as long as the label is not there."""
    integration, new = integration_of(KINDS["Workflow"].new), KINDS["Workflow"].new
    said_by_a_user = with_status(new, {"phase": phase})
    assert integration.active(said_by_a_user)
    assert integration.finish(said_by_a_user) is None
    labels = {"labels": {"workflows.argoproj.io/completed": "true"}}
    labelled = {**with_status(new, KINDS["Workflow"].running), "metadata": labels}
    assert integration.active(labelled)
    assert integration.finish(labelled) is None


def test_priority_class_of_the_run_policy_goes_before_that_of_the_pods() -> None:
    new = KINDS["PyTorchJob"].new
    policy = {"schedulingPolicy": {"priorityClass": "high"}}
    integration = integration_of(new)
    assert integration.priority_class({**new, "spec": {"runPolicy": policy}}) == "high"
    assert integration.priority_class(new) == ""


def test_suspended_condition_is_no_end() -> None:
    kind = KINDS["PyTorchJob"]
    assert integration_of(kind.new).finish(with_status(kind.new, said("Suspended"))) is None
