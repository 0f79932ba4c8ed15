"""Whether the doctor sees what the services' accounts may not do, asked of a simulated API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from services.ctl.doctor.permissions import ROLES, missing_permissions
from services.simulator.app import Simulator
from services.simulator.manifests import apply_all
from shared.contracts.kube.kinds import Kind
from shared.kube.client import HttpKube

NAMESPACE = "sluicegate"
CLUSTER_ROLE = Kind(
    group="rbac.authorization.k8s.io", version="v1", plural="clusterroles", kind="ClusterRole",
    namespaced=False,
)  # fmt: skip


def documents() -> list[dict[str, Any]]:
    """The roles that the project ships, where kustomize would put them."""
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    ]
    for path in sorted(ROLES.glob("*/rbac.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] in {"Role", "RoleBinding", "ServiceAccount"}:
                document["metadata"]["namespace"] = NAMESPACE
            found.append(document)
    return found


@pytest.fixture
async def kube() -> AsyncIterator[HttpKube]:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    await apply_all(simulator.api, [("rbac.yaml", each) for each in documents()])
    client = HttpKube.at(simulator.url)
    yield client
    await client.close()
    await simulator.stop()


async def test_shipped_roles_lack_no_permission(kube: HttpKube) -> None:
    assert await missing_permissions(kube, namespace=NAMESPACE) == []


async def test_missing_permission_is_named_with_the_file_to_apply(kube: HttpKube) -> None:
    role = await kube.get(CLUSTER_ROLE, None, "sluicegate-patcher")
    [taken] = [rule for rule in role["rules"] if "workloads/status" in rule["resources"]]
    rules = [rule for rule in role["rules"] if rule != taken]
    await kube.patch(CLUSTER_ROLE, None, "sluicegate-patcher", {"rules": rules})

    (finding,) = await missing_permissions(kube, namespace=NAMESPACE)

    assert finding.where == "service account sluicegate/patcher"
    assert finding.problem.startswith("may not patch workloads/status.kueue.x-k8s.io, ")
    assert finding.problem.endswith(f"and {len(taken['resources']) - 3} more")
    assert "deploy/kubernetes/base/patcher/rbac.yaml" in finding.advice
    assert finding.wrong


async def test_accounts_of_a_namespace_without_services_lack_everything(kube: HttpKube) -> None:
    found = {finding.where for finding in await missing_permissions(kube, namespace="default")}
    assert found == {
        f"service account default/{name}" for name in ("console", "patcher", "watcher")
    }
