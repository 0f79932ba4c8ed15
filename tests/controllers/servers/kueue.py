"""Kueue's own manager, with its definitions, rights and webhooks, and its reconciler of Jobs."""

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import yaml

from services.ctl.dev.readiness import listens
from services.ctl.dev.supervisor import ChildSpec, Supervisor
from tests.controllers.programs import Programs
from tests.controllers.servers.client import Json, RequestError
from tests.controllers.servers.cluster import KUBECTL, Cluster, here, reached_at

NAMESPACE: Final = "kueue-system"
ACCOUNT: Final = "kueue-controller-manager"
SECRET: Final = "kueue-webhook-server-cert"
WEBHOOKS: Final = "apis/admissionregistration.k8s.io/v1"
PORT, HEALTH_PORT = 9443, 8281
START_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.5
OTHERS: Final = ("Deployment", "Service")
"""Kinds of the manifests that we have in another way."""


@asynccontextmanager
async def kueue(programs: Programs, cluster: Cluster) -> AsyncIterator[Supervisor]:
    """Install and run it; at the end stop it, and delete its webhooks as our guide says."""
    folder = cluster.folder / "kueue"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    documents = await asyncio.to_thread(_documents, programs.kueue)
    hooks = [one for one in documents if "webhooks" in one]
    await cluster.apply([one for one in documents if one["kind"] not in OTHERS])
    await cluster.apply([here("kueue-webhook-service", NAMESPACE)])
    (folder / "configuration.yaml").write_text(yaml.safe_dump(_configuration(certificates)))
    supervisor = Supervisor(logs=folder, say=lambda _text: None)
    mounting = asyncio.create_task(_mount(cluster, certificates))
    try:
        supervisor.start(
            ChildSpec(
                name="kueue",
                argv=(
                    str(programs.controllers / "kueue"),
                    f"--config={folder / 'configuration.yaml'}",
                    "--feature-gates=VisibilityOnDemand=false",
                ),
                environment={"KUBECONFIG": str(await cluster.account(NAMESPACE, ACCOUNT))},
                ready=listens(PORT),
            )
        )
        await supervisor.wait_ready(["kueue"], timeout_seconds=START_SECONDS)
        yield supervisor
    finally:
        mounting.cancel()
        await supervisor.stop()
        for configuration in hooks:
            resource = configuration["kind"].lower() + "s"
            path = f"{WEBHOOKS}/{resource}/{configuration['metadata']['name']}"
            with suppress(RequestError):
                await cluster.admin.call("DELETE", path)


def _documents(tree: Path) -> list[Json]:
    done = subprocess.run(
        [KUBECTL, "kustomize", tree / "config" / "default"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [reached_at(one, PORT) for one in yaml.safe_load_all(done.stdout)]


def _configuration(certificates: Path) -> Json:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{HEALTH_PORT}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": PORT, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["batch/job"]},
    }


async def _mount(cluster: Cluster, folder: Path) -> None:
    """Write the certificates that it stored in its Secret where a kubelet would mount them."""
    while True:
        with suppress(RequestError):
            secret = await cluster.admin.get("Secret", NAMESPACE, SECRET)
            for name, data in (secret.get("data") or {}).items():
                (folder / name).write_bytes(base64.b64decode(data))
        await asyncio.sleep(LOOK_SECONDS)
