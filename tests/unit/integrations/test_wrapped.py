"""Pods of objects that are inside another one, at paths that are data."""

import jsonpatch
import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.context import DEFAULT_CONTEXT
from services.classifier.webhook.mutation import mutate
from services.classifier.webhook.updates import review_update
from shared.contracts.kube.kinds import Object
from shared.integrations import (
    SHIPPED,
    Integration,
    IntegrationError,
    Integrations,
    ObjectError,
    PodSetInfo,
)
from shared.integrations.related.wrapped import ITEMS_MAX
from tests.unit.classifier.webhook.reviews import RULES
from tests.unit.integrations.app_wrappers import (
    CREW,
    INFERRED,
    SERVICE,
    WRONG,
    crew,
    job,
    wrapper,
)
from tests.unit.integrations.gadgets import document, loaded
from tests.unit.integrations.test_ml_kinds import cpu_of, integration_of


def asked(obj: Object) -> list[tuple[str, int, str]]:
    return [(p["name"], p["count"], cpu_of(p)) for p in integration_of(obj).pod_sets(obj)]


def infos(*names: str) -> list[PodSetInfo]:
    return [
        PodSetInfo(name=one, count=1, node_selector={"flavor": one}, tolerations=({"key": "spot"},))
        for one in names
    ]


def placed(*names: str) -> list[Object]:
    return [{"nodeSelector": {"flavor": one}, "tolerations": [{"key": "spot"}]} for one in names]


@pytest.mark.parametrize(("inside", "pods"), INFERRED.values(), ids=INFERRED.keys())
def test_pods_of_a_wrapped_object_are_those_that_its_own_kind_has(
    inside: Object, pods: list[tuple[int, str]]
) -> None:
    numbered = [(f"x-{number}", *each) for number, each in enumerate(pods)]
    assert asked(wrapper(inside)) == numbered


def test_pod_sets_are_numbered_through_all_components() -> None:
    declared = [{"path": CREW, "replicas": 5}, {"path": "template.spec.crews[1].template"}]
    obj = wrapper(job("1"), SERVICE, crew("2", declared=declared), job("3", parallelism=2))
    assert asked(obj) == [("x-0", 1, "1"), ("x-1", 5, "2"), ("x-2", 1, "2"), ("x-3", 2, "3")]


def test_name_that_cannot_be_one_of_pod_sets_is_not_taken() -> None:
    obj = wrapper(job())
    names = {}
    for name in ("a.b", "x" * 58, "x" * 59):
        obj["metadata"]["name"] = name
        [names[name]] = (one for one, _, _ in asked(obj))
    assert list(names.values()) == ["pods-0", f"{'x' * 58}-0", "pods-0"]


def test_declared_pods_come_first_and_are_no_fewer_than_the_object_has() -> None:
    """A RayJob's submitter is nothing that an AppWrapper can declare."""
    inside, _ = INFERRED["a RayJob, whose submitter comes last"]
    workers, head = (
        f"template.spec.rayClusterSpec.{where}"
        for where in ("workerGroupSpecs[0].template", "headGroupSpec.template")
    )
    obj = wrapper(
        {**inside, "podSets": [{"path": workers, "replicas": 1}, {"path": head, "replicas": 2}]}
    )
    assert asked(obj) == [("x-0", 3, "2"), ("x-1", 2, "1"), ("x-2", 1, "500m")]
    released = jsonpatch.apply_patch(
        mutate(obj, RULES).object,
        integration_of(obj).release(mutate(obj, RULES).object, infos("x-0", "x-1", "x-2")),
    )
    assert released["spec"]["components"][0]["podSetInfos"] == placed("x-0", "x-1")


def test_flavors_go_to_the_list_of_each_component_that_has_pods() -> None:
    obj = mutate(wrapper(job(), SERVICE, crew(declared=[{"path": CREW}])), RULES).object
    integration = integration_of(obj)
    running = jsonpatch.apply_patch(obj, integration.release(obj, infos("x-0")))
    assert [one.get("podSetInfos") for one in running["spec"]["components"]] == [
        placed("x-0"),
        None,
        [{}],
    ]
    assert running["spec"]["suspend"] is False
    stopped = jsonpatch.apply_patch(running, integration.hold(running))
    restore = integration.restore(stopped, integration.pod_sets(obj))
    assert restore is not None
    again = jsonpatch.apply_patch(stopped, restore)
    assert again == obj
    assert integration.restore(again, integration.pod_sets(obj)) is None


@pytest.mark.parametrize(("inside", "why"), WRONG.values(), ids=WRONG.keys())
def test_bad_path_is_refused_with_object_path_and_cause(inside: Object, why: str) -> None:
    with pytest.raises(RefusedError) as caught:
        mutate(wrapper(job(), inside), RULES)
    assert f"AppWrapper team/x: spec.components[1].{why}" in str(caught.value)
    unnamed = wrapper(inside)
    unnamed["metadata"]["labels"] = {}
    assert mutate(unnamed, RULES).patch == ()


@pytest.mark.parametrize("case", ["a field that is not there", "an AppWrapper"])
def test_object_with_a_bad_path_that_slipped_past_waits_with_the_cause(case: str) -> None:
    inside, why = WRONG[case]
    obj = wrapper(inside)
    with pytest.raises(ObjectError) as caught:
        integration_of(obj).pod_sets(obj)
    assert f"spec.components[0].{why}" in str(caught.value)


def test_change_after_which_a_path_leads_nowhere_is_refused() -> None:
    old = wrapper(crew(declared=[{"path": CREW}]))
    integration = integration_of(old)
    changed = wrapper(crew(declared=[{"path": CREW + "s"}]))
    with pytest.raises(RefusedError, match="has no 'templates'"):
        review_update(changed, old, integration, user="u", context=DEFAULT_CONTEXT)
    assert not review_update(changed, changed, integration, user="u", context=DEFAULT_CONTEXT).patch


def test_number_of_pod_sets_and_of_components_is_bounded() -> None:
    obj = wrapper(*[SERVICE] * (ITEMS_MAX - 18), *[job()] * 18)
    assert len(asked(obj)) == 18
    obj = wrapper(*[job()] * 19)
    assert integration_of(obj).refusals(obj) == [
        "19 pod sets are more than the 18 that a Workload has"
    ]
    obj = wrapper(*[SERVICE] * (ITEMS_MAX + 1))
    [problem] = integration_of(obj).problems(obj)
    assert problem.endswith("spec.components: more than 256 items are more than are looked at")


def test_home_made_kind_is_read_by_its_own_document_in_the_version_of_that() -> None:
    integrations = Integrations()
    integrations.apply({**document(), "metadata": {**document()["metadata"], "uid": "u"}})
    inside = {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "spec": {"replicas": 7, "template": job("2")["template"]["spec"]["template"]},
    }
    obj = wrapper({"template": inside})
    integration = integrations.find(group="workload.codeflare.dev", kind="AppWrapper")
    assert integration is not None
    assert [one["count"] for one in integration.pod_sets(obj)] == [7]
    assert integration_of(obj).pod_sets(obj) == []
    newer = wrapper({"template": {**inside, "apiVersion": "example.com/v2"}})
    with pytest.raises(ObjectError, match=r"only in version example[.]com/v1:"):
        integration.pod_sets(newer)


def test_everything_that_can_wait_is_its_child_and_its_pods_are_left_alone() -> None:
    owner = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "controller": True,
    }
    child = {"metadata": {"ownerReferences": [owner]}}
    integration = integration_of(wrapper())
    for one in SHIPPED:
        assert integration.makes(one.kind)
        assert SHIPPED.has_waiting_controller(child, one.kind)
    assert integration.makes_pods


def test_wrapping_integration_without_the_others_reads_no_pods() -> None:
    text = SHIPPED.find(group="workload.codeflare.dev", kind="AppWrapper")
    assert text is not None
    alone = Integration(text.document, text.compile)
    with pytest.raises(ObjectError, match="Job is inside another object, and nobody knows"):
        alone.pod_sets(wrapper(job()))


WRAPPED = {"object": "item.template", "placements": "item.infos"}
ENTRY = {"forEach": "spec.components", "nameFrom": "metadata.name", "wrapped": WRAPPED}
REFUSED = {
    "no list of items": (
        {"nameFrom": None, "forEach": None, "name": "a"},
        "spec.podSets[0].wrapped.object: `item.…` needs forEach",
    ),
    "no names": ({"nameFrom": None}, "spec.podSets[0].wrapped: write nameFrom"),
    "a template beside it": (
        {"template": "item.template"},
        "spec.podSets[0].template: the wrapped object says it: leave it out",
    ),
    "a place that is not in the item": (
        {"wrapped": {**WRAPPED, "placements": "spec.infos"}},
        "spec.podSets[0].wrapped.placements: must begin with item.",
    ),
}


@pytest.mark.parametrize(("changes", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_document_that_contradicts_itself_is_refused(changes: Object, why: str) -> None:
    entry = {key: value for key, value in {**ENTRY, **changes}.items() if value is not None}
    with pytest.raises(IntegrationError) as caught:
        loaded(podSets=[entry])
    assert why in str(caught.value)
