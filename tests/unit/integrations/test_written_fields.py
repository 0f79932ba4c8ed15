"""What the patches of a document may write: whether a job runs, and nothing of what it runs."""

from typing import Any

import pytest
import yaml

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.integrations import INTEGRATIONS, Integrations
from shared.integrations.errors import IntegrationError
from shared.integrations.registry import documents, opted_documents
from shared.testing.builders import observed_object
from tests.unit.integrations.gadgets import gadget, loaded

Patch = dict[str, Any]

REFUSED: dict[str, tuple[Patch, str]] = {
    "a list": ({"path": "/spec/more", "value": [1]}, "not an object or list"),
    "an object": ({"path": "/spec/more", "value": {"a": 1}}, "not an object or list"),
    "a template": ({"path": "/spec/template/metadata/x", "value": "x"}, "template says what runs"),
    "a template of another name": (
        {"path": "/spec/taskRunTemplate/x", "value": "x"}, "taskRunTemplate says what runs"),
    "who runs": ({"path": "/spec/serviceAccountName", "value": "x"}, "says what runs"),
    "an item of a list": ({"path": "/spec/parts/0/x", "value": "x"}, "0 is an item of a list"),
    "one more item": ({"path": "/spec/parts/-", "value": "x"}, "- is an item of a list"),
    "the status": ({"path": "/status/phase", "value": "x"}, "it writes below /spec/"),
    "an owner": ({"path": "/metadata/ownerReferences", "value": "x"}, "one annotation or label"),
    "all annotations": ({"path": "/metadata/annotations", "value": "x"}, "one annotation or label"),
    "all of the spec": ({"path": "/spec", "value": "x"}, "it writes below /spec/"),
}  # fmt: skip
TAKEN: dict[str, Patch] = {
    "a flag": {"path": "/spec/runPolicy/paused", "value": True},
    "a number": {"path": "/spec/replicas", "value": 0},
    "an object that is empty": {"path": "/spec/runPolicy", "value": {}},
    "an annotation": {"path": "/metadata/annotations/example.com~1paused", "value": "true"},
}


def paused(name: str, patch: Patch) -> Object:
    """A document with such a patch."""
    operation = {"op": "add", **patch}
    undo = [{"op": "remove", "path": "/spec/paused"}]
    if name == "stop":
        return {"stop": {"how": "Patch", "patch": [operation]}}
    if name in {"end", "cancel"}:
        return {"stop": {"how": "Never", "end": [operation], name: [operation]}}
    both = {"hold": undo, "release": undo} | {name: [operation]}
    return {"held": "spec.?paused.orValue(false)", **both}


@pytest.mark.parametrize("name", ["hold", "release", "stop", "end", "cancel"])
@pytest.mark.parametrize(("patch", "why"), REFUSED.values(), ids=REFUSED)
def test_patch_that_writes_what_runs_is_refused_with_field_and_cause(
    name: str, patch: Patch, why: str
) -> None:
    with pytest.raises(IntegrationError) as refusal:
        loaded(**paused(name, patch))
    assert why in str(refusal.value)
    assert patch["path"] in str(refusal.value)
    assert f"{name if name != 'stop' else 'patch'}[0]" in str(refusal.value)


@pytest.mark.parametrize("name", ["hold", "release", "stop", "end", "cancel"])
@pytest.mark.parametrize("patch", TAKEN.values(), ids=TAKEN)
def test_patch_that_writes_whether_a_job_runs_is_taken(name: str, patch: Patch) -> None:
    assert loaded(**paused(name, patch)).name == "gadgets.example.com"


def test_value_that_an_expression_makes_is_no_object_either() -> None:
    patch = {"path": "/spec/state", "valueFrom": "spec.template"}
    integration = loaded(**paused("hold", patch))
    with pytest.raises(ValueError, match=r"spec\.hold\[0\]\.valueFrom"):
        integration.hold(gadget())


OWN = {
    document["spec"]["kind"]["plural"]: document
    for document in (
        *(one for _, text in documents() for one in yaml.safe_load_all(text)),
        *opted_documents(["pod", "deployment", "statefulset"]),
    )
}


def observed(document: Object) -> Object:
    metadata = {"name": "theirs", "uid": "i", "resourceVersion": "1"}
    return {**document, "metadata": metadata}


@pytest.mark.parametrize("plural", OWN)
def test_document_for_a_kind_that_ships_is_taken_if_it_writes_the_same(plural: str) -> None:
    state = Integrations().apply(observed(OWN[plural]))
    assert state.problem is None


@pytest.mark.parametrize("name", ["hold", "release", "carry"])
def test_document_for_a_kind_that_ships_writes_no_other_fields(name: str) -> None:
    spec = dict(OWN["pipelineruns"]["spec"])
    spec[name] = [*spec[name], {"op": "add", "path": "/spec/timeout", "value": "1h"}]
    integrations = Integrations()
    message = observed_object(kinds.INTEGRATION, observed({**OWN["pipelineruns"], "spec": spec}))
    state = integrations.observe(message)
    assert state is not None
    assert state.problem is not None
    index = len(spec[name]) - 1
    assert f"spec.{name}[{index}]: /spec/timeout: for this kind, which ships" in state.problem
    assert "/spec/status" in state.problem
    [shipped] = [one for one in INTEGRATIONS if one.kind == kinds.PIPELINE_RUN]
    assert integrations.find(group="tekton.dev", plural="pipelineruns") is shipped


def test_document_that_a_status_says_was_accepted_is_bounded_as_well() -> None:
    good, bad = (dict(OWN["jobs"]["spec"]) for _ in range(2))
    bad["suspendField"] = "spec.completions"
    obj = observed({**OWN["jobs"], "spec": {**good, "active": "1"}}) | {"status": {"accepted": bad}}
    assert Integrations().apply(obj).in_force is None
