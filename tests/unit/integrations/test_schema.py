"""A document is compared with the schema of its kind: what no object can have is refused."""

from typing import Any, Final

import pytest

from shared.contracts.kube.kinds import Object
from shared.integrations import INTEGRATIONS, IntegrationError, Integrations
from shared.integrations.schema import SCHEMA_MISMATCH
from tests.unit.integrations.definitions import BARE, GADGETS, OPEN, ROLES, WIDE, WRAPS
from tests.unit.integrations.gadgets import document, loaded

POD_SET = {"template": "spec.template", "count": "spec.replicas"}
GROUPS: Final[dict[str, Any]] = {
    "propagate": "spec.template",
    "podGroups": {"total": "spec.replicas", "hasPods": "spec.replicas > 0"},
}
WRONG: Final[dict[str, tuple[Object, str]]] = {
    "a template that is not there": (
        {"podSets": [{**POD_SET, "template": "spec.tmplate"}]},
        "spec.podSets[0].template: the schema has no spec.tmplate: spec has no 'tmplate'",
    ),
    "a field that an expression reads": (
        {"podSets": [{**POD_SET, "count": "spec.?size.orValue(1)"}]},
        "spec.podSets[0].count: the schema has no spec.size: the field is never there",
    ),
    "a number that is a text": (
        {"podSets": [{**POD_SET, "count": "spec.label"}]},
        "spec.podSets[0].count: must return int, but spec.label is string",
    ),
    "an ending by a field of another kind": (
        {"finish": {"success": 'status.?phase.orValue("") == "Done"'}},
        "spec.finish.success: the schema has no status.phase",
    ),
    "a list that is a number": (
        {"podSets": [{"forEach": "spec.replicas", "template": "item.template"}]},
        "spec.podSets[0].forEach: spec.replicas is neither a list nor a map",
    ),
    "a field at which a patch holds": (
        {
            "held": "spec.suspend",
            "hold": [{"op": "add", "path": "/spec/paused", "value": True}],
            "release": [{"op": "remove", "path": "/spec/paused"}],
        },
        "spec.hold[0].path: the schema has no /spec/paused: spec has no 'paused'",
    ),
    "a field that suspends": (
        {"suspendField": "spec.runPolicy.suspend"},
        "spec.suspendField: the schema has no spec.runPolicy.suspend: spec has no 'runPolicy'",
    ),
    "what a refusal reads": (
        {"refuse": [{"when": "spec.?size.orValue(0) > 1", "field": "spec.size", "message": "no"}]},
        "the schema has no spec.size: the field is never there",
    ),
    "a field that a refusal names": (
        {"refuse": [{"when": "true", "field": "spec.size", "message": "no"}]},
        "spec.refuse[0].field: the schema has no spec.size: spec has no 'size'",
    ),
    "a template that gets labels": (
        {"propagate": "spec.tmplate"},
        "spec.propagate: the schema has no spec.tmplate: spec has no 'tmplate'",
    ),
    "names of pods": (
        {"podsOutliveStatus": True, "podNames": "status.pods"},
        "spec.podNames: the schema has no status.pods: status has no 'pods'",
    ),
    "a template of leaders": (
        {**GROUPS, "podGroups": {**GROUPS["podGroups"], "leader": "spec.leader"}},
        "spec.podGroups.leader: the schema has no spec.leader: spec has no 'leader'",
    ),
    "a number of pods in a group that is a text": (
        {**GROUPS, "podGroups": {**GROUPS["podGroups"], "total": "spec.label"}},
        "spec.podGroups.total: must return int, but spec.label is string",
    ),
    "what tells whether there are pods": (
        {**GROUPS, "podGroups": {**GROUPS["podGroups"], "hasPods": "status.?pods.orValue(0) > 0"}},
        "spec.podGroups.hasPods: the schema has no status.pods: the field is never there",
    ),
    "what a patch depends on": (
        {"carry": [{"op": "remove", "path": "/spec/label", "when": "spec.?free.orValue(false)"}]},
        "spec.carry[0].when: the schema has no spec.free",
    ),
    "a value that a patch reads": (
        {"carry": [{"op": "add", "path": "/spec/label", "valueFrom": "spec.name"}]},
        "spec.carry[0].valueFrom: the schema has no spec.name",
    ),
    "a field that tells who runs it": (
        {"webhook": {"managedByField": "spec.managedBy"}},
        "spec.webhook.managedByField: the schema has no spec.managedBy",
    ),
    "a field of the count": (
        {"podSets": [{**POD_SET, "countField": "spec.pods"}]},
        "spec.podSets[0].countField: the schema has no spec.pods",
    ),
    "a field that is read of the whole object": (
        {"podSets": [{**POD_SET, "count": "object.spec.size"}]},
        "spec.podSets[0].count: the schema has no spec.size: the field is never there",
    ),
    "a number that is a text of the whole object": (
        {"podSets": [{**POD_SET, "count": "object.spec.label"}]},
        "spec.podSets[0].count: must return int, but spec.label is string",
    ),
    "a number that is a text if it is there": (
        {"podSets": [{**POD_SET, "count": "spec.?label.orValue(1)"}]},
        "spec.podSets[0].count: must return int, but spec.label is string",
    ),
    "a template that is a number": (
        {"podSets": [{"template": "spec.replicas"}]},
        "spec.podSets[0].template: the schema has no spec.replicas.spec.containers: spec.replicas has no",
    ),
    "a place without nodes": (
        {"podSets": [{**POD_SET, "placement": "spec.label"}]},
        "spec.podSets[0].placement: the schema has no spec.label.nodeSelector",
    ),
    "a field that suspends and is a text": (
        {"suspendField": "spec.label"},
        "spec.suspendField: must be boolean, but spec.label is string",
    ),
    "a field of the count that is a text": (
        {"podSets": [{**POD_SET, "countField": "spec.label"}]},
        "spec.podSets[0].countField: must be integer, but spec.label is string",
    ),
    "a value of another type": (
        {
            "held": "spec.suspend",
            "hold": [{"op": "add", "path": "/spec/suspend", "value": "yes"}],
            "release": [{"op": "remove", "path": "/spec/suspend"}],
        },
        "spec.hold[0].value: is string, but spec.suspend is boolean",
    ),
    "a template whose labels are taken away": (
        {"propagate": "spec.template"},
        "spec.propagate: the schema has no spec.template.metadata.labels: without them its pods do not wait",
    ),
    "another kind": (
        {"kind": {"group": "example.com", "version": "v1", "kind": "Gadgte", "plural": "gadgets"}},
        "spec.kind.kind: gadgets.example.com defines Gadget",
    ),
    "a version that is not defined": (
        {
            "kind": {
                "group": "example.com",
                "version": "v2",
                "kind": "Gadget",
                "plural": "gadgets",
            }
        },
        "CustomResourceDefinition gadgets.example.com has no version 'v2'",
    ),
}


@pytest.mark.parametrize(("spec", "said"), WRONG.values(), ids=WRONG.keys())
def test_path_that_the_schema_does_not_have_is_refused_with_document_and_cause(
    spec: Object, said: str
) -> None:
    with pytest.raises(IntegrationError) as caught:
        loaded(**spec).check_schema(GADGETS)
    assert str(caught.value).startswith("Integration gadgets.example.com: ")
    assert said in str(caught.value)


def test_kind_without_namespaces_is_refused() -> None:
    wide = {**GADGETS, "spec": {**GADGETS["spec"], "scope": "Cluster"}}
    with pytest.raises(
        IntegrationError, match=r"spec\.kind: Gadget has no namespace: only what is in"
    ):
        loaded().check_schema(wide)


RIGHT: dict[str, dict[str, Any]] = {
    "fields that are there": {"active": "status.?active.orValue(0) > 0"},
    "conditions": {"ready": 'conditions[?"Ready"].?status.orValue("") == "True"'},
    "the whole object": {"match": 'object.spec.label == "" || object.kind == "Gadget"'},
    "a number where one is wanted": {"podSets": [{**POD_SET, "countField": "spec.replicas"}]},
    "labels of a template that are kept": {"propagate": "spec.anything"},
    "what is open": {"match": 'spec.?anything.?a.?b.orValue("") == ""'},
    "metadata": {"match": 'metadata.?labels[?"a"].orValue("") == ""'},
}


CARRIED = {
    "a removal of what is not there": {"op": "remove", "path": "/spec/gone"},
    "a key of a map": {"op": "add", "path": "/spec/labels/a", "value": "b"},
    "a key of a map of anything": {"op": "add", "path": "/spec/flags/a", "value": {"b": 1}},
    "an item of a list": {"op": "add", "path": "/spec/parts/0/name", "value": "b"},
    "the end of a list": {"op": "add", "path": "/spec/parts/-", "value": {}},
    "a field of an embedded object": {"op": "add", "path": "/spec/embedded/spec/a", "value": 1},
    "metadata of a pod": {"op": "add", "path": "/spec/pod/metadata/labels", "value": {}},
}


@pytest.mark.parametrize("operation", CARRIED.values(), ids=CARRIED.keys())
def test_patch_may_write_what_an_object_can_have(operation: Object) -> None:
    loaded(carry=[operation]).check_schema(WIDE)


@pytest.mark.parametrize("spec", RIGHT.values(), ids=RIGHT.keys())
def test_document_that_fits_the_schema_passes(spec: dict[str, Any]) -> None:
    loaded(**spec).check_schema(GADGETS)


def test_items_of_a_map_are_compared_with_what_the_map_has() -> None:
    kind = {"group": "example.com", "version": "v1", "kind": "Training", "plural": "trainings"}
    entry = {"forEach": "spec.roles", "template": "item.template", "count": "item.replicas"}
    fields: dict[str, Any] = {"kind": kind, "suspendField": "spec.runPolicy.suspend"}
    loaded(**fields, podSets=[entry]).check_schema(ROLES)
    with pytest.raises(IntegrationError, match=r"the schema has no item\.pods"):
        loaded(**fields, podSets=[{**entry, "count": "item.pods"}]).check_schema(ROLES)
    with pytest.raises(IntegrationError, match=r"template: the schema has no item\.pod"):
        loaded(**fields, podSets=[{**entry, "template": "item.pod"}]).check_schema(ROLES)


WRAPPED: Object = {
    "object": "item.body",
    "declared": {"list": "item.pods", "path": "at", "replicas": "many"},
    "placements": "item.infos",
}
NOT_WRAPPED: dict[str, tuple[Object, str]] = {
    "the object": ({"object": "item.object"}, "wrapped.object: the schema has no item.object"),
    "the list of pods": (
        {"declared": {**WRAPPED["declared"], "list": "item.sets"}},
        "wrapped.declared.list: the schema has no item.sets",
    ),
    "the path of a template": (
        {"declared": {**WRAPPED["declared"], "path": "path"}},
        "wrapped.declared.path: the schema has no path",
    ),
    "a number of pods that is a text": (
        {"declared": {**WRAPPED["declared"], "replicas": "at"}},
        "wrapped.declared.replicas: must be integer, but at is string",
    ),
    "what flavors choose": (
        {"placements": "item.places"},
        "wrapped.placements: the schema has no item.places",
    ),
}


@pytest.mark.parametrize(("changes", "said"), NOT_WRAPPED.values(), ids=NOT_WRAPPED.keys())
def test_places_of_wrapped_objects_are_compared_with_the_schema(changes: Object, said: str) -> None:
    kind = {"group": "example.com", "version": "v1", "kind": "Wrap", "plural": "wraps"}
    entry: Object = {"forEach": "spec.parts", "nameFrom": "metadata.name"}
    loaded(kind=kind, podSets=[{**entry, "wrapped": WRAPPED}]).check_schema(WRAPS)
    wrong = loaded(kind=kind, podSets=[{**entry, "wrapped": {**WRAPPED, **changes}}])
    with pytest.raises(IntegrationError) as caught:
        wrong.check_schema(WRAPS)
    assert said in str(caught.value)


def test_kind_without_a_field_to_suspend_it_needs_another_hold() -> None:
    kind = {"group": "example.com", "version": "v1", "kind": "Bare", "plural": "bares"}
    with pytest.raises(
        IntegrationError, match=r"spec\.suspendField: the schema has no spec\.suspend"
    ):
        loaded(kind=kind, podSets=[{"requests": {"cpu": "1"}}]).check_schema(BARE)


def test_definition_without_a_schema_refuses_nothing() -> None:
    for integration in INTEGRATIONS:
        of = integration.kind
        status: Object = {} if integration.users_write_status else {"status": {}}
        versions = [
            {"name": of.version, "subresources": status, "schema": {"openAPIV3Schema": OPEN}}
        ]
        integration.check_schema({"spec": {"versions": versions}})


def test_document_says_that_users_write_the_status_where_they_do() -> None:
    [version] = GADGETS["spec"]["versions"]
    without = {**GADGETS["spec"], "versions": [{**version, "subresources": {}}]}
    definition = {**GADGETS, "spec": without}
    with pytest.raises(IntegrationError, match=r"spec\.statusSubresource: .* Write false"):
        loaded().check_schema(definition)
    loaded(statusSubresource=False).check_schema(definition)
    loaded(statusSubresource=False).check_schema(GADGETS)


def test_document_whose_status_says_that_the_schema_is_against_it_is_not_in_force() -> None:
    integrations = Integrations()
    obj = {**document(), "metadata": {"name": "gadgets.example.com", "generation": 3}}
    assert integrations.apply(obj).in_force is not None
    said = {
        "type": "Active",
        "status": "False",
        "reason": SCHEMA_MISMATCH,
        "message": "no",
        "observedGeneration": 3,
    }
    refused = {**obj, "status": {"conditions": [said], "accepted": obj["spec"]}}
    state = integrations.apply(refused)
    assert (state.problem, state.in_force) == ("no", None)
    before = document(podSets=[{"template": "spec.template"}])["spec"]
    earlier = integrations.apply({**refused, "status": {**refused["status"], "accepted": before}})
    assert earlier.problem == "no"
    later = {**refused, "metadata": {**obj["metadata"], "generation": 4}}
    assert integrations.apply(later).problem is None, "it spoke of an earlier spec"
