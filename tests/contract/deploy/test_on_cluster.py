"""A real API server takes everything that is rendered, as a dry run, and sees what its own rules refuse."""

import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from tests.contract.deploy.rendering import COMPONENTS, KUBECTL, OVERLAYS, Json, kustomized
from tests.contract.kubernetes.clusters import Cluster, some_cluster

pytestmark = pytest.mark.cluster

FOREIGN: Final = "cert-manager.io"
"""Whose definitions are not ours to apply; those of its objects are left out, and said so here."""

ESTABLISHED: Final = ("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With our kinds and our namespace, whose pod security holds for what comes after."""
    with some_cluster(tmp_path_factory.mktemp("deploy")) as running:
        everything = kustomized("hub", definitions=True)
        first = [
            one for one in everything if one["kind"] in {"CustomResourceDefinition", "Namespace"}
        ]
        kubectl(running, "apply", "--server-side", "-f", "-", documents=first)
        kubectl(running, *ESTABLISHED)
        yield running


def kubectl(server: Cluster, *arguments: str, documents: list[Json] | None = None) -> str:
    done = subprocess.run(
        [KUBECTL, "--kubeconfig", server.kubeconfig, *arguments],
        input=yaml.safe_dump_all(documents) if documents else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("overlay", "components"), [*((one, ()) for one in OVERLAYS), ("hub", COMPONENTS)]
)
def test_api_server_accepts_every_object_in_a_dry_run(
    server: Cluster, overlay: str, components: tuple[str, ...]
) -> None:
    documents = [
        one
        for one in kustomized(overlay, components, definitions=True)
        if not one["apiVersion"].startswith(FOREIGN)
    ]
    said = kubectl(
        server,
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict"),
        *("-f", "-"),
        documents=documents,
    )
    lines = [
        line for line in said.splitlines() if line.endswith("serverside-applied (server dry run)")
    ]
    assert len(lines) == len(documents), said
    assert "would violate PodSecurity" not in said


def test_namespace_warns_of_a_pod_that_is_not_restricted(server: Cluster) -> None:
    [quota] = [
        one
        for one in kustomized("hub")
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "quota")
    ]
    loose = yaml.safe_load(yaml.safe_dump(quota))
    del loose["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]
    said = kubectl(
        server, "apply", "--server-side", "--dry-run=server", "-f", "-", documents=[loose]
    )
    assert "would violate PodSecurity" in said
