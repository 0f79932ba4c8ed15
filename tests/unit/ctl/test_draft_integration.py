"""`sluice integration init` writes a first document that passes its own checks and reads an object."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.contracts.kube.kinds import Object
from shared.integrations import Integration
from shared.integrations.document import parse
from shared.runtime.command import Exit
from tests.unit.ctl.whatif_objects import Sluice
from tests.unit.integrations.definitions import BARE, GADGETS, GROUPS, PAIRS, ROLES

TEMPLATE = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}


def written(path: Path, obj: Any) -> Path:
    path.write_text(yaml.safe_dump(obj))
    return path


DRAFTS: dict[str, tuple[Object, Object, list[tuple[str, int]], tuple[str, ...]]] = {
    "one template": (
        GADGETS,
        {"template": TEMPLATE, "replicas": 3},
        [("main", 3)],
        ("  active: status.?active.orValue(0) > 0", "  - template: spec.template"),
    ),
    "a map of roles that is suspended elsewhere": (
        ROLES,
        {"roles": {"Chief": {"template": TEMPLATE}, "Worker": {"replicas": 2}}},
        [("chief", 1), ("worker", 2)],
        (
            "  suspendField: spec.runPolicy.suspend",
            '    success: status.?phase.orValue("") == "Succeeded"',
            "  #   managedByField: spec.runPolicy.managedBy",
        ),
    ),
    "a status that users can write": (
        {
            **GADGETS,
            "spec": {
                **GADGETS["spec"],
                "versions": [{**GADGETS["spec"]["versions"][0], "subresources": {}}],
            },
        },
        {"template": TEMPLATE, "replicas": 3},
        [("main", 3)],
        ("  statusSubresource: false",),
    ),
    "two templates side by side": (
        PAIRS,
        {"leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE},
        [("leader", 1), ("worker", 1)],
        ("  - name: leader", "  - name: worker"),
    ),
    "a template and a list of others": (
        GROUPS,
        {
            "head": {"template": TEMPLATE},
            "workers": [{"groupName": "Small", "replicas": 4, "template": TEMPLATE}],
        },
        [("head", 1), ("small", 4)],
        ("  - name: head", "    nameFrom: item.groupName.lowerAscii()"),
    ),
}


@pytest.mark.parametrize(
    ("definition", "spec", "asked", "lines"), DRAFTS.values(), ids=DRAFTS.keys()
)
def test_first_document_fits_the_schema_and_reads_an_object(
    definition: Object,
    spec: Object,
    asked: list[tuple[str, int]],
    lines: tuple[str, ...],
    sluice_integration: Sluice,
    tmp_path: Path,
) -> None:
    crd = written(tmp_path / "crd.yaml", definition)
    code, out, _ = sluice_integration("init", crd)
    assert code == Exit.OK
    assert set(lines) <= set(out.splitlines())
    [(obj, where)] = parse(out)
    integration = Integration.load(obj, where)
    integration.check_schema(definition)
    kind = {"apiVersion": "example.com/v1", "kind": integration.kind.kind}
    made = {**kind, "metadata": {"name": "x", "uid": "u"}, "spec": spec}
    assert [(p["name"], p["count"]) for p in integration.pod_sets(made)] == asked
    file = tmp_path / "integration.yaml"
    file.write_text(out)
    code, out, err = sluice_integration(
        "try", file, "--object", written(tmp_path / "o.yaml", made), "--crd", crd
    )
    assert (code, err) == (Exit.OK, "")
    assert f"pod set {asked[0][0]}" in out
    assert '"path": "/spec' in out


def test_draft_of_a_kind_without_templates_names_what_to_fill_in(
    sluice_integration: Sluice, tmp_path: Path
) -> None:
    code, out, _ = sluice_integration("init", written(tmp_path / "crd.yaml", BARE))
    assert code == Exit.OK
    assert "No field `suspend` was found. Say how one is made to wait" in out
    assert "its pods wait instead" in out
    assert '- requests: {example.com/bares: "1"}' in out
    assert parse(out)


REFUSED: dict[str, tuple[Object, str]] = {
    "what is no definition": ({"kind": "Pod"}, "is no CustomResourceDefinition, but Pod"),
    "a kind without namespaces": (
        {**GADGETS, "spec": {**GADGETS["spec"], "scope": "Cluster"}},
        "Gadget has no namespace: only what is in one can wait",
    ),
    "a kind that is not served": (
        {**GADGETS, "spec": {**GADGETS["spec"], "versions": []}},
        "serves no version",
    ),
}


@pytest.mark.parametrize(("definition", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_definition_of_what_cannot_wait_is_refused(
    definition: Object, said: str, sluice_integration: Sluice, tmp_path: Path
) -> None:
    code, _, err = sluice_integration("init", written(tmp_path / "crd.yaml", definition))
    assert (code, said in err) == (Exit.WRONG_INPUT, True)


def test_document_against_its_schema_names_file_field_and_cause(
    sluice_integration: Sluice, tmp_path: Path
) -> None:
    crd = written(tmp_path / "crd.yaml", GADGETS)
    _, out, _ = sluice_integration("init", crd)
    file = tmp_path / "integration.yaml"
    file.write_text(out.replace("spec.template", "spec.tmplate"))
    code, _, err = sluice_integration("check", file, "--crd", crd)
    assert code == Exit.WRONG_INPUT
    assert "integration.yaml: Integration gadgets.example.com: spec.podSets[0].template: " in err
    code, _, err = sluice_integration(
        "check", file, "--crd", written(tmp_path / "other.yaml", ROLES)
    )
    assert "defines Training, of which no document of" in err
