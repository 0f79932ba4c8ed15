"""What is carried to a spoke, what is recognised there, and which spokes a check may use."""

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
from shared.contracts.messages.observed import Observed
from shared.integrations import JOB, PIPELINE_RUN
from tests.unit.dispatcher.stage import job

LABELS = {
    "kueue.x-k8s.io/prebuilt-workload-name": "job-train-1",
    "kueue.x-k8s.io/multikueue-origin": "hub-a",
}


def test_a_copy_has_what_its_user_wrote_and_whose_it_is() -> None:
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


def test_a_copy_of_a_pipeline_run_is_the_spoke_s_own_business() -> None:
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


def test_the_copy_of_a_run_that_its_user_cancelled_waits_like_any_other() -> None:
    run = {
        "metadata": {"name": "build", "namespace": "team-a", "uid": "u"},
        "spec": {"status": "CancelledRunFinally", "managedBy": "kueue.x-k8s.io/multikueue"},
    }
    copy = make_copy(
        as_body(run), integration=PIPELINE_RUN, workload="w", origin="o", order="hub/7"
    )
    assert copy["spec"] == {"status": "PipelineRunPending"}
    assert PIPELINE_RUN.carry(run) == {"status": "CancelledRunFinally"}, "is told once it is chosen"


def test_a_job_with_its_own_selector_keeps_it() -> None:
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
def test_what_is_not_ours_is_left_alone(obj: Object) -> None:
    assert read_copy(obj, JOB, hub="hub", origin="hub-a") is None


def test_a_copy_says_which_order_it_was_made_for() -> None:
    copy = read_copy(labelled(LABELS, "hub/7"), JOB, hub="hub", origin="hub-a")
    assert copy is not None
    assert (copy.workload, copy.number) == ("job-train-1", 7)


def test_a_copy_that_has_a_lease_says_so() -> None:
    copy = make_copy(
        job(), integration=JOB, workload="w", origin="o", order="hub/7", lease_seconds=600.0
    )
    assert copy["metadata"]["annotations"]["sluicegate.dev/lease-seconds"] == "600"


def test_a_kueue_of_its_own_is_given_the_workload_first() -> None:
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
def test_what_a_copy_shows(more: dict[str, Any], phase: CopyPhase) -> None:
    assert phase_of(as_body({**job(), **more}), JOB) is phase


def test_what_its_workload_shows() -> None:
    def shows(*conditions: Object) -> tuple[bool, str | None]:
        remote = read_remote_workload(as_body({"status": {"conditions": list(conditions)}}))
        return remote.reserved, remote.evicted

    assert shows({"type": "QuotaReserved", "status": "True"}) == (True, None)
    assert shows({"type": "QuotaReserved", "status": "False"}) == (False, None)
    assert shows({"type": "Evicted", "status": "True", "message": "why"}) == (False, "why")
    assert shows() == (False, None)


def seen(kind: Kind, name: str, spec: Object | None, *, deleted: bool = False) -> Observed:
    return Observed(
        cluster="hub", group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind,
        name=name, uid=name, resource_version="1", deleted=deleted, object={"spec": spec},
    )  # fmt: skip


PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
OURS = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": PARAMETERS}


def configured(*clusters: str, known: tuple[str, ...]) -> MultiKueueConfiguration:
    configuration = MultiKueueConfiguration(cluster="hub")
    configuration.observe(seen(kinds.ADMISSION_CHECK, "mk", OURS))
    configuration.observe(seen(kinds.MULTIKUEUE_CONFIG, "all", {"clusters": list(clusters)}))
    for name in known:
        configuration.observe(seen(kinds.MULTIKUEUE_CLUSTER, name, {}))
    return configuration


def test_the_spokes_of_a_check_in_the_order_of_its_configuration_and_what_it_names_in_vain() -> (
    None
):
    spokes = configured("b", "a", "d", "b", known=("a", "b", "c")).spokes("mk")
    assert spokes == CheckSpokes(configured=("b", "a"), missing=("d",))


def test_the_hub_is_no_spoke_of_its_own() -> None:
    assert configured("hub", known=("hub",)).spokes("mk") == CheckSpokes(missing=("hub",))


def test_two_configurations_may_name_the_same_cluster() -> None:
    configuration = configured("a", known=("a",))
    other = {**OURS, "parameters": {**PARAMETERS, "name": "other"}}
    configuration.observe(seen(kinds.ADMISSION_CHECK, "mk-2", other))
    configuration.observe(seen(kinds.MULTIKUEUE_CONFIG, "other", {"clusters": ["a"]}))
    assert (
        configuration.spokes("mk") == configuration.spokes("mk-2") == CheckSpokes(configured=("a",))
    )


def test_a_flavor_may_demand_a_spoke() -> None:
    configuration = configured("a", known=("a",))
    nodes = {"nodeLabels": {"sluicegate.dev/spoke": "a"}}
    configuration.observe(seen(kinds.RESOURCE_FLAVOR, "gpus", nodes))
    configuration.observe(seen(kinds.RESOURCE_FLAVOR, "any", {}))
    assert configuration.required_spoke("gpus") == "a"
    assert configuration.required_spoke("any") is None
    assert configuration.required_spoke("nobody") is None


def test_a_missing_configuration_is_named() -> None:
    configuration = configured("a", known=("a",))
    configuration.observe(seen(kinds.MULTIKUEUE_CONFIG, "all", None, deleted=True))
    assert configuration.spokes("mk") == CheckSpokes(
        problem='MultiKueueConfig "all" of AdmissionCheck "mk" not found'
    )


def test_other_controllers_checks_are_theirs() -> None:
    configuration = configured(known=())
    other = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    configuration.observe(seen(kinds.ADMISSION_CHECK, "machines", other))
    assert configuration.is_multikueue_check("mk")
    assert not configuration.is_multikueue_check("machines")
    assert not configuration.is_multikueue_check("nobody")
