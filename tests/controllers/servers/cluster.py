"""A cluster with real controllers, and the accounts of those who use it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from tests.contract.kubernetes.envtest import ApiServer, api_server, client_context
from tests.controllers.judge.history import History, follow
from tests.controllers.programs import Programs
from tests.controllers.servers import node
from tests.controllers.servers.client import Client, Json, path_of
from tests.controllers.servers.node import Node

KUBECTL: Final = Path(sys.executable).with_name("kubectl")
ERROR_CHARACTERS: Final = 2000
PLUGIN: Final = "OwnerReferencesPermissionEnforcement"
SERVICES: Final = "sluicegate"
"""The namespace of our services."""

USERS: Final = "users"
TENANT: Final = "tenant"
"""A service account with the role `edit` of the whole cluster, and no more."""

WATCHED: Final = ("Job", "Pod", "Workload", "ClusterQueue", "PipelineRun", "TaskRun")
CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
)
AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{SERVICES}"]},
        {"level": "None"},
    ],
}


@dataclass(slots=True, kw_only=True)
class Cluster:
    """What runs, and who may ask."""

    server: ApiServer
    folder: Path
    admin: Client
    history: History
    node: Node
    _audit: Path
    _clients: list[Client] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def kubeconfig(self) -> Path:
        """Of whoever may do everything."""
        return self.server.kubeconfig

    async def token(self, namespace: str, account: str) -> str:
        """Of a service account that exists."""
        path = f"{path_of('ServiceAccount', namespace, account)}/token"
        spec = {"expirationSeconds": 24 * 3600}
        answer = await self.admin.call(
            "POST",
            path,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        return str(answer["status"]["token"])

    async def user(self, namespace: str, account: str) -> Client:
        """Requests as a service account."""
        token = await self.token(namespace, account)
        client = Client(self.server.url, client_context(self.folder), token=token)
        self._clients.append(client)
        return client

    async def account(self, namespace: str, account: str) -> Path:
        """A kubeconfig of a service account, which is made if it is not there."""
        obj = {"metadata": {"name": account, "namespace": namespace}}
        await self.apply([{"apiVersion": "v1", "kind": "ServiceAccount", **obj}])
        document = yaml.safe_load(self.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": await self.token(namespace, account)}
        path = self.folder / f"{namespace}-{account}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    async def apply(self, documents: list[Json]) -> None:
        """Apply manifests, whoever else owns their fields."""
        await asyncio.to_thread(self._apply, yaml.safe_dump_all(documents))

    def _apply(self, text: str) -> None:
        command = [str(KUBECTL), "--kubeconfig", str(self.kubeconfig)]
        command += ["apply", "--server-side", "--force-conflicts", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-ERROR_CHARACTERS:]

    async def restart(self) -> None:
        """Kill the API server, as ``kill -9`` does, and start it again."""
        await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)

    def requests(self) -> Iterator[Json]:
        """What the service accounts of our namespace asked, from the API server's own audit log."""
        with self._audit.open() as lines:
            for line in lines:
                yield json.loads(line)

    def watch(self, kinds: Iterable[str]) -> None:
        """Enter every change of these kinds into the history, from now on."""
        for kind in kinds:
            self._tasks.append(asyncio.create_task(follow(self.admin, self.history, kind)))

    async def close(self) -> None:
        """End the watches, and close the connections of all users."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def cluster(programs: Programs, folder: Path) -> AsyncIterator[Cluster]:
    """Start it, with a node and an observer; stop all of it at the end."""
    policy, audit = folder / "audit.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(AUDIT))
    audit.touch()
    flags = [
        f"--enable-admission-plugins={PLUGIN}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit}",
        "--etcd-compaction-interval=0",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
    ]
    manager_flags = [
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={folder / 'server.key'}",
        f"--root-ca-file={folder / 'ca.pem'}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
    async with AsyncExitStack() as stack:
        server = stack.enter_context(
            api_server(
                programs.servers,
                folder,
                flags=flags,
                controllers=CONTROLLERS,
                manager_flags=manager_flags,
            )
        )
        admin = Client(server.url, client_context(folder))
        stack.push_async_callback(admin.close)
        running = Cluster(
            server=server,
            folder=folder,
            admin=admin,
            history=History(),
            node=Node(admin),
            _audit=audit,
        )
        stack.push_async_callback(running.close)
        await admin.create("Node", {"metadata": {"name": node.NAME}})
        await running.apply(_users())
        running.watch(WATCHED)
        playing = asyncio.create_task(running.node.run())
        try:
            yield running
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            with (folder / "history.jsonl").open("w") as out:
                running.history.write(out)


def reached_at(document: Json, port: int) -> Json:
    """Name the port of a process of ours wherever the API server is to ask a webhook of the manifests."""
    hooks = document.get("webhooks") or []
    if document["kind"] == "CustomResourceDefinition":
        conversion = document["spec"].get("conversion") or {}
        hooks = [conversion["webhook"]] if "webhook" in conversion else []
    for hook in hooks:
        hook["clientConfig"]["service"]["port"] = port
    return document


def here(name: str, namespace: str) -> Json:
    """A Service that leads to this machine: the API server asks the webhooks behind it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
    }


def _users() -> list[Json]:
    """Namespaces and accounts. `edit` lets its user write Jobs; Tekton adds its own kinds to it."""
    group = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": TENANT, "namespace": USERS}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SERVICES}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": USERS}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": TENANT, "namespace": USERS},
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": TENANT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
            "subjects": [account],
        },
    ]
