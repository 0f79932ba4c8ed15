"""A document is refused with the line and the reason of everything that is wrong with it."""

import re

import pytest

from shared.contracts.kube.kinds import Object
from shared.integrations import INTEGRATIONS, Integration, IntegrationError
from shared.integrations.document import DOCUMENT_BYTES_MAX, parse
from shared.integrations.registry import documents, opted
from tests.unit.integrations.gadgets import DOCUMENT, document, loaded

REFUSED = {
    "no YAML": ("a: [", "line 2: did not find expected node content"),
    "another kind": (
        "apiVersion: v1\nkind: Pod\n",
        "line 1: is no Integration of sluicegate.dev/v1alpha1, but Pod of v1",
    ),
    "a list": ("- 1\n", "line 1: is no Integration of sluicegate.dev/v1alpha1, but list"),
    "a document without a name": (
        DOCUMENT.replace("  name: gadgets.example.com\n", "  labels: {}\n"),
        "line 3: metadata.name: is missing",
    ),
    "a misspelt field": (
        DOCUMENT.replace("count:", "counts:"),
        "line 9: spec.podSets[0].counts: there is no such field",
    ),
    "a missing required field": (
        DOCUMENT.replace(", plural: gadgets", ""),
        "line 6: spec.kind.plural: is missing",
    ),
    "a number where an expression belongs": (
        DOCUMENT.replace("spec.replicas", "2"),
        "line 9: spec.podSets[0].count: input should be a valid string, got '2'",
    ),
    "an expression that is none": (
        DOCUMENT.replace("spec.replicas", "spec.replicas +"),
        "line 9: spec.podSets[0].count: line 1, column 16: Syntax error",
    ),
    "a name that nothing has": (
        DOCUMENT.replace("spec.replicas", "specs.replicas"),
        "line 9: spec.podSets[0].count: line 1, column 6: undeclared reference to 'specs.replicas'",
    ),
    "an operator that the types do not have, in its line of the document": (
        DOCUMENT.replace("spec.replicas", "|\n      spec.replicas +\n      'two' * 2"),
        "line 11: spec.podSets[0].count: line 2, column 7: found no matching overload for '_*_'",
    ),
    "an expression of another type": (
        DOCUMENT.replace("spec.replicas", "spec.replicas > 1"),
        "line 9: spec.podSets[0].count: must return int, but returns bool",
    ),
    "half a character": (
        DOCUMENT.replace("spec.replicas", "\"'\\ud800'\""),
        "line 9: found invalid Unicode character escape code",
    ),
    "an item of a value that is no list": (
        DOCUMENT.replace("spec.replicas", "item.replicas"),
        "undeclared reference to 'item.replicas'",
    ),
    "a value nested too deeply": (
        DOCUMENT.replace("spec.replicas", "(" * 40 + "1" + ")" * 40),
        "line 9: spec.podSets[0].count: ",
    ),
    "more than a document may be": ("#" * (DOCUMENT_BYTES_MAX + 1), "larger than 262144 bytes"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_input_is_refused(text: str, said: str) -> None:
    with pytest.raises(IntegrationError) as caught:
        loaded(text)
    assert said in str(caught.value)


POD_SET = {"template": "spec.template"}
GATE: Object = {"name": "a/b", "label": "a/c", "finalizer": "a/d"}
SENSELESS = {
    "a queue that waits": (
        {
            "kind": {
                "group": "kueue.x-k8s.io",
                "version": "v1beta2",
                "kind": "LocalQueue",
                "plural": "localqueues",
            }
        },
        "spec.kind: LocalQueue is nothing that runs and could wait",
    ),
    "a Secret that waits": (
        {"kind": {"group": "", "version": "v1", "kind": "Secret", "plural": "secrets"}},
        "spec.kind: Secret is nothing that runs and could wait",
    ),
    "a template and requests": (
        {"podSets": [{**POD_SET, "requests": {"cpu": "1"}}]},
        "spec.podSets[0].template: it says what is asked for: leave out requests",
    ),
    "neither": (
        {"podSets": [{"count": "1"}]},
        "spec.podSets[0]: says neither template nor requests",
    ),
    "two pod sets of one name": (
        {"podSets": [POD_SET, POD_SET]},
        "two pod sets have the same name",
    ),
    "a template outside of spec": (
        {"podSets": [{"template": "status.template"}]},
        "spec.podSets[0].template: must begin with spec.",
    ),
    "an item without forEach": (
        {"podSets": [{"template": "item.template"}]},
        "spec.podSets[0].template: `item.…` needs forEach",
    ),
    "one template for all items": (
        {"podSets": [{**POD_SET, "forEach": "spec.parts"}]},
        "spec.podSets[0].template: with forEach it must begin with item.",
    ),
    "one name for all items": (
        {"podSets": [{"template": "item.t", "forEach": "spec.parts", "name": "x"}]},
        "spec.podSets[0].name: with forEach all would have it; write nameFrom",
    ),
    "a hold that nothing undoes": (
        {"held": "spec.paused", "hold": [{"op": "add", "path": "/spec/paused", "value": True}]},
        "spec: hold and release belong together",
    ),
    "a hold that is not seen": (
        {
            "hold": [{"op": "add", "path": "/spec/paused", "value": True}],
            "release": [{"op": "remove", "path": "/spec/paused"}],
        },
        "spec.hold: what it makes of an object must be seen: write held",
    ),
    "an operation without a value": (
        {"carry": [{"op": "add", "path": "/spec/x"}]},
        "spec.carry[0]: add takes either value or valueFrom",
    ),
    "a removal of a value": (
        {"carry": [{"op": "remove", "path": "/spec/x", "value": 1}]},
        "spec.carry[0]: remove takes no value",
    ),
    "a copy of more than the spec": (
        {"carry": [{"op": "remove", "path": "/metadata/labels"}]},
        "spec.carry[0]: adds, replaces or removes below /spec/ only",
    ),
    "an equal count of nothing": (
        {"podSets": [{"template": "spec.template", "equalCount": {"field": "spec.completions"}}]},
        "spec.podSets[0].equalCount: it follows countField: write that, too",
    ),
    "a gate and a field": (
        {"gate": GATE, "suspendField": "spec.paused"},
        "spec.suspendField: the gate says how it is held: leave it out",
    ),
    "a gate that is put back": (
        {"gate": GATE, "stop": {"how": "Hold"}},
        "spec.stop.how: a gate cannot be put back: write Delete or Never",
    ),
    "an object that is the template of items": (
        {"podSets": [{"forEach": "spec.a", "template": "object"}]},
        "spec.podSets[0].template: object is a template only, and not with forEach",
    ),
    "annotations of no template": (
        {"annotate": {"a/b": "c"}},
        "spec.annotate: only with propagate: nothing else has a template here",
    ),
    "names of pods that are gone by its end": (
        {"podNames": "status.pods"},
        "spec.podNames: only with podsOutliveStatus: true",
    ),
    "names of pods that its user writes": (
        {"podsOutliveStatus": True, "podNames": "spec.pods"},
        "spec.podNames: must begin with status., got 'spec.pods'",
    ),
    "a stop by a patch that is missing": (
        {"stop": {"how": "Patch"}},
        "spec.stop: `how: Patch` and `patch` belong together",
    ),
}


@pytest.mark.parametrize(("spec", "said"), SENSELESS.values(), ids=SENSELESS.keys())
def test_contradictory_document_is_refused(spec: Object, said: str) -> None:
    with pytest.raises(IntegrationError) as caught:
        loaded(**spec)
    assert said in str(caught.value)


NEVER: dict[str, tuple[str, str, str]] = {
    "settings": ("", "ConfigMap", "configmaps"),
    "secrets": ("", "Secret", "secrets"),
    "namespaces": ("", "Namespace", "namespaces"),
    "rights": ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    "webhooks": ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "webhooks"),
    "leases": ("coordination.k8s.io", "Lease", "leases"),
    "Kueue's own": ("kueue.x-k8s.io", "Workload", "workloads"),
    "our own": ("sluicegate.dev", "Integration", "integrations"),
}


@pytest.mark.parametrize(("group", "kind", "plural"), NEVER.values(), ids=NEVER)
def test_kind_that_runs_nothing_is_refused(group: str, kind: str, plural: str) -> None:
    of = f'{{group: "{group}", version: v1, kind: {kind}, plural: {plural}}}'
    text = re.sub(r"\{group:.*\}", of, DOCUMENT)
    with pytest.raises(IntegrationError, match=f"{kind} is nothing that runs and could wait"):
        Integration.load(parse(text)[0][0])


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(IntegrationError) as caught:
        loaded(held="1", ready="'a'", podSets=[{"template": "x", "count": "true"}])
    assert [problem.field for problem in caught.value.problems] == [
        "spec.held",
        "spec.ready",
        "spec.podSets[0].template",
        "spec.podSets[0].count",
    ]


def test_several_documents_may_be_in_one_file() -> None:
    assert len(parse(f"{DOCUMENT}---\n---\n{DOCUMENT}")) == 2


SHIPPED = dict((*documents(), *opted()))


@pytest.mark.parametrize(("name", "text"), SHIPPED.items(), ids=SHIPPED.keys())
def test_shipped_document_passes_the_validation_of_users_documents(name: str, text: str) -> None:
    [(obj, lines)] = parse(text)
    integration = Integration.load(obj, lines)
    assert integration.name == f"{integration.kind.plural}.{integration.kind.group}".rstrip(".")
    by_default = integration.name in {shipped.name for shipped in INTEGRATIONS}
    assert by_default == (name in dict(documents()))
    assert name == f"{integration.kind.plural}.yaml"


def test_fields_added_by_the_api_server_are_accepted() -> None:
    obj = document()
    obj["metadata"] |= {"uid": "u", "resourceVersion": "1", "managedFields": []}
    obj["status"] = {"conditions": [{"type": "Active", "odd": 1}]}
    assert Integration.load(obj).name == "gadgets.example.com"
