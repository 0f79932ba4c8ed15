"""Whether the doctor sees what the services' accounts may not do, asked of a simulated API server."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import yaml

from services.ctl.doctor.permissions import ASKED_AT_ONCE_MAX, ROLES, missing_permissions
from services.simulator.app import Simulator
from services.simulator.manifests import apply_all
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import INTEGRATION, Kind
from shared.kube.client import HttpKube
from shared.kube.port import UnavailableError
from tests.unit.integrations import gadgets

NAMESPACE = "sluicegate"
CLUSTER_ROLE = Kind(
    group="rbac.authorization.k8s.io", version="v1", plural="clusterroles", kind="ClusterRole",
    namespaced=False,
)  # fmt: skip


CLUSTER_ROLE_BINDING = Kind(
    group="rbac.authorization.k8s.io", version="v1", plural="clusterrolebindings",
    kind="ClusterRoleBinding", namespaced=False,
)  # fmt: skip


class CountingKube(HttpKube):
    """Counts what is created. One creation may fail."""

    asked = 0
    under_way = 0
    most_under_way = 0
    fails_at = 0
    """The creation that fails, from 1."""

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Body:
        """As the client does it."""
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.asked == self.fails_at:
                raise UnavailableError("the connection has ended")
            return await super().create(kind, obj)
        finally:
            self.under_way -= 1


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
async def kube() -> AsyncIterator[CountingKube]:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    await apply_all(simulator.api, [("rbac.yaml", each) for each in documents()])
    client = CountingKube.at(simulator.url)
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


async def test_permissions_are_asked_for_together_but_not_all_at_once(kube: CountingKube) -> None:
    await missing_permissions(kube, namespace=NAMESPACE)
    assert kube.asked > 2 * ASKED_AT_ONCE_MAX
    assert kube.most_under_way == ASKED_AT_ONCE_MAX


async def test_no_question_outlives_a_failure(kube: CountingKube) -> None:
    kube.fails_at = 3
    with pytest.raises(UnavailableError):
        await missing_permissions(kube, namespace=NAMESPACE)
    assert kube.under_way == 0
    assert kube.asked < kube.fails_at + ASKED_AT_ONCE_MAX


async def test_accounts_of_a_namespace_without_services_lack_everything(kube: HttpKube) -> None:
    found = {finding.where for finding in await missing_permissions(kube, namespace="default")}
    assert found == {
        f"service account default/{name}" for name in ("console", "patcher", "watcher")
    }


AGGREGATED = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: gadgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gadgets}
subjects:
- {kind: ServiceAccount, name: watcher, namespace: sluicegate}
- {kind: ServiceAccount, name: patcher, namespace: sluicegate}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gadgets}
rules:
- {apiGroups: [example.com], resources: [gadgets], verbs: [get, list, watch, patch, delete]}
"""


async def test_doctor_names_missing_rights_on_a_custom_kind(kube: HttpKube) -> None:
    await kube.create(INTEGRATION, gadgets.document())
    lacking = await missing_permissions(kube, namespace=NAMESPACE)
    assert {finding.where.rpartition("/")[2]: finding.problem for finding in lacking} == {
        "watcher": "may not list gadgets.example.com, watch gadgets.example.com",
        "patcher": "may not get gadgets.example.com, patch gadgets.example.com, "
        "delete gadgets.example.com and 1 more",
    }
    assert all("sluicegate.dev/aggregate-to-" in finding.advice for finding in lacking)


async def test_doctor_names_the_missing_finalizers_right_on_a_custom_kind(kube: HttpKube) -> None:
    await kube.create(INTEGRATION, gadgets.document())
    for role in yaml.safe_load_all(AGGREGATED):
        kind = CLUSTER_ROLE if role["kind"] == "ClusterRole" else CLUSTER_ROLE_BINDING
        await kube.create(kind, role)
    (finding,) = await missing_permissions(kube, namespace=NAMESPACE)
    assert finding.problem == "may not update gadgets/finalizers.example.com"
