"""`sluice integration check` as a person meets it: what it prints, and its exit status."""

import json
from pathlib import Path

import pytest
import yaml

from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.integrations.registry import opted
from shared.runtime.command import Exit
from tests.unit.ctl.whatif_objects import Sluice
from tests.unit.integrations.gadgets import DOCUMENT, gadget

OWNER = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "x",
    "controller": True,
}
OWNED = {"ownerReferences": [OWNER]}
CHECKS = {
    "one that is read": (DOCUMENT, gadget(), Exit.OK, "pod set main     2 x (cpu=1)"),
    "one that is held": (DOCUMENT, gadget(suspend=True), Exit.OK, "held             yes"),
    "one of another kind": (
        DOCUMENT,
        {**gadget(), "kind": "Widget"},
        Exit.FAILED,
        "Widget default/one: is no Gadget of example.com/v1",
    ),
    "one that another one made": (
        DOCUMENT.replace("example.com, version: v1, kind: Gadget", "batch, version: v1, kind: Job"),
        {**gadget(), "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one", **OWNED}},
        Exit.FAILED,
        "recognised       no: its controller made it, and waits for it",
    ),
    "a pod, which is deleted to stop it": (
        dict(opted())["pods.yaml"],
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        },
        Exit.OK,
        "stop             it is deleted",
    ),
    "a pod, whose gate is there when it goes": (
        dict(opted())["pods.yaml"],
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one"},
            "spec": {"containers": []},
        },
        Exit.OK,
        '"path": "/spec/schedulingGates", "value": [{"name": "kueue.x-k8s.io/admission"}]}\n'
        + 19 * " "
        + '{"op": "add", "path": "/spec/nodeSelector"',
    ),
    "one whose pods wait instead": (
        DOCUMENT.replace("spec:\n", "spec:\n  propagate: spec.template\n  annotate: {a/b: c}\n", 1),
        {
            **gadget(),
            "metadata": {"name": "one", "labels": {QUEUE: "q", PRIORITY_CLASS_LABEL: "p"}},
        },
        Exit.OK,
        (
            "  held             never: its pods wait instead\n"
            "  pod set main     2 x (cpu=1)\n"
            '  pods get         spec.template: {"labels": {"kueue.x-k8s.io/queue-name": "q", '
            '"kueue.x-k8s.io/priority-class": "p"}, "annotations": {"a/b": "c"}}\n'
        ),
    ),
    "one whose pods are a group without a name": (
        DOCUMENT.replace(
            "spec:\n",
            "spec:\n  propagate: spec.template\n  podGroups: {total: spec.replicas, hasPods: 'true'}\n",
            1,
        ),
        {**gadget(), "metadata": {"generateName": "one-", "labels": {QUEUE: "q"}}},
        Exit.FAILED,
        "problem          metadata.generateName: its pods are a group by its name: write metadata.name",
    ),
    "one that the document does not mean": (
        DOCUMENT.replace("spec:\n", "spec:\n  match: spec.replicas == 7\n", 1),
        gadget(),
        Exit.FAILED,
        "recognised       no: `match` does not hold of it",
    ),
    "one whose template cannot be read": (
        DOCUMENT,
        gadget(template={"spec": {"containers": ["work"]}}),
        Exit.FAILED,
        "spec.podSets[0].template.spec.containers[0]: must be an object, got str",
    ),
    "one whose labels are a word": (
        DOCUMENT,
        {**gadget(), "metadata": {"name": "one", "labels": "x"}},
        Exit.WRONG_INPUT,
        "metadata.labels: must be an object, got str",
    ),
    "one whose owner is a word": (
        DOCUMENT,
        {**gadget(), "metadata": {"name": "one", "ownerReferences": ["x"]}},
        Exit.WRONG_INPUT,
        "metadata.ownerReferences[0]: must be an object, got str",
    ),
    "one without metadata": (
        DOCUMENT,
        {**gadget(), "metadata": None},
        Exit.OK,
        "Gadget default/",
    ),
    "one that an expression fails on": (
        DOCUMENT,
        gadget(replicas="two"),
        Exit.FAILED,
        "spec.podSets[0].count: must return int, but returned 'two'",
    ),
    "a document that does not type-check": (
        DOCUMENT.replace("spec.replicas", "spec.replicas == 2"),
        gadget(),
        Exit.WRONG_INPUT,
        "line 9: spec.podSets[0].count: must return int, but returns bool",
    ),
    "an empty document": ("", gadget(), Exit.WRONG_INPUT, "holds no Integration"),
}


@pytest.mark.parametrize(("text", "obj", "status", "said"), CHECKS.values(), ids=CHECKS.keys())
def test_check_describes_the_object(
    text: str, obj: object, status: Exit, said: str, sluice_integration: Sluice, tmp_path: Path
) -> None:
    document, manifest = tmp_path / "integration.yaml", tmp_path / "object.yaml"
    document.write_text(text)
    manifest.write_text(yaml.safe_dump(obj))
    code, out, err = sluice_integration("check", document, "--object", manifest)
    assert said in out + err
    assert code == status


def test_document_without_object_is_checked(sluice_integration: Sluice, tmp_path: Path) -> None:
    document = tmp_path / "integration.yaml"
    document.write_text(DOCUMENT)
    code, out, _ = sluice_integration("check", document)
    assert (code, out.count("\n")) == (Exit.OK, 1)


def test_check_prints_json(sluice_integration: Sluice, tmp_path: Path) -> None:
    document, manifest = tmp_path / "integration.yaml", tmp_path / "object.yaml"
    document.write_text(DOCUMENT)
    manifest.write_text(yaml.safe_dump(gadget()))
    code, out, _ = sluice_integration("check", document, "--object", manifest, "-o", "json")
    found = json.loads(out)
    assert code == Exit.OK
    assert found["pod_sets"] == [
        {"name": "main", "count": 2, "minCount": None, "requests": {"cpu": "1"}}
    ]
    assert found["patches"]["release"][-1]["value"] is False


def test_shipped_kinds_are_listed(sluice_integration: Sluice) -> None:
    code, out, _ = sluice_integration("list")
    assert code == Exit.OK
    assert [line.split()[0] for line in out.splitlines()[1:4]] == [
        "pipelineruns.tekton.dev",
        "jobs.batch",
        "jobsets.jobset.x-k8s.io",
    ]
