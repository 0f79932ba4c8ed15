"""Manifests are read as Kubernetes reads them; what is wrong is named by file, field and value."""

from pathlib import Path

import pytest

from services.ctl.dev.app import EXAMPLE
from services.whatif.manifests import load_manifests
from shared.runtime.command import CommandError

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata:
  name: pipelines-queue
  namespace: team-tenant
spec:
  clusterQueue: 2026-01-01
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-tenant\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "objects.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("kind: [", "objects.yaml: is not YAML", id="what is no YAML"),
        pytest.param("- a\n- b\n", "is no object, but ['a', 'b']", id="a list"),
        pytest.param("kind: Job\n", "apiVersion: must be a string, got nothing", id="no version"),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
            "kind: Pod of v1 is not one that sluice applies",
            id="a kind that we do not apply",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Namespace\nmetadata: {}\n",
            "metadata.name: Namespace needs a name or a generateName",
            id="no name",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: 123}\n",
            "metadata.name: must be a string, got 123; quote it",
            id="a name that YAML takes for a number",
        ),
        pytest.param(
            NAMESPACE + "---\napiVersion: v1\nkind: Namespace\nmetadata: x\n",
            "objects.yaml (document 2): metadata: must be an object, got 'x'",
            id="the second of two documents",
        ),
    ],
)
def test_invalid_manifest_is_refused_with_its_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        load_manifests([written(tmp_path, text)])
    assert said in str(caught.value)


def test_empty_folder_and_missing_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has no manifests"):
        load_manifests([tmp_path])
    with pytest.raises(CommandError, match="there is no such file"):
        load_manifests([tmp_path / "missing"])


def test_a_date_stays_a_string_and_the_version_that_was_written_is_kept(tmp_path: Path) -> None:
    (manifest,) = load_manifests([written(tmp_path, QUEUE)])
    assert manifest.object["spec"]["clusterQueue"] == "2026-01-01"
    assert manifest.kind.version == "v1beta1"
    assert manifest.title == "LocalQueue team-tenant/pipelines-queue"


def test_namespaces_come_before_what_is_in_them_and_lists_are_opened(tmp_path: Path) -> None:
    items = "apiVersion: v1\nkind: List\nitems:\n- " + NAMESPACE.replace("\n", "\n  ")
    manifests = load_manifests([written(tmp_path, QUEUE + "---\n" + items)])
    assert [manifest.kind.kind for manifest in manifests] == ["Namespace", "LocalQueue"]


def test_the_example_has_200_slots_eight_classes_and_a_queue_for_every_tenant() -> None:
    manifests = load_manifests([EXAMPLE])
    kinds = [manifest.kind.kind for manifest in manifests]
    assert kinds.count("WorkloadPriorityClass") == 8
    queue = next(m.object for m in manifests if m.title == "ClusterQueue cluster-pipeline-queue")
    slots = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    assert slots == {"name": "tekton.dev/pipelineruns", "nominalQuota": 200}
    tenants = {
        m.object["metadata"]["namespace"]
        for m in manifests
        if m.object["metadata"]["name"] == "pipelines-queue"
    }
    assert {"team-tenant", "mintmaker"} <= tenants
