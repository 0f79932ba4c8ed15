"""How objects change: patches, preconditions, the status subresource."""

from typing import Any

import pytest

from services.patcher.jobs.stop_marks import mark_tests, marking
from shared.contracts.kube.kinds import CONFIG_MAP, WORKLOAD
from shared.contracts.kube.names import STOPPED_BY
from shared.kube.port import ConflictError, RefusedError
from shared.testing.builders import admission, workload
from tests.contract.kubernetes.stage import Stage, config_map, create


async def test_merge_patch_sets_and_removes(stage: Stage) -> None:
    await stage.kube.create(CONFIG_MAP, config_map(stage.namespace, "a", stays="1", goes="2"))
    patched = await stage.kube.patch(
        CONFIG_MAP, stage.namespace, "a", {"data": {"goes": None, "comes": "3"}}
    )
    assert patched["data"] == {"stays": "1", "comes": "3"}


async def test_json_patch_is_applied(stage: Stage) -> None:
    await stage.kube.create(CONFIG_MAP, config_map(stage.namespace, "a", k="1"))
    patched = await stage.kube.patch(
        CONFIG_MAP,
        stage.namespace,
        "a",
        [
            {"op": "test", "path": "/data/k", "value": "1"},
            {"op": "replace", "path": "/data/k", "value": "2"},
            {"op": "add", "path": "/metadata/labels", "value": {"example.test/x": "z"}},
            {"op": "add", "path": "/metadata/labels/example.test~1y", "value": "z"},
        ],
    )
    assert patched["data"] == {"k": "2"}
    assert patched["metadata"]["labels"] == {"example.test/x": "z", "example.test/y": "z"}


FAILING_TESTS: dict[str, Any] = {
    "another uid": {"op": "test", "path": "/metadata/uid", "value": "somebody-else"},
    "another version": {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
    "another value": {"op": "test", "path": "/data/k", "value": "other"},
    "a missing field": {"op": "test", "path": "/data/absent", "value": "x"},
    "a missing index": {"op": "test", "path": "/absent/deep", "value": "x"},
}


@pytest.mark.parametrize("operation", FAILING_TESTS.values(), ids=FAILING_TESTS.keys())
async def test_failed_test_of_a_json_patch_is_a_conflict_and_changes_nothing(
    stage: Stage, operation: dict[str, Any]
) -> None:
    created = await stage.kube.create(CONFIG_MAP, config_map(stage.namespace, "a", k="1"))
    with pytest.raises(ConflictError):
        await stage.kube.patch(
            CONFIG_MAP,
            stage.namespace,
            "a",
            [operation, {"op": "replace", "path": "/data/k", "value": "2"}],
        )
    assert await stage.kube.get(CONFIG_MAP, stage.namespace, "a") == created


UNMARKED: dict[str, dict[str, str] | None] = {
    "no annotations": None,
    "other annotations": {"example.test/x": "1"},
    "an earlier mark": {STOPPED_BY: "1.1.1"},
}


@pytest.mark.parametrize("annotations", UNMARKED.values(), ids=UNMARKED.keys())
async def test_patch_that_tests_the_mark_of_a_stop_is_refused_once_the_job_is_marked(
    stage: Stage, annotations: dict[str, str] | None
) -> None:
    obj = config_map(stage.namespace, "a", k="1")
    if annotations is not None:
        obj["metadata"]["annotations"] = annotations
    read = await stage.kube.create(CONFIG_MAP, obj)
    release = [*mark_tests(read), {"op": "replace", "path": "/data/k", "value": "2"}]
    released = await stage.kube.patch(CONFIG_MAP, stage.namespace, "a", release)
    assert released["data"] == {"k": "2"}
    marks = marking(read, admission(workload("a"), epoch=1, term=2))
    marked = await stage.kube.patch(CONFIG_MAP, stage.namespace, "a", marks)
    assert marked["metadata"]["annotations"] == {**(annotations or {}), STOPPED_BY: "1.2.1"}
    with pytest.raises(ConflictError):
        await stage.kube.patch(CONFIG_MAP, stage.namespace, "a", release)


async def test_json_patch_that_cannot_be_applied_is_refused(stage: Stage) -> None:
    await create(stage, "a")
    with pytest.raises(RefusedError):
        await stage.kube.patch(
            CONFIG_MAP, stage.namespace, "a", [{"op": "remove", "path": "/data/absent/deep"}]
        )


@pytest.mark.parametrize("kind", [CONFIG_MAP, WORKLOAD], ids=["core", "custom"])
async def test_merge_patch_with_another_uid_is_a_conflict(stage: Stage, kind: Any) -> None:
    (created,) = await create(stage, "a", kind=kind)
    with pytest.raises(ConflictError):
        await stage.kube.patch(
            kind,
            stage.namespace,
            "a",
            {"metadata": {"uid": "somebody-else", "labels": {"x": "y"}}},
        )
    assert await stage.kube.get(kind, stage.namespace, "a") == created


async def test_merge_patch_with_an_old_version_is_a_conflict(stage: Stage) -> None:
    (created,) = await create(stage, "a")
    await stage.kube.patch(CONFIG_MAP, stage.namespace, "a", {"data": {"k": "1"}})
    with pytest.raises(ConflictError):
        await stage.kube.patch(
            CONFIG_MAP,
            stage.namespace,
            "a",
            {
                "metadata": {"resourceVersion": created["metadata"]["resourceVersion"]},
                "data": {"k": "2"},
            },
        )


async def test_status_changes_only_through_its_subresource(stage: Stage) -> None:
    await create(stage, "w", kind=WORKLOAD)
    patch = {
        "spec": {"queueName": "other"},
        "status": {"conditions": [condition("QuotaReserved", "True")]},
    }
    by_status = await stage.kube.patch(WORKLOAD, stage.namespace, "w", patch, subresource="status")
    assert by_status["spec"]["queueName"] == "q"
    assert by_status["status"]["conditions"][0]["type"] == "QuotaReserved"
    patch = {
        "spec": {"queueName": "other"},
        "status": {"conditions": [condition("QuotaReserved", "False")]},
    }
    by_object = await stage.kube.patch(WORKLOAD, stage.namespace, "w", patch)
    assert by_object["spec"]["queueName"] == "other"
    assert by_object["status"]["conditions"][0]["status"] == "True"


async def test_patch_that_changes_nothing_makes_no_new_version(stage: Stage) -> None:
    await stage.kube.create(CONFIG_MAP, config_map(stage.namespace, "a", k="1"))
    before = await stage.kube.get(CONFIG_MAP, stage.namespace, "a")
    after = await stage.kube.patch(CONFIG_MAP, stage.namespace, "a", {"data": {"k": "1"}})
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def condition(type_: str, status: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
