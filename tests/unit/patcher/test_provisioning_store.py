"""What is known of provisioning checks: which of them are ours, usable, and whose requests there are."""

from typing import Any

import pytest

from services.patcher.provisioning.store import NOT_SERVED, ProvisioningStore
from shared.contracts.controllers import PROVISIONING
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.refs import WorkloadRef
from shared.testing.builders import observed, observed_object
from tests.unit.patcher.stage import NOON

WORKLOAD = WorkloadRef("hub", "team", "wl")
PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "up"}


def check(parameters: Any = PARAMETERS, controller: str = PROVISIONING) -> Observed:
    spec = {"controllerName": controller, "parameters": parameters}
    return observed(kinds.ADMISSION_CHECK, "capacity", spec)


def workload(version: int, *, checks: bool = True, deleted: bool = False) -> Observed:
    metadata = {"name": "wl", "namespace": "team", "uid": "u", "resourceVersion": str(version)}
    status = {"admissionChecks": [{"name": "capacity"}] if checks else []}
    return observed_object(
        kinds.WORKLOAD, {"metadata": metadata, "status": status}, deleted=deleted
    )


def request(*, deleted: bool = False, **metadata: Any) -> Observed:
    owner = {"kind": "Workload", "name": "wl", "uid": "u", "controller": True}
    own = {"name": "wl-capacity-1", "namespace": "team", "ownerReferences": [owner]}
    obj = {"metadata": {**own, **metadata}}
    return observed_object(kinds.PROVISIONING_REQUEST, obj, deleted=deleted)


@pytest.fixture
def store() -> ProvisioningStore:
    store = ProvisioningStore("hub")
    store.apply_check(check())
    store.apply_config(observed(kinds.PROVISIONING_REQUEST_CONFIG, "up"))
    return store


def serve(store: ProvisioningStore, *served: str) -> None:
    store.apply_synced(Synced(cluster="hub", epoch="1", kinds=[*served], at=NOON))


def test_check_of_another_controller_is_not_answered(store: ProvisioningStore) -> None:
    assert [*store.checks] == ["capacity"]
    store.apply_check(check(controller="example.com/theirs"))
    assert not store.checks


def test_check_is_active_where_requests_are_served(store: ProvisioningStore) -> None:
    assert store.condition_of("capacity") is None, "it is not known yet"
    serve(store)
    assert store.condition_of("capacity") == (False, "NotServed", NOT_SERVED)
    serve(store, kinds.PROVISIONING_REQUEST.detail)
    assert store.condition_of("capacity") == (True, "Active", "The admission check is active")


BAD: dict[str, tuple[Any, str]] = {
    "none": (None, "missing parameters reference"),
    "no name": ({**PARAMETERS, "name": ""}, "empty name: bad parameters reference"),
    "another group": (
        {**PARAMETERS, "apiGroup": "x"},
        'wrong group "x", expecting "kueue.x-k8s.io": bad parameters reference',
    ),
    "another kind": (
        {**PARAMETERS, "kind": "ConfigMap"},
        'wrong kind "ConfigMap", expecting "ProvisioningRequestConfig": bad parameters reference',
    ),
    "nothing of that name": (
        {**PARAMETERS, "name": "down"},
        'provisioningrequestconfigs.kueue.x-k8s.io "down" not found',
    ),
}


@pytest.mark.parametrize(("parameters", "problem"), BAD.values(), ids=BAD.keys())
def test_check_whose_parameters_cannot_be_used_says_why(
    store: ProvisioningStore, parameters: Any, problem: str
) -> None:
    serve(store, kinds.PROVISIONING_REQUEST.detail)
    store.apply_check(check(parameters))
    assert store.condition_of("capacity") == (False, "BadParametersRef", problem)
    assert store.config_of("capacity") is None


def test_older_state_of_a_workload_does_not_come_back(store: ProvisioningStore) -> None:
    newer, older = workload(10), workload(9)
    for one in (newer, older):
        store.apply_workload(one)
    assert store.workload(WORKLOAD) == newer.body
    store.apply_workload(workload(11, deleted=True))
    assert store.workload(WORKLOAD) is None


def test_workload_without_checks_is_known_as_long_as_it_has_requests(
    store: ProvisioningStore,
) -> None:
    store.apply_workload(workload(1))
    assert store.apply_request(request()) == WORKLOAD
    store.apply_workload(workload(2, checks=False))
    assert [*store.workloads()] == [WORKLOAD]
    assert store.apply_request(request(deleted=True)) == WORKLOAD
    store.apply_workload(workload(3, checks=False))
    assert [*store.workloads()] == []


def test_request_in_deletion_does_not_count(store: ProvisioningStore) -> None:
    body = workload(1).body
    assert body is not None
    for one, count in (
        (request(), 1),
        (request(deletionTimestamp="2026-01-01T12:00:00Z"), 0),
        (request(), 1),
        (request(deleted=True), 0),
    ):
        store.apply_request(one)
        assert len(store.requests_of(body)) == count
