"""What is carried to a spoke, what is recognised there, and which spokes a check may use."""

from typing import Any

import pytest

from services.dispatcher.configuration import Configuration, Spokes
from services.dispatcher.copies import has_quota, make_copy, standing_of, workload_of
from services.dispatcher.planning import Standing
from shared.contracts import kinds
from shared.contracts.kinds import Kind, Object
from shared.contracts.observed import Observed
from shared.integrations import JOB, PIPELINE_RUN
from tests.unit.dispatcher.stage import job

LABELS = {
    "kueue.x-k8s.io/prebuilt-workload-name": "job-train-1",
    "kueue.x-k8s.io/multikueue-origin": "hub-a",
}


def test_a_copy_has_what_its_user_wrote_and_two_labels() -> None:
    original = job(
        managedBy="kueue.x-k8s.io/multikueue",
        selector={"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        template={
            "metadata": {"labels": {"app": "x", "controller-uid": "u", "job-name": "train"}},
            "spec": {"containers": []},
        },
    )
    original["metadata"] |= {"ownerReferences": [{}], "finalizers": ["x"], "generation": 3}
    copy = make_copy(original, integration=JOB, workload="job-train-1", origin="hub-a")
    assert copy == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "main", **LABELS},
            "annotations": {"sluicegate.dev/traceparent": "00-1-2-01"},
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
    copy = make_copy(run, integration=PIPELINE_RUN, workload="w", origin="o")
    assert copy["spec"] == {"status": "PipelineRunPending"}
    assert "status" not in copy


def test_a_job_with_its_own_selector_keeps_it() -> None:
    original = job(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    copy = make_copy(original, integration=JOB, workload="w", origin="o")
    assert copy["spec"]["selector"] == {"matchLabels": {"a": "b"}}


def test_only_what_carries_our_label_is_ours() -> None:
    obj: Object = {"metadata": {"labels": LABELS}}
    assert workload_of(obj, origin="hub-a") == "job-train-1"
    assert workload_of(obj, origin="hub-b") is None
    assert workload_of({"metadata": {}}, origin="hub-a") is None


STANDINGS: dict[str, tuple[dict[str, Any], Standing]] = {
    "it waits": ({}, Standing.WAITING),
    "its pods run": ({"status": {"active": 1}}, Standing.RESERVED),
    "it is done": (
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, Standing.RESERVED,
    ),
    "it is being deleted": (
        {"status": {"active": 1}, "metadata": {"deletionTimestamp": "x"}}, Standing.ENDING,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("more", "standing"), STANDINGS.values(), ids=STANDINGS.keys())
def test_what_a_copy_shows(more: dict[str, Any], standing: Standing) -> None:
    assert standing_of({**job(), **more}, JOB) is standing


def test_what_its_workload_shows() -> None:
    reserved = {"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}}
    lost = {"status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}
    assert has_quota(reserved)
    assert not has_quota(lost)
    assert not has_quota({})


def seen(kind: Kind, name: str, spec: Object | None, *, deleted: bool = False) -> Observed:
    return Observed(
        cluster="hub", group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind,
        name=name, uid=name, resource_version="1", deleted=deleted, object={"spec": spec},
    )  # fmt: skip


OURS = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"name": "all"}}


def configured(*clusters: str, known: tuple[str, ...], there: tuple[str, ...]) -> Configuration:
    configuration = Configuration(cluster="hub")
    configuration.take(seen(kinds.ADMISSION_CHECK, "mk", OURS))
    configuration.take(seen(kinds.MULTIKUEUE_CONFIG, "all", {"clusters": list(clusters)}))
    for name in known:
        configuration.take(seen(kinds.MULTIKUEUE_CLUSTER, name, {}))
    for name in there:
        configuration.take_synced(name)
    return configuration


def test_usable_are_the_spokes_that_are_configured_known_and_there() -> None:
    configuration = configured("b", "a", "c", "d", known=("a", "b", "c"), there=("a", "b", "d"))
    spokes = configuration.spokes("mk")
    assert spokes.usable == ("b", "a"), "in the order of the configuration"
    assert spokes.problem == "No usable worker cluster. Missing clusters: d. Inactive clusters: c"


def test_the_hub_is_no_spoke_of_its_own() -> None:
    configuration = configured("hub", known=("hub",), there=("hub",))
    assert configuration.spokes("mk").usable == ()


def test_a_missing_configuration_is_named() -> None:
    configuration = configured("a", known=("a",), there=("a",))
    configuration.take(seen(kinds.MULTIKUEUE_CONFIG, "all", None, deleted=True))
    assert configuration.spokes("mk") == Spokes(
        problem='MultiKueueConfig "all" of AdmissionCheck "mk" not found'
    )


def test_other_controllers_checks_are_theirs() -> None:
    configuration = configured(known=(), there=())
    other = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    configuration.take(seen(kinds.ADMISSION_CHECK, "machines", other))
    assert configuration.is_ours("mk")
    assert not configuration.is_ours("machines")
    assert not configuration.is_ours("nobody")
