"""How copies are made and read, and which spokes a check has."""

from typing import Any

import pytest

from services.dispatcher.hub.configuration import CheckSpokes, MultiKueueConfiguration
from services.dispatcher.spokes.copies import (
    CopyPhase,
    make_copy,
    make_workload,
    phase_of,
    read_copy,
    read_remote_workload,
)
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import PREBUILT_WORKLOAD
from shared.contracts.messages.observed import Observed
from shared.integrations import JOB, PIPELINE_RUN
from shared.testing.builders import observed_object
from tests.unit.dispatcher.harness import job

LABELS = {
    "kueue.x-k8s.io/prebuilt-workload-name": "job-train-1",
    "kueue.x-k8s.io/multikueue-origin": "hub-a",
}


def test_copy_has_spec_of_job_and_labels_of_hub() -> None:
    original = job(
        managedBy="kueue.x-k8s.io/multikueue",
        selector={"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        template={
            "metadata": {"labels": {"app": "x", "controller-uid": "u", "job-name": "train"}},
            "spec": {"containers": []},
        },
    )
    original["metadata"] |= {"ownerReferences": [{}], "finalizers": ["x"], "generation": 3}
    copy = make_copy(
        original, integration=JOB, workload="job-train-1", origin="hub-a", order="hub/7"
    )
    assert copy == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "main", **LABELS},
            "annotations": {
                "sluicegate.dev/traceparent": "00-1-2-01",
                "sluicegate.dev/order": "hub/7",
            },
            "finalizers": ["sluicegate.dev/copy"],
        },
        "spec": {
            "suspend": True,
            "parallelism": 2,
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}},
        },
    }
    assert original["spec"]["managedBy"], "the original is not touched"


@pytest.mark.parametrize("letters", [63, 64, 253])
def test_copy_names_its_workload_however_long_the_name_is(letters: int) -> None:
    name = letters * "w"
    original = job()
    for marks in ("labels", "annotations"):
        original["metadata"].setdefault(marks, {})[PREBUILT_WORKLOAD] = "what a user wrote"
    copy = make_copy(original, integration=JOB, workload=name, origin="hub-a", order="hub/7")
    labels = copy["metadata"]["labels"]
    assert (labels.get(PREBUILT_WORKLOAD) == name) is (letters <= 63)
    assert all(len(value) <= 63 for value in labels.values())
    read = read_copy(as_body(copy), JOB, hub="hub", origin="hub-a")
    assert read is not None
    assert read.workload == name


def test_copy_of_pipeline_run_is_pending_and_not_managed_elsewhere() -> None:
    run = {
        "metadata": {"name": "build", "namespace": "team-a", "uid": "u"},
        "spec": {"status": "PipelineRunPending", "managedBy": "kueue.x-k8s.io/multikueue"},
        "status": {"conditions": []},
    }
    copy = make_copy(
        as_body(run), integration=PIPELINE_RUN, workload="w", origin="o", order="hub/7"
    )
    assert copy["spec"] == {"status": "PipelineRunPending"}
    assert "status" not in copy


def test_copy_of_cancelled_run_is_created_pending() -> None:
    run = {
        "metadata": {"name": "build", "namespace": "team-a", "uid": "u"},
        "spec": {"status": "CancelledRunFinally", "managedBy": "kueue.x-k8s.io/multikueue"},
    }
    copy = make_copy(
        as_body(run), integration=PIPELINE_RUN, workload="w", origin="o", order="hub/7"
    )
    assert copy["spec"] == {"status": "PipelineRunPending"}
    assert PIPELINE_RUN.carry(run) == {"status": "CancelledRunFinally"}, (
        "sent once the spoke is chosen"
    )


def test_copy_keeps_manual_selector() -> None:
    original = job(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    copy = make_copy(original, integration=JOB, workload="w", origin="o", order="hub/7")
    assert copy["spec"]["selector"] == {"matchLabels": {"a": "b"}}


def labelled(labels: dict[str, str], order: str | None) -> Object:
    annotations = {} if order is None else {"sluicegate.dev/order": order}
    return {"metadata": {"name": "x", "uid": "u", "labels": labels, "annotations": annotations}}


OTHERS: dict[str, Object] = {
    "it has no label": labelled({}, "hub/7"),
    "it comes from elsewhere": labelled(
        LABELS | {"kueue.x-k8s.io/multikueue-origin": "b"}, "hub/7"
    ),
    "another hub ordered it under the same label": labelled(LABELS, "hub-b/7"),
    "some other program made it": labelled(LABELS, None),
    "its number is none": labelled(LABELS, "hub/seven"),
}


@pytest.mark.parametrize("obj", OTHERS.values(), ids=OTHERS.keys())
def test_object_not_ordered_by_this_hub_is_no_copy(obj: Object) -> None:
    assert read_copy(obj, JOB, hub="hub", origin="hub-a") is None


def test_copy_names_workload_and_order_number() -> None:
    copy = read_copy(labelled(LABELS, "hub/7"), JOB, hub="hub", origin="hub-a")
    assert copy is not None
    assert (copy.workload, copy.number) == ("job-train-1", 7)


def test_copy_has_lease_annotation() -> None:
    copy = make_copy(
        job(), integration=JOB, workload="w", origin="o", order="hub/7", lease_seconds=600.0
    )
    assert copy["metadata"]["annotations"]["sluicegate.dev/lease-seconds"] == "600"


def test_workload_for_spoke_with_own_kueue_has_queue_and_pod_sets() -> None:
    workload = make_workload(
        job(template={"spec": {"containers": []}}), integration=JOB, workload="w", origin="o",
        order="hub/7", queue="main", priority=100,
    )  # fmt: skip
    assert workload["metadata"]["labels"] == {"kueue.x-k8s.io/multikueue-origin": "o"}
    assert workload["spec"]["queueName"] == "main"
    assert [p["name"] for p in workload["spec"]["podSets"]] == ["main"]


PHASES: dict[str, tuple[dict[str, Any], CopyPhase]] = {
    "it waits": ({}, CopyPhase.WAITING),
    "its pods run": ({"status": {"active": 1}}, CopyPhase.RESERVED),
    "it is done": (
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, CopyPhase.FINISHED,
    ),
    "it is done, and being cleaned up": (
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]},
         "metadata": {"deletionTimestamp": "x"}},
        CopyPhase.FINISHED,
    ),
    "it is being deleted": (
        {"status": {"active": 1}, "metadata": {"deletionTimestamp": "x"}}, CopyPhase.TERMINATING,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("more", "phase"), PHASES.values(), ids=PHASES.keys())
def test_phase_of_copy(more: dict[str, Any], phase: CopyPhase) -> None:
    assert phase_of(as_body({**job(), **more}), JOB) is phase


def test_conditions_of_remote_workload() -> None:
    def shows(*conditions: Object) -> tuple[bool, str | None]:
        remote = read_remote_workload(as_body({"status": {"conditions": list(conditions)}}))
        return remote.reserved, remote.evicted

    assert shows({"type": "QuotaReserved", "status": "True"}) == (True, None)
    assert shows({"type": "QuotaReserved", "status": "False"}) == (False, None)
    assert shows({"type": "Evicted", "status": "True", "message": "why"}) == (False, "why")
    assert shows() == (False, None)


def seen(kind: Kind, name: str, spec: Object | None, *, deleted: bool = False) -> Observed:
    return observed_object(kind, {"metadata": {"name": name}, "spec": spec}, deleted=deleted)


PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
OURS = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": PARAMETERS}


def configured(*clusters: str, known: tuple[str, ...]) -> MultiKueueConfiguration:
    configuration = MultiKueueConfiguration(cluster="hub")
    configuration.observe(seen(kinds.ADMISSION_CHECK, "mk", OURS))
    configuration.observe(seen(kinds.MULTIKUEUE_CONFIG, "all", {"clusters": list(clusters)}))
    for name in known:
        configuration.observe(seen(kinds.MULTIKUEUE_CLUSTER, name, {}))
    return configuration


def test_spokes_of_check_keep_configured_order_and_list_missing_ones() -> None:
    spokes = configured("b", "a", "d", "b", known=("a", "b", "c")).spokes("mk")
    assert spokes == CheckSpokes(configured=("b", "a"), missing=("d",))


def test_hub_is_not_a_spoke_of_itself() -> None:
    assert configured("hub", known=("hub",)).spokes("mk") == CheckSpokes(missing=("hub",))


def test_two_configurations_share_a_cluster() -> None:
    configuration = configured("a", known=("a",))
    other = {**OURS, "parameters": {**PARAMETERS, "name": "other"}}
    configuration.observe(seen(kinds.ADMISSION_CHECK, "mk-2", other))
    configuration.observe(seen(kinds.MULTIKUEUE_CONFIG, "other", {"clusters": ["a"]}))
    assert (
        configuration.spokes("mk") == configuration.spokes("mk-2") == CheckSpokes(configured=("a",))
    )


def test_flavor_requires_spoke_by_node_label() -> None:
    configuration = configured("a", known=("a",))
    nodes = {"nodeLabels": {"sluicegate.dev/spoke": "a"}}
    configuration.observe(seen(kinds.RESOURCE_FLAVOR, "gpus", nodes))
    configuration.observe(seen(kinds.RESOURCE_FLAVOR, "any", {}))
    assert configuration.required_spoke("gpus") == "a"
    assert configuration.required_spoke("any") is None
    assert configuration.required_spoke("unknown") is None


def test_check_without_configuration_has_a_problem() -> None:
    configuration = configured("a", known=("a",))
    configuration.observe(seen(kinds.MULTIKUEUE_CONFIG, "all", None, deleted=True))
    assert configuration.spokes("mk") == CheckSpokes(
        problem='MultiKueueConfig "all" of AdmissionCheck "mk" not found'
    )


def test_check_of_other_controller_is_not_multikueue() -> None:
    configuration = configured(known=())
    other = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    configuration.observe(seen(kinds.ADMISSION_CHECK, "machines", other))
    assert configuration.is_multikueue_check("mk")
    assert not configuration.is_multikueue_check("machines")
    assert not configuration.is_multikueue_check("unknown")
