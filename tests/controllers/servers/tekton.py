"""Tekton Pipelines: its own manifests, and its webhook, controller and resolvers as processes.

Its webhook is behind a Service that names this machine: the API server asks there.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import yaml

from services.ctl.dev.readiness import listens
from services.ctl.dev.supervisor import ChildSpec, Supervisor
from tests.controllers.programs import Programs
from tests.controllers.servers.client import Json
from tests.controllers.servers.cluster import Cluster, here, reached_at

FOLDERS: Final = ("config/100-namespace", "config/300-crds", "config", "config/resolvers")
WEBHOOK_PORT: Final = 8443
START_SECONDS: Final = 300.0
PROGRAMS: Final = {
    "tekton-webhook": "tekton-pipelines-webhook",
    "tekton-controller": "tekton-pipelines-controller",
    "tekton-resolvers": "tekton-pipelines-remote-resolvers",
}
"""Program to its Deployment."""

PORTS: Final = {"tekton-webhook": 8181, "tekton-controller": 8182, "tekton-resolvers": 8183}
"""Program to where it says that it lives; its metrics are ten further."""


@asynccontextmanager
async def tekton(programs: Programs, cluster: Cluster) -> AsyncIterator[Supervisor]:
    """Install it and run it. The supervisor starts again what is killed."""
    documents = list(_documents(programs.tekton))
    await cluster.apply([one for one in documents if one["kind"] not in _RUN_BY_US])
    await cluster.apply([here("tekton-pipelines-webhook", "tekton-pipelines")])
    deployments = {one["metadata"]["name"]: one for one in documents if one["kind"] == "Deployment"}
    supervisor = Supervisor(logs=cluster.folder / "tekton", say=lambda _text: None)
    try:
        for program, name in PROGRAMS.items():
            deployment = deployments[name]
            template = deployment["spec"]["template"]["spec"]
            kubeconfig = await cluster.account(
                deployment["metadata"]["namespace"], template["serviceAccountName"]
            )
            port = PORTS[program]
            supervisor.start(
                ChildSpec(
                    name=program,
                    argv=(str(programs.controllers / program), *_arguments(program)),
                    environment={
                        **_environment(deployment),
                        "KUBECONFIG": str(kubeconfig),
                        "POD_NAME": program,
                        "PROBES_PORT": str(port),
                        "METRICS_PROMETHEUS_PORT": str(port + 10),
                        "WEBHOOK_PORT": str(WEBHOOK_PORT),
                    },
                    ready=listens(WEBHOOK_PORT if program == "tekton-webhook" else port),
                )
            )
        await supervisor.wait_ready(PROGRAMS, timeout_seconds=START_SECONDS)
        yield supervisor
    finally:
        await supervisor.stop()


_RUN_BY_US: Final = {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"}


def _documents(tree: Path) -> Iterator[Json]:
    """What the tree applies, in its order."""
    for folder in FOLDERS:
        for path in sorted((tree / folder).glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                if document:
                    yield reached_at(document, WEBHOOK_PORT)


def _environment(deployment: Json) -> dict[str, str]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    given.pop("SSL_CERT_FILE", None)  # It is mounted there.
    return {**given, "SYSTEM_NAMESPACE": deployment["metadata"]["namespace"]}


def _arguments(program: str) -> Iterator[str]:
    """Of the images nothing is run: their names only stand in pods."""
    if program != "tekton-controller":
        return
    for image in ("entrypoint", "nop", "sidecarlogresults", "workingdirinit", "shell"):
        yield from (f"-{image}-image", f"example.test/{image}")
    yield from ("-shell-image-win", "example.test/shell-win")
    yield from ("-kube-api-qps", "200", "-kube-api-burst", "400")
