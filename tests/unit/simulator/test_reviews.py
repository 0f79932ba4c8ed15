"""Who is it, and what may it do: answered as an API server answers, from Secrets and roles."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.simulator.app import Simulator
from services.simulator.manifests import apply_all
from shared.contracts.kube.kinds import Kind
from shared.kube.client import HttpKube
from shared.kube.port import RefusedError

TOKEN_REVIEW = Kind(
    group="authentication.k8s.io", version="v1", plural="tokenreviews", kind="TokenReview",
    namespaced=False,
)  # fmt: skip
ACCESS_REVIEW = Kind(
    group="authorization.k8s.io", version="v1", plural="subjectaccessreviews",
    kind="SubjectAccessReview", namespaced=False,
)  # fmt: skip
RBAC = "rbac.authorization.k8s.io"
READS = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]}
NAMED = {
    "apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues/pendingworkloads"],
    "verbs": ["*"], "resourceNames": ["cq"],
}  # fmt: skip
DANA = {"kind": "ServiceAccount", "namespace": "team", "name": "dana"}
Json = dict[str, Any]


def bound(kind: str, name: str, rule: Json, subject: Json, namespace: str = "") -> list[Json]:
    where = {"namespace": namespace} if namespace else {}
    ref = {"apiGroup": RBAC, "kind": kind, "name": name}
    binding = {"roleRef": ref, "subjects": [subject], "metadata": {"name": name, **where}}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, **where},
         "rules": [rule]},
        {"apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", **binding},
    ]  # fmt: skip


OBJECTS: list[Json] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": "dana", "namespace": "team",
            "annotations": {"kubernetes.io/service-account.name": "dana"},
        },
        "data": {"token": base64.b64encode(b"letmein").decode()},
    },
    *bound("Role", "reads", READS, DANA, "team"),
    *bound("ClusterRole", "named", NAMED, {"kind": "Group", "name": "system:serviceaccounts"}),
    *bound("ClusterRole", "all", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
           {"kind": "User", "name": "root"}),
]  # fmt: skip


@pytest.fixture
async def kube() -> AsyncIterator[HttpKube]:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    await apply_all(simulator.api, [("test", document) for document in OBJECTS])
    client = HttpKube.at(simulator.url)
    yield client
    await client.close()
    await simulator.stop()


async def test_token_review_returns_the_account_and_refuses_unknown_tokens(kube: HttpKube) -> None:
    known = await kube.create(TOKEN_REVIEW, {"spec": {"token": "letmein"}})
    assert known["status"]["authenticated"] is True
    assert known["status"]["user"]["username"] == "system:serviceaccount:team:dana"
    assert "system:serviceaccounts:team" in known["status"]["user"]["groups"]
    for token in ("", "letmeout"):
        stranger = await kube.create(TOKEN_REVIEW, {"spec": {"token": token}})
        assert stranger["status"]["authenticated"] is False


ASKED: list[Any] = [
    pytest.param("list", "workloads", {"namespace": "team"}, True, id="what its role allows there"),
    pytest.param("list", "workloads", {"namespace": "other"}, False, id="the same elsewhere"),
    pytest.param("list", "workloads", {}, False, id="the same everywhere"),
    pytest.param("watch", "workloads", {"namespace": "team"}, False, id="another verb"),
    pytest.param("get", "clusterqueues", {"name": "cq"}, False, id="without the subresource"),
    pytest.param(
        "get", "clusterqueues", {"name": "cq", "subresource": "pendingworkloads"}, True,
        id="a subresource by name, as a member of a group",
    ),
    pytest.param(
        "get", "clusterqueues", {"name": "other", "subresource": "pendingworkloads"}, False,
        id="a subresource by another name",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "resource", "more", "allowed"), ASKED)
async def test_access_review_follows_the_roles_of_an_account(
    kube: HttpKube, verb: str, resource: str, more: Json, allowed: bool
) -> None:
    attributes = {"verb": verb, "group": "kueue.x-k8s.io", "resource": resource, **more}
    spec = {
        "user": "system:serviceaccount:team:dana",
        "groups": ["system:serviceaccounts"],
        "resourceAttributes": attributes,
    }
    answer = await kube.create(ACCESS_REVIEW, {"spec": spec})
    assert answer["status"]["allowed"] is allowed


async def test_empty_review_is_refused(kube: HttpKube) -> None:
    for kind, body in (
        (TOKEN_REVIEW, {}),
        (ACCESS_REVIEW, {"spec": {"user": "root"}}),
        (ACCESS_REVIEW, {"spec": {"resourceAttributes": {"verb": "get"}}}),
    ):
        with pytest.raises(RefusedError, match="Required value"):
            await kube.create(kind, body)


async def test_cluster_admin_may_do_everything(kube: HttpKube) -> None:
    attributes = {"verb": "delete", "group": "apps", "resource": "deployments"}
    spec = {"user": "root", "resourceAttributes": attributes}
    assert (await kube.create(ACCESS_REVIEW, {"spec": spec}))["status"]["allowed"] is True
