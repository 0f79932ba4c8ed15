"""A real API server with the Job controller, what the overlay `hub` applies, and jobs."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from services.ctl.dev.app import DevOptions, Running, running
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.conditions import is_true
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.kube.client import HttpKube
from shared.kube.port import NotFoundError
from shared.settings.environment import child_environment
from shared.testing.waiting import eventually, first_value
from tests.conformance.seeds.stage import job, pool
from tests.contract.deploy.rendering import KUBECTL, Json, kustomized
from tests.contract.kubernetes.clusters import some_cluster
from tests.contract.kubernetes.definitions import definition
from tests.contract.kubernetes.envtest import GARBAGE_COLLECTOR
from tests.e2e.operations.history import History, followed
from tests.kueue.beside.pods import PodRunner

CONTROLLERS: Final = (
    GARBAGE_COLLECTOR,
    "job-controller",
    "namespace-controller",
    "serviceaccount-controller",
)
TEAM: Final = "team-a"
QUEUE: Final = "main"
SERVICES: Final = "sluicegate"
FLAVOR_LABEL: Final = "pool"
FOREIGN: Final = "cert-manager.io"
"""Its definitions are not ours to apply, so its objects are left out."""

WEBHOOKS: Final = (kinds.MUTATING_WEBHOOK.kind, kinds.VALIDATING_WEBHOOK.kind)
SETTLE_SECONDS: Final = 5.0
"""A real API server cancels what runs on a custom kind while its definition is being taken in."""


@dataclass(slots=True, kw_only=True)
class Site:
    """The cluster, as somebody who may do everything sees it."""

    kubeconfig: Path
    kube: HttpKube
    history: History
    folder: Path

    async def kubectl(self, *arguments: str, documents: Iterable[Json] = ()) -> str:
        """What it wrote. `documents` are its input."""
        command = (str(KUBECTL), "--kubeconfig", str(self.kubeconfig), *arguments)
        status, said = await told(command, yaml.safe_dump_all(documents))
        assert status == 0, said
        return said

    async def apply(self, documents: Iterable[Json]) -> str:
        """As docs/how-to/upgrade.md applies the manifests, which `test_on_cluster.py` validates."""
        return await self.kubectl(
            *("apply", "--server-side", "--force-conflicts", "--validate=ignore", "-f", "-"),
            documents=documents,
        )

    async def sluice(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output of a command that works on this cluster."""
        return await told((*SLUICE, *arguments, "--kubeconfig", str(self.kubeconfig)))

    @asynccontextmanager
    async def services(self, nats_url: str | None = None) -> AsyncIterator[Running]:
        """All services with the webhook, each a process. A second time they go on with what is there."""
        rules = self.folder / "rules"
        rules.mkdir(exist_ok=True)
        (rules / "config.yaml").write_text(f"queueName: {QUEUE}\n")
        options = DevOptions(
            directory=self.folder / "dev",
            nats_url=nats_url,
            kubeconfig=self.kubeconfig,
            rules=rules,
            webhook=True,
        )
        async with running(options, lambda _text: None) as system:
            yield system

    async def create_queue(self, cpu: int, name: str = QUEUE, **spec: Any) -> None:
        """A queue of so many CPUs, whose flavor has a node label."""
        for obj in pool(name, {"cpu": cpu, "tekton.dev/pipelineruns": 1}, **spec):
            if obj["kind"] == kinds.RESOURCE_FLAVOR.kind:
                obj["spec"]["nodeLabels"] = {FLAVOR_LABEL: "first"}
            await self.apply([obj])

    async def create_jobs(self, *names: str, queue: str | None = QUEUE) -> None:
        """Jobs of one CPU, that run until somebody ends them."""
        for name in names:
            await self.kube.create(kinds.JOB, job(name, queue, {"cpu": 1}))

    async def job(self, name: str) -> Body:
        return await self.kube.get(kinds.JOB, TEAM, name)

    async def suspended(self, *names: str) -> list[bool]:
        """Of each Job, whether it is."""
        return [bool(spec_of(await self.job(name)).get("suspend")) for name in names]

    async def until_runs(self, *names: str) -> None:
        """Return once each of the Jobs has an active pod."""
        for name in names:

            async def runs(name: str = name) -> bool:
                return bool((await self.job(name)).get("status", {}).get("ready"))

            await eventually(runs, f"Job {name} does not run", look_seconds=0.2)

    async def workload(self, name: str, kind: Kind = kinds.JOB) -> Body:
        """The Workload of a job. Raises NotFoundError."""
        owner = await self.kube.get(kind, TEAM, name)
        named = workload_name(
            kind=kind.kind, group=kind.group, name=name, uid=owner["metadata"]["uid"]
        )
        return await self.kube.get(kinds.WORKLOAD, TEAM, named)

    async def until_workload(
        self, name: str, condition: str, kind: Kind = kinds.JOB, *, status: str = "True"
    ) -> Body:
        """The Workload of a job once it has a condition of that status."""

        async def found() -> Body | None:
            try:
                workload = await self.workload(name, kind)
            except NotFoundError:
                return None
            conditions = (workload.get("status") or {}).get("conditions") or []
            said = {one["type"]: one["status"] for one in conditions}
            return workload if said.get(condition) == status else None

        return await first_value(found, f"{name} is not {condition}={status}", look_seconds=0.2)

    async def end(self, *names: str) -> None:
        """Let the pods of these Jobs succeed, and return once the Jobs are complete."""
        for name in names:
            listing = await self.kube.list(kinds.POD, namespace=TEAM, labels=f"job-name={name}")
            for pod in listing.items:
                patch = {"status": {"phase": "Succeeded"}}
                await self.kube.patch(
                    kinds.POD, TEAM, pod["metadata"]["name"], patch, subresource="status"
                )

            async def complete(name: str = name) -> bool:
                return is_true(await self.job(name), "Complete")

            await eventually(complete, f"Job {name} is not complete", look_seconds=0.2)

    async def reserved(self, queue: str = QUEUE) -> tuple[str, int]:
        """CPUs that a ClusterQueue says are reserved, and how many workloads it says are admitted."""
        status: Object = (await self.kube.get(kinds.CLUSTER_QUEUE, None, queue)).get("status") or {}
        cpu = [
            resource["total"]
            for flavor in status.get("flavorsReservation") or ()
            for resource in flavor["resources"]
            if resource["name"] == "cpu"
        ]
        return (cpu or ["0"])[0], int(status.get("admittedWorkloads") or 0)

    async def names(self, kind: Kind, **chosen: str) -> set[str]:
        return {one["metadata"]["name"] for one in (await self.kube.list(kind, **chosen)).items}


SLUICE: Final = (sys.executable, "-m", "services.ctl.main")


async def told(command: tuple[str, ...], given: str = "") -> tuple[int, str]:
    """Exit status and output of a command."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=child_environment({}),
    )
    said, _ = await process.communicate(given.encode())
    assert process.returncode is not None
    return process.returncode, said.decode()


def manifests(*, webhooks: bool = True) -> list[Json]:
    """What `kubectl apply -k deploy/kubernetes/overlays/hub` applies, apart from cert-manager's objects."""
    return [
        one
        for one in kustomized("hub", definitions=True)
        if not one["apiVersion"].startswith(FOREIGN) and (webhooks or one["kind"] not in WEBHOOKS)
    ]


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    """Start it, with our definitions and Tekton's PipelineRun; end everything afterwards."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(some_cluster(folder, CONTROLLERS))
        kube = HttpKube.from_kubeconfig(str(server.kubeconfig))
        stack.push_async_callback(kube.close)
        for namespace in (TEAM, SERVICES):
            await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
        history = await stack.enter_async_context(followed(kube, TEAM))
        await stack.enter_async_context(PodRunner(kube).running())
        made = Site(kubeconfig=server.kubeconfig, kube=kube, history=history, folder=folder)
        # `sluice dev` registers the webhook itself, at an address of this machine.
        everything = manifests(webhooks=False)
        first = [one for one in everything if one["kind"] == kinds.CUSTOM_RESOURCE_DEFINITION.kind]
        await made.apply(first)
        await kube.create(kinds.CUSTOM_RESOURCE_DEFINITION, definition(kinds.PIPELINE_RUN))
        await made.kubectl("wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")
        await asyncio.sleep(SETTLE_SECONDS)
        await made.apply([one for one in everything if one not in first])
        yield made
