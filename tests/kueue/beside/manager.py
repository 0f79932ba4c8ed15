"""A real Kueue manager as a process: its definitions, its webhooks and its configuration."""

import base64
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import trustme
import yaml

from shared.contracts.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_WEBHOOK,
    NAMESPACE,
    TOPOLOGY,
    VALIDATING_WEBHOOK,
    WORKLOAD,
    Kind,
    Object,
)
from shared.kube.client import HttpKube
from shared.kube.port import AlreadyExistsError
from shared.settings.ports import reserve_port
from shared.testing.waiting import eventually
from tests.contract.kubernetes.envtest import running
from tests.kueue.beside.clusters import Assets, Cluster

SYSTEM_NAMESPACE: Final = "kueue-system"
CONVERTED: Final = frozenset(
    {"clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"}
)
"""Kinds whose definitions name Kueue's webhook, as its kustomization does."""

WEBHOOK_KINDS: Final = frozenset(
    {"clusterqueues", "cohorts", "jobs", "resourceflavors", "workloads", "workloads/status"}
)
"""Resources whose webhooks are registered: the cluster has no others."""

ADDED_TO_ETC: Final = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t overlay overlay -o lowerdir="$0":/etc /etc && exec "$@"',
)
"""Runs a command that finds a folder's contents in /etc: Kueue looks for certificates of its metrics there,
unless it makes those of its webhook itself, which would not be for this address."""

LABELS: Final = {"app.kubernetes.io/name": "kueue"}


class Kueue:
    """Kueue on one cluster. Install it once; start and stop it as often as needed."""

    def __init__(self, assets: Assets, cluster: Cluster) -> None:
        self._assets = assets
        self._cluster = cluster
        self._folder = cluster.folder / "kueue"
        self._port, self._health = reserve_port(), reserve_port()
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        self._etc = self._folder / "etc"
        for folder in (self._folder, self._etc / "kueue/metrics/certs"):
            folder.mkdir(parents=True, exist_ok=True)
            certificate.cert_chain_pems[0].write_to_path(folder / "tls.crt")
            certificate.private_key_pem.write_to_path(folder / "tls.key")
        self._authority = base64.b64encode(authority.cert_pem.bytes()).decode()

    async def install(self) -> None:
        """Apply the definitions, with conversion by the webhook, and the namespace."""
        kube = self._cluster.kube
        await _create(kube, NAMESPACE, {"metadata": {"name": SYSTEM_NAMESPACE}})
        for path in sorted((self._assets.tree / "config/components/crd/bases").glob("*.yaml")):
            definition = yaml.safe_load(path.read_text())
            if definition["spec"]["names"]["plural"] in CONVERTED:
                client = self._client("/convert")
                definition["spec"]["conversion"] = {
                    "strategy": "Webhook",
                    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
                }
            await _create(kube, CUSTOM_RESOURCE_DEFINITION, definition)
        wanted = {(kind.group, kind.version, kind.plural) for kind in (TOPOLOGY, WORKLOAD)}

        async def served() -> bool:
            return wanted <= await kube.served()

        await eventually(served, look_seconds=0.2)

    @contextmanager
    def process(self, **configuration: Any) -> Iterator[None]:
        """Run the manager for as long as the context lasts; `configuration`: sections of its document."""
        document = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": SYSTEM_NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(self._folder)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {"VisibilityOnDemand": False},
            **configuration,
        }
        path = self._folder / "configuration.yaml"
        path.write_text(yaml.safe_dump(document))
        command = [
            *ADDED_TO_ETC,
            str(self._etc),
            str(self._assets.manager),
            f"--config={path}",
            f"--kubeconfig={self._cluster.kubeconfig}",
        ]
        with running(command, self._folder, "manager") as process:
            self._process = process
            yield

    async def ready(self) -> None:
        """Return once the webhook answers; then register it."""

        def answers() -> bool:
            assert self._process.poll() is None, self.log()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self._port)) == 0

        await eventually(answers, self.log, look_seconds=0.2)
        await self._register()

    def log(self) -> str:
        """The end of what the manager wrote."""
        return (self._folder / "manager.log").read_text(errors="replace")[-4000:]

    async def _register(self) -> None:
        path = self._assets.tree / "config/components/webhook/manifests.yaml"
        for document in yaml.safe_load_all(path.read_text()):
            webhooks = [
                {**hook, "clientConfig": self._client(hook["clientConfig"]["service"]["path"])}
                for hook in document["webhooks"]
                if _reviews_only(hook, WEBHOOK_KINDS)
            ]
            name = f"kueue-{document['metadata']['name']}"
            metadata = {"name": name, "labels": LABELS}
            is_mutating = document["kind"] == "MutatingWebhookConfiguration"
            kind = MUTATING_WEBHOOK if is_mutating else VALIDATING_WEBHOOK
            await _create(self._cluster.kube, kind, {"metadata": metadata, "webhooks": webhooks})

    def _client(self, path: str) -> dict[str, str]:
        return {"url": f"https://127.0.0.1:{self._port}{path}", "caBundle": self._authority}


def _reviews_only(hook: Mapping[str, Any], resources: frozenset[str]) -> bool:
    return all(resources.issuperset(rule["resources"]) for rule in hook["rules"])


async def _create(kube: HttpKube, kind: Kind, obj: Object) -> None:
    try:
        await kube.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **obj})
    except AlreadyExistsError:
        return
