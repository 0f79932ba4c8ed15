"""What a provisioning check says, condition by condition."""

from typing import Any

import pytest

from services.patcher.provisioning.answers import answer, ends_requests, needs_requests
from services.patcher.provisioning.requests import (
    attempt_of,
    owned_by,
    request_name,
    request_object,
    requested_pod_sets,
    template_object,
)
from shared.contracts.kube.bodies import Body, as_body, spec_of

CLASS = "check-capacity.autoscaling.x-k8s.io"
CONFIG: dict[str, Any] = {
    "provisioningClassName": CLASS,
    "parameters": {"zone": "a"},
    "podSetUpdates": {
        "nodeSelector": [
            {"key": "pool", "valueFromProvisioningClassDetail": "pool-name"},
            {"key": "rack", "valueFromProvisioningClassDetail": "not-told"},
        ]
    },
}


def pod_set(name: str, count: int = 1, **requests: str) -> dict[str, Any]:
    resources = {"requests": requests or {"cpu": "1"}}
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": [{"name": name[:1], "resources": resources}]}},
    }


def pod_with(name: str, part: str = "containers", **resources: dict[str, str]) -> dict[str, Any]:
    """A pod set with one container of that part."""
    template = {"spec": {part: [{"name": "c", "resources": resources}]}}
    return {"name": name, "count": 1, "template": template}


def workload(*pod_sets: dict[str, Any], admitted: bool = False, **spec: Any) -> Body:
    """One that holds quota; a pod set with `assigned` holds it for so many pods."""
    pod_sets = pod_sets or (pod_set("main"),)
    assigned = [
        {"name": p["name"], "flavors": {"cpu": "f"}, "count": p.get("assigned", p["count"])}
        for p in pod_sets
    ]
    conditions = [{"type": "Admitted", "status": str(admitted)}]
    return as_body(
        {
            "metadata": {
                "name": "wl",
                "namespace": "team",
                "uid": "u",
                "annotations": {"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60", "other": "x"},
            },
            "spec": {"podSets": list(pod_sets), **spec},
            "status": {"admission": {"podSetAssignments": assigned}, "conditions": conditions},
        }
    )


def request(attempt: int, *conditions: str, config: dict[str, Any] = CONFIG, **told: str) -> Body:
    """A request; `told`: messages of conditions that are false."""
    wanted = workload()
    obj = dict(
        request_object(wanted, f"wl-check-{attempt}", config, requested_pod_sets(wanted, {}))
    )
    listed = [{"type": one, "status": "True", "message": f"{one}."} for one in conditions]
    listed += [{"type": one, "status": "False", "message": text} for one, text in told.items()]
    return as_body(
        {**obj, "status": {"conditions": listed, "provisioningClassDetails": {"pool-name": "p7"}}}
    )


UPDATES = [
    {
        "name": "main",
        "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "wl-check-1",
            "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
        },
        "nodeSelector": {"pool": "p7"},
    }
]
ONCE = {**CONFIG, "retryStrategy": {"backoffLimitCount": 0}}
SLOW = {**CONFIG, "retryStrategy": {"backoffBaseSeconds": 100, "backoffMaxSeconds": 150}}
ADMITTED = workload(admitted=True)
FAILED = "Retrying after failure: Failed."
EXPIRED = "Retrying after booking expired: BookingExpired."


@pytest.mark.parametrize(
    ("owned", "before", "config", "of", "state", "next_attempt"),
    [
        pytest.param([], {}, CONFIG, None, {}, 1, id="without a request the first is made"),
        pytest.param([], {"retryCount": 2}, CONFIG, None, {}, 3,
            id="after two retries the third is made"),
        pytest.param([], {"state": "Ready"}, CONFIG, None, {}, None,
            id="a request that is deleted later is not made again"),
        pytest.param([], {"state": "Retry"}, CONFIG, None, {}, None,
            id="an evicted workload gets none until its checks are reset"),
        pytest.param([request(1)], {"message": "Error creating it"}, CONFIG, None, {"message": ""},
            None, id="a request that nobody looked at says nothing"),
        pytest.param([request(1, "Accepted", Provisioned="ETA: 10m")], {}, CONFIG, None,
            {"message": "ETA: 10m"}, None, id="the expected time is told"),
        pytest.param([request(1, "Accepted", "Provisioned")], {}, CONFIG, None,
            {"state": "Ready", "message": "Provisioned.", "podSetUpdates": UPDATES}, None,
            id="what is provisioned is ready, with what its pods get"),
        pytest.param([request(1, "Accepted", "Failed")], {}, CONFIG, None,
            {"state": "Retry", "message": FAILED, "requeueAfterSeconds": 60}, None,
            id="a failure is retried"),
        pytest.param([request(2, "Failed")], {"retryCount": 1}, SLOW, None,
            {"state": "Retry", "message": FAILED, "requeueAfterSeconds": 150}, None,
            id="the back-off doubles up to its most"),
        pytest.param([request(1, "Failed")], {"retryCount": 1}, CONFIG, None,
            {"message": FAILED}, 2, id="a failure before the last eviction makes the next attempt"),
        pytest.param([request(1, "Failed")], {}, ONCE, None,
            {"state": "Rejected", "message": "Failed."}, None, id="without retries it is rejected"),
        pytest.param([request(4, "Failed")], {"retryCount": 3}, CONFIG, None,
            {"state": "Rejected", "message": "Failed."}, None,
            id="the fourth failure is the last"),
        pytest.param([request(1, "Provisioned", "BookingExpired")], {}, CONFIG, None,
            {"state": "Retry", "message": EXPIRED, "requeueAfterSeconds": 60}, None,
            id="a booking that expired before admission is retried"),
        pytest.param([request(1, "Provisioned", "BookingExpired")], {"state": "Ready"}, CONFIG,
            ADMITTED, {}, None, id="a booking that expires under running pods changes nothing"),
        pytest.param([request(1, "Provisioned", "CapacityRevoked")], {"state": "Ready"}, CONFIG,
            ADMITTED, {"state": "Rejected", "message": "CapacityRevoked."}, None,
            id="revoked capacity rejects what runs"),
        pytest.param([request(1, "Provisioned", "CapacityRevoked")], {"state": "Ready"}, CONFIG,
            workload(active=False), {}, None, id="revoked capacity of an inactive one changes nothing"),
        pytest.param([request(1, "Provisioned")], {"state": "Ready", "message": "before"}, CONFIG,
            None, {}, None, id="what is ready is not told again"),
        pytest.param([request(1, "Accepted")], {"message": "before"}, CONFIG, None, {}, None,
            id="without an expected time nothing new is told"),
        pytest.param([request(1, "Provisioned")], {"state": "Retry", "requeueAfterSeconds": 60},
            CONFIG, None, {"state": "Ready", "message": "Provisioned.", "requeueAfterSeconds": None,
            "podSetUpdates": UPDATES}, None, id="what is ready has no back-off"),
        pytest.param([request(1, "CapacityRevoked")], {"state": "Ready", "podSetUpdates": UPDATES},
            CONFIG, ADMITTED, {"state": "Rejected", "message": "CapacityRevoked.",
            "podSetUpdates": None}, None, id="what is rejected changes no pods"),
        pytest.param([request(3, "Failed")], {"retryCount": 2}, CONFIG, None,
            {"state": "Retry", "message": FAILED, "requeueAfterSeconds": 240}, None,
            id="the third failure is not the last"),
        pytest.param([request(1, "Failed")], {}, {**CONFIG, "retryStrategy": {"backoffBaseSeconds": -1}},
            None, {"state": "Retry", "message": FAILED, "requeueAfterSeconds": 0}, None,
            id="a back-off below zero is none"),
        pytest.param([request(1, "Provisioned", "BookingExpired")], {}, CONFIG, ADMITTED, {}, None,
            id="a booking that expires under what runs makes no attempt"),
        pytest.param([request(2, "Failed"), request(1)], {"retryCount": 1}, CONFIG, None,
            {"state": "Retry", "message": FAILED, "requeueAfterSeconds": 120}, None,
            id="the latest attempt counts in any order"),
        pytest.param([request(1), request(2, "Failed")], {"retryCount": 1}, CONFIG, None,
            {"state": "Retry", "message": FAILED, "requeueAfterSeconds": 120}, None,
            id="the latest attempt counts"),
        pytest.param([request(1, "Provisioned", config={**CONFIG, "provisioningClassName": "old"})],
            {}, CONFIG, None, {}, 1, id="a request of another class does not count"),
        pytest.param([request(1, "Provisioned", config={**CONFIG, "parameters": {"zone": "b"}})],
            {}, CONFIG, None, {}, 1, id="a request with other parameters does not count"),
        pytest.param([request(1, "Provisioned")], {"state": "Ready"}, None, None,
            {"state": "Pending", "message": "the check is not active"}, None,
            id="without its parameters a check is pending"),
    ],
)  # fmt: skip
def test_answer_follows_the_conditions(
    owned: list[Body],
    before: dict[str, Any],
    config: dict[str, Any] | None,
    of: Body | None,
    state: dict[str, Any],
    next_attempt: int | None,
) -> None:
    present = {"name": "check", "state": "Pending", **before}
    found = answer(of or workload(), present, config, owned, needed=True)
    expected = {**present, **state}
    assert found.state == {name: value for name, value in expected.items() if value is not None}
    assert found.next_attempt == next_attempt


def test_workload_without_managed_resources_is_ready() -> None:
    config = {**CONFIG, "managedResources": ["nvidia.com/gpu"]}
    assert requested_pod_sets(workload(), config) == []
    found = answer(workload(), {"name": "check", "state": "Pending"}, config, [], needed=False)
    assert (found.state["state"], found.next_attempt) == ("Ready", None)
    assert found.state["message"] == "the provisioning request is not needed"
    ready = {"name": "check", "state": "Ready", "message": "before"}
    assert answer(workload(), ready, config, [], needed=False).state == ready


@pytest.mark.parametrize(
    ("true", "needed", "ended"),
    [
        (["QuotaReserved"], True, False),
        (["QuotaReserved", "Admitted"], True, False),
        ([], False, False),
        (["QuotaReserved", "Finished"], False, True),
        (["QuotaReserved", "Evicted"], False, True),
        (["Evicted"], False, True),
        (["Finished"], False, True),
    ],
)
def test_only_what_holds_quota_and_stays_has_requests(
    true: list[str], needed: bool, ended: bool
) -> None:
    conditions = [{"type": name, "status": "True"} for name in true]
    workload = as_body({"status": {"conditions": conditions}})
    assert (needs_requests(workload), ends_requests(workload)) == (needed, ended)


@pytest.mark.parametrize(
    ("pod_sets", "config", "wanted"),
    [
        pytest.param([pod_set("a", 0), pod_set("b", 2)], {}, [("b", 2)], id="no pods, no request"),
        pytest.param([{**pod_set("a", 0), "assigned": 2}], {}, [], id="no pods any more"),
        pytest.param([{**pod_set("a", 3), "assigned": 0}, {**pod_set("b", 3), "assigned": 2}], {},
            [("b", 2)], id="as many as were admitted"),
        pytest.param([pod_set("a"), pod_set("b", 2, gpu="1")], {"managedResources": ["gpu"]},
            [("b", 2)], id="only what asks for a managed resource"),
        pytest.param([pod_with("a", limits={"gpu": "1"}), pod_with("b", limits={"cpu": "1"})],
            {"managedResources": ["gpu"]}, [("a", 1)], id="a limit is a request, too"),
        pytest.param([pod_with("a", "initContainers", requests={"gpu": "1"})],
            {"managedResources": ["gpu"]}, [("a", 1)], id="of a container that comes first"),
        pytest.param([pod_set("a"), pod_set("b", 2)], {}, [("a", 1), ("b", 2)],
            id="without a policy each for itself"),
        pytest.param([pod_set("a"), pod_set("b", 2)],
            {"podSetMergePolicy": "IdenticalPodTemplates"}, [("a", 1), ("b", 2)],
            id="containers of other names are not identical"),
        pytest.param([pod_set("ab"), pod_set("ac", 2), pod_set("ad", 3, cpu="2")],
            {"podSetMergePolicy": "IdenticalPodTemplates"}, [("ab", 3), ("ad", 3)],
            id="identical templates are one"),
        pytest.param([pod_set("a"), pod_set("b", 2)],
            {"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"}, [("a", 3)],
            id="the same requirements are one"),
    ],
)  # fmt: skip
def test_pod_sets_are_requested_as_configured(
    pod_sets: list[dict[str, Any]], config: dict[str, Any], wanted: list[tuple[str, int]]
) -> None:
    found = requested_pod_sets(workload(*pod_sets), config)
    assert [(one.name, one.count) for one in found] == wanted


def test_request_has_the_parameters_of_configuration_and_job() -> None:
    spec = spec_of(request(1))
    assert spec["parameters"] == {"zone": "a", "ValidUntilSeconds": "60"}
    assert spec["podSets"] == [{"podTemplateRef": {"name": "ppt-wl-check-1-main"}, "count": 1}]


def test_template_has_what_flavor_and_limits_add() -> None:
    limited = pod_set("main")
    limited["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "2", "gpu": "1"}, "requests": {"cpu": "1"},
    }  # fmt: skip
    obj = workload(limited)
    (asked,) = requested_pod_sets(obj, {})
    taint = {"key": "spot", "operator": "Exists"}
    flavor = as_body({"spec": {"nodeLabels": {"pool": "gpu"}, "tolerations": [taint]}})
    pod = dict(template_object(obj, "t", asked, {"f": flavor}))["template"]["spec"]  # type: ignore[index]
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["tolerations"] == [taint]
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "1", "gpu": "1"}
    with pytest.raises(ValueError, match="ResourceFlavor f: not found"):
        template_object(obj, "t", asked, {})


def test_template_names_what_contradicts_its_flavor() -> None:
    limited = pod_with("main", "initContainers", limits={"cpu": "2"})
    limited["template"]["spec"] |= {"tolerations": [{"key": "spot"}], "nodeSelector": {"zone": "a"}}
    obj = workload(limited)
    (asked,) = requested_pod_sets(obj, {})

    def made(**labels: str) -> Any:
        flavor = as_body({"spec": {"nodeLabels": labels, "tolerations": [{"key": "spot"}]}})
        return dict(template_object(obj, "t", asked, {"f": flavor}))["template"]

    pod = made(pool="gpu")["spec"]
    assert pod["nodeSelector"] == {"zone": "a", "pool": "gpu"}
    assert pod["tolerations"] == [{"key": "spot"}]
    assert pod["initContainers"][0]["resources"]["requests"] == {"cpu": "2"}
    with pytest.raises(ValueError, match=r"nodeSelector\[zone\]: 'a': conflicts with 'b' of f"):
        made(zone="b")


def test_pod_set_of_an_unknown_template_gets_no_updates() -> None:
    theirs = {"podTemplateRef": {"name": "ppt-wl-check-1-other"}, "count": 1}
    made = request(1, "Provisioned")
    made = as_body(
        {**made, "spec": {**spec_of(made), "podSets": [theirs, *spec_of(made)["podSets"]]}}
    )
    found = answer(workload(), {"name": "check", "state": "Pending"}, CONFIG, [made], needed=True)
    assert found.state["podSetUpdates"] == UPDATES


@pytest.mark.parametrize(("controller", "owned"), [(True, True), (False, False), (None, False)])
def test_request_belongs_to_whom_it_names_as_controller(
    controller: bool | None, owned: bool
) -> None:
    owner = {"uid": "u"} if controller is None else {"uid": "u", "controller": controller}
    obj = as_body({"metadata": {"ownerReferences": [owner]}})
    assert owned_by(obj, "u") is owned
    assert not owned_by(obj, "another")


@pytest.mark.parametrize("name", ["wl", "wl-1", "w" * 253], ids=["short", "with a number", "long"])
def test_attempt_is_read_from_the_name(name: str) -> None:
    made = request_name(name, "check", 3)
    assert len(made) <= 253
    assert attempt_of(made, name, "check") == 3
    assert attempt_of(made, name, "chec") is None
    assert attempt_of(f"{name}-check-03", name, "check") is None
