"""Our services, each under its own ServiceAccount with the rights that the overlay `hub` renders."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from services.ctl.dev.app import BROKER, DevOptions, Running, running
from services.ctl.programs import SERVICES as PROGRAMS
from services.ctl.programs import Program
from tests.contract.deploy.rendering import kustomized
from tests.controllers.servers.cluster import SERVICES, Cluster

WITH_RIGHTS: Final = ("watcher", "patcher", "console")
NOBODY: Final = "nobody"
"""The account of services that ask nothing of Kubernetes: whatever they ask is refused, and noticed."""

APPLIED: Final = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
COMPONENTS: Final = ("recreation",)
RULES: Final = """\
queueName: main
cel:
  expressions:
  - |
    has(pipelineRun.metadata.labels) && 'example.test/priority' in pipelineRun.metadata.labels ?
      [priority(pipelineRun.metadata.labels['example.test/priority'])] : []
"""
KILLED: Final = (BROKER, *(program.value for program in PROGRAMS))


class System:
    """The running services."""

    def __init__(self, running_: Running, said: list[str]) -> None:
        self.running = running_
        self.said = said
        """What `sluice dev` said of them."""

        self.kills = dict.fromkeys(KILLED, 0)

    def kill(self, name: str) -> bool:
        """SIGKILL of one process; False if it does not run at the moment."""
        pid = self.running.supervisor.pid(name)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        self.kills[name] += 1
        return True

    def surprises(self) -> list[str]:
        """Processes that ended although nobody killed them."""
        starts = {name: self.running.supervisor.starts(name) for name in self.kills}
        return [
            f"{name} was started {count} times and killed {self.kills[name]} times"
            for name, count in starts.items()
            if count > 1 + self.kills[name]
        ]


async def install(cluster: Cluster) -> None:
    """Apply accounts and rights as they are rendered."""
    documents = kustomized("hub", COMPONENTS)
    await cluster.apply([one for one in documents if one["kind"] in APPLIED])


@asynccontextmanager
async def services(cluster: Cluster, folder: Path) -> AsyncIterator[System]:
    """Start everything; stop everything at the end. A second time it continues with what it had."""
    rules = folder / "rules"
    rules.mkdir(parents=True, exist_ok=True)
    (rules / "config.yaml").write_text(RULES)
    own = {name: await cluster.account(SERVICES, name) for name in (*WITH_RIGHTS, NOBODY)}

    def environment(program: Program) -> Mapping[str, str]:
        """As the deployments have it."""
        return {
            "SLUICE_KUBECONFIG": str(own.get(program.value, own[NOBODY])),
            "SLUICE_PATCHER_USERS": f'["system:serviceaccount:{SERVICES}:patcher"]',
            "SLUICE_EXCLUDED_NAMESPACES": f'["kube-*","{SERVICES}"]',
            "SLUICE_SEAL_NAMESPACE": SERVICES,
        }

    said: list[str] = []
    options = DevOptions(
        directory=folder,
        kubeconfig=cluster.kubeconfig,
        rules=rules,
        webhook=True,
        environment=environment,
    )
    async with running(options, said.append) as system:
        yield System(system, said)
