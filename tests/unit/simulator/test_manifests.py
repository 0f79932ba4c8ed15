"""Folders of manifests, as `--manifests` takes them."""

from pathlib import Path

import pytest

from services.simulator.manifests import ManifestError, apply_all, read_folder
from tests.unit.simulator.builders import api, kind

NAMESPACED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: team, annotations: {day: 2026-01-02}}
"""
NAMESPACE = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: team}}
"""


async def test_namespaces_are_applied_first_and_reapplying_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(NAMESPACED + "---\n")
    (tmp_path / "b.yml").write_text(NAMESPACE)
    cluster = api()

    counts = [await apply_all(cluster, read_folder(tmp_path)) for _ in range(2)]

    stored = cluster.get(kind(cluster, "configmaps"), "team", "c")
    assert counts == [2, 2]
    assert stored.version == cluster.store.version
    assert stored.obj["metadata"]["annotations"] == {"day": "2026-01-02"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("- 1", "a document is not an object"),
        ("{apiVersion: x/v1, kind: Well}", 'no matches for kind "Well" in version "x/v1"'),
        (NAMESPACED, 'namespaces "team" not found'),
    ],
)
async def test_mistake_in_a_manifest_is_reported_with_its_file(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "a.yaml").write_text(text)

    with pytest.raises(ManifestError) as refused:
        await apply_all(api(), read_folder(tmp_path))

    assert str(refused.value).startswith(f"{tmp_path}/a.yaml: ")
    assert says in str(refused.value)
