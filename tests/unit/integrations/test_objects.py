"""What a document makes of an object, also of one that it was not written for."""

import sys
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest

from shared.contracts.kube.kinds import Object
from shared.integrations import Integration, ObjectError, PodSetInfo
from tests.unit.integrations.gadgets import gadget, loaded

SPOT = PodSetInfo(
    name="main", count=2, node_selector={"pool": "spot"}, tolerations=({"key": "spot"},)
)


def ended(type_: str, status: str = "True") -> Object:
    condition = {"type": type_, "status": status, "reason": "R", "message": ""}
    return {"conditions": [{**condition, "lastTransitionTime": "2026-01-02T03:04:05Z"}]}


STATES = {
    "a running object is active": (gadget(status={"phase": "x"}), (False, True, None)),
    "an object without a status is inactive": (gadget(), (False, False, None)),
    "a suspended object is held": (gadget(suspend=True), (True, False, None)),
    "complete": (gadget(status=ended("Complete")), (False, False, True)),
    "completed": (gadget(status=ended("Completed")), (False, False, True)),
    "succeeded": (gadget(status=ended("Succeeded")), (False, False, True)),
    "failed": (gadget(status=ended("Failed")), (False, False, False)),
    "not yet complete": (gadget(status=ended("Complete", "False")), (False, True, None)),
    "not succeeded is not failed": (
        gadget(status=ended("Succeeded", "False")),
        (False, True, None),
    ),
}


UNREADABLE: Any = {"conditions": ["x", {"type": ["Complete"], "status": "True"}]}
STATES["one whose condition has a list for a type"] = (
    gadget(status=UNREADABLE),
    (False, True, None),
)
STATES["one whose spec is a word"] = (gadget() | {"spec": "x"}, (False, False, None))


@pytest.mark.parametrize(("obj", "state"), STATES.values(), ids=STATES.keys())
def test_fields_default_as_documented(obj: Object, state: tuple[bool, bool, bool | None]) -> None:
    integration = loaded()
    finish = integration.finish(obj)
    assert integration.succeeded(obj) == state[2]
    assert (integration.held(obj), integration.active(obj)) == state[:2]
    assert (None if finish is None else finish.success) == state[2]
    if finish is not None:
        assert finish.message == "R"
        assert finish.at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_by_default_object_is_held_released_stopped_and_restored_like_a_job() -> None:
    integration, obj = loaded(), gadget()
    held = jsonpatch.apply_patch(obj, integration.hold(obj))
    assert integration.held(held)
    running = jsonpatch.apply_patch(held, integration.release(held, [SPOT]))
    pod = running["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "spot"}, [{"key": "spot"}])
    assert not integration.held(running)
    patch = integration.stop(running)
    assert patch is not None
    stopped = jsonpatch.apply_patch(running, patch)
    restored = integration.restore(stopped, integration.pod_sets(held))
    assert restored is not None
    assert jsonpatch.apply_patch(stopped, restored)["spec"] == held["spec"]
    assert integration.restore(held, integration.pod_sets(held)) is None


def test_another_object_of_the_same_name_is_not_released() -> None:
    integration, obj = loaded(), gadget(suspend=True)
    another = {**obj, "metadata": {"name": "one", "uid": "u-2"}}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(another, integration.release(obj, [SPOT]))


FOR_EVER = "range.exists(a, range.exists(b, range.exists(c, a + b + c < 0)))".replace(
    "range", "spec.numbers"
)
FAILING = {
    "runs forever": (
        {"ready": FOR_EVER},
        {"numbers": list(range(100))},
        "spec.ready: more than 10,000 loop steps",
    ),
    "returns a text where a number belongs": (
        {},
        {"replicas": "two"},
        "spec.podSets[0].count: must return int, but returned 'two'",
    ),
    "returns null where a number belongs": (
        {"podSets": [{"template": "spec.template", "count": "[dyn(null)][0]"}]},
        {},
        "spec.podSets[0].count: must return int, but returned null",
    ),
    "returns a map where a number belongs": (
        {},
        {"replicas": {"a": None}},
        "spec.podSets[0].count: must return int, but returned a map or a list",
    ),
    "returns a number where yes or no belongs": (
        {"ready": "status.ready"},
        {},
        "spec.ready: no such key: ready",
    ),
    "reads a missing field": (
        {"podSets": [{"template": "spec.template", "count": "spec.parts.left"}]},
        {},
        "spec.podSets[0].count: no such key: parts",
    ),
    "has a number that is too large": ({}, {"replicas": 2**70}, "spec.podSets[0].count: "),
    "has a text that is no whole number": (
        {"podSets": [{"template": "spec.template", "minCount": "spec.least"}]},
        {"least": "some"},
        "spec.podSets[0].minCount (spec.least): 'some' is no whole number",
    ),
    "has a text of too many digits": (
        {"podSets": [{"template": "spec.template", "minCount": "spec.least"}]},
        {"least": "9" * 5000},
        f"spec.podSets[0].minCount (spec.least): '{'9' * 59}… is no whole number",
    ),
}


FAILING["has more pod sets than a Workload may have"] = (
    {"podSets": [{"forEach": "spec.parts", "template": "item.pod"}]},
    {"parts": [{"name": str(n)} for n in range(100_000)]},
    "spec.parts: more than 18 items are more than a Workload has",
)


@pytest.mark.parametrize(("said", "spec", "why"), FAILING.values(), ids=FAILING.keys())
def test_object_whose_expression_fails_waits_with_the_reason(
    said: dict[str, Any], spec: dict[str, Any], why: str
) -> None:
    integration, obj = (loaded(**said) if said else loaded()), gadget(suspend=True, **spec)
    with pytest.raises(ObjectError, match=r"^Integration gadgets\.example\.com: ") as caught:
        integration.pod_sets(obj)
    assert why in str(caught.value)
    # What can be said nevertheless is said.
    assert integration.held(obj)
    assert not integration.active(obj)
    assert integration.finish(obj) is None
    assert integration.ready(obj) is None


def test_object_that_cannot_be_evaluated_is_held_and_other_expressions_still_apply() -> None:
    integration = loaded(held="spec.on", active="spec.off", ready="true")
    assert integration.held(gadget())
    assert not integration.active(gadget())
    assert integration.active(gadget(on=False))
    assert integration.ready(gadget()) is True
    assert len(integration.problems(gadget())) == 2


def test_null_results_are_ignored() -> None:
    # The library gives away a reference of None for each null that it returns.
    integration = loaded(ready="dyn(null)", podSets=[{**POD_SET, "minCount": "spec.?least"}])
    before = sys.getrefcount(None)
    for _ in range(300):
        assert integration.ready(gadget()) is None
        assert integration.pod_sets(gadget())
    assert sys.getrefcount(None) > before - 200


POD_SET = {"template": "spec.template", "count": "spec.replicas"}


def test_only_matching_objects_wait_and_those_that_cannot_be_evaluated() -> None:
    integration = loaded(match="spec.?queueing.orValue(true)")
    assert integration.matches(gadget())
    assert not integration.matches(gadget(queueing=False))
    assert loaded(match="spec.queueing").matches(gadget())
    assert loaded().matches(gadget())


def test_kind_without_a_pod_template_declares_its_requests() -> None:
    requests = {"cpu": "string(spec.cpus)", "example.com/gadgets": "1", "memory": "spec.memory"}
    integration = loaded(podSets=[{"requests": requests, "count": "spec.replicas"}])
    [pod_set] = integration.pod_sets(gadget(cpus=4, memory="2Gi"))
    [container] = pod_set["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {
        "cpu": "4",
        "example.com/gadgets": "1",
        "memory": "2Gi",
    }
    assert integration.release(gadget(), [SPOT])[-1]["path"] == "/spec/suspend"


def trainer() -> Integration:
    """A kind whose pods are in a map, and that is paused by a nested field of its own."""
    return loaded(
        held="spec.?runPolicy.?paused.orValue(false)",
        hold=[{"op": "add", "path": "/spec/runPolicy/paused", "value": True}],
        release=[{"op": "replace", "path": "/spec/runPolicy/paused", "value": False}],
        podSets=[
            {
                "forEach": "spec.replicaSpecs",
                "nameFrom": "key.lowerAscii()",
                "template": "item.template",
                "count": "item.?replicas.orValue(1)",
                "countField": "item.replicas",
                "minCount": 'key == "Worker" ? 2 : 1',
                "reclaimable": "status.?done[?key].orValue(0)",
            }
        ],
    )


def test_map_of_pods_is_a_pod_set_for_each_of_its_names() -> None:
    integration = trainer()
    specs: Object = {
        name: {"template": {"spec": {"containers": [], "nodeSelector": {"a": "b"}}}}
        for name in ("Master", "Worker")
    }
    specs["Worker"]["replicas"] = 3
    obj = gadget(
        replicaSpecs=specs, runPolicy={"paused": True}, status={"done": {"Worker": 1, "Master": 0}}
    )
    assert [(p["name"], p["count"]) for p in integration.pod_sets(obj)] == [
        ("master", 1),
        ("worker", 3),
    ]
    assert integration.reclaimable(obj) == {"worker": 1}
    info = PodSetInfo(name="worker", count=2, node_selector={"pool": "spot"}, tolerations=())
    released = jsonpatch.apply_patch(obj, integration.release(obj, [info]))
    worker = released["spec"]["replicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    assert worker["template"]["spec"]["nodeSelector"] == {"a": "b", "pool": "spot"}
    assert released["spec"]["replicaSpecs"]["Master"] == specs["Master"]
    held = jsonpatch.apply_patch(released, integration.hold(released))
    restored = integration.restore(held, integration.pod_sets(obj))
    assert restored is not None
    assert jsonpatch.apply_patch(held, restored)["spec"] == obj["spec"]


def test_unnamed_item_is_named_by_its_index() -> None:
    integration = loaded(podSets=[{"forEach": "spec.parts", "template": "item.template"}])
    with pytest.raises(ObjectError, match=r"spec\.parts\[1\]: has no name"):
        integration.pod_sets(gadget(parts=[{"name": "a"}, {}]))
    assert integration.pod_sets(gadget()) == []


def test_patch_may_depend_on_the_object() -> None:
    integration = loaded(
        held="spec.?state.orValue('') == 'Paused'",
        hold=[
            {
                "op": "add",
                "path": "/spec/was",
                "valueFrom": "spec.state",
                "when": "has(spec.state)",
            },
            {"op": "add", "path": "/spec/state", "value": "Paused"},
        ],
        release=[{"op": "add", "path": "/spec/state", "valueFrom": "spec.was"}],
    )
    held = jsonpatch.apply_patch(gadget(state="On"), integration.hold(gadget(state="On")))
    assert held["spec"]["state"] == "Paused"
    assert jsonpatch.apply_patch(held, integration.release(held, []))["spec"]["state"] == "On"
    with pytest.raises(ObjectError, match=r"spec\.release\[0\]\.valueFrom: no such key: was"):
        integration.release(gadget(), [])


STOPS = {
    "by the hold patch, without a stop patch": (None, [{"path": "/spec/suspend", "value": True}]),
    "by a patch of its own": (
        {"how": "Patch", "patch": [{"op": "add", "path": "/spec/size", "value": 0}]},
        [{"path": "/spec/size", "value": 0}],
    ),
    "never": ({"how": "Never"}, None),
}


@pytest.mark.parametrize(("stop", "operations"), STOPS.values(), ids=STOPS.keys())
def test_object_is_stopped_by_its_expression(
    stop: Object | None, operations: list[Object] | None
) -> None:
    patch = loaded(stop=stop, match="true").stop(gadget())
    if operations is None:
        assert patch is None
    else:
        uid = {"op": "test", "path": "/metadata/uid", "value": "u-1"}
        assert patch == [uid, *({"op": "add", **operation} for operation in operations)]


def test_copy_lacks_the_fields_listed_in_the_document() -> None:
    integration = loaded(
        carry=[
            {"op": "remove", "path": "/spec/a/b~1c"},
            {"op": "remove", "path": "/spec/none/there"},
            {"op": "replace", "path": "/spec/missing", "value": 1},
            {"op": "add", "path": "/spec/x/y", "value": 1, "when": "spec.replicas == 2"},
            {"op": "remove", "path": "/spec/replicas", "when": "spec.replicas == 3"},
        ]
    )
    obj = gadget(a={"b/c": 1, "d": 2})
    carried = integration.carry(obj)
    assert carried == {**obj["spec"], "a": {"d": 2}, "x": {"y": 1}}
    assert obj["spec"]["a"] == {"b/c": 1, "d": 2}, "the object itself stays as it is"


def test_one_version_of_an_object_is_evaluated_once() -> None:
    integration, obj = loaded(), gadget()
    obj["metadata"]["resourceVersion"] = "1"
    first = integration.pod_sets(obj)
    changed = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "2"}}
    changed["spec"] = {**obj["spec"], "replicas": 5}
    assert integration.pod_sets(changed)[0]["count"] == 5
    assert integration.pod_sets(obj) == first
