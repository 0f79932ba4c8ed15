"""Attacks of a tenant on a real API server, with the webhook as it is deployed (T1); all side by side.

KUBEBUILDER_ASSETS names the folder with the servers, as for `make test-cluster`. There is no controller: a
player says of what is not held that it runs, as Tekton and the Job controller do. Every object belongs to the
row whose number its name begins with; what runs without a Workload that has quota is a breach of that row.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from services.ctl.dev.app import DevOptions, running
from services.simulator.scenarios.system import RULES
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import has_status
from shared.contracts.kube.kinds import Object
from shared.integrations import JOB, JOB_SET, PIPELINE_RUN, Integration
from shared.kube.client import HttpKube
from shared.kube.port import KubeError
from shared.testing.waiting import eventually
from tests.attacks import tenants
from tests.attacks.attack import Attack
from tests.attacks.field import OTHERS, TENANT, Act, Field, work
from tests.attacks.ground import BreachError
from tests.conformance.seeds.stage import Stage, pool
from tests.contract.kubernetes.definitions import CUSTOM_RESOURCE_DEFINITION, definition
from tests.contract.kubernetes.envtest import api_server, found
from tests.e2e.cluster_player import job_started, job_stopped, run_started, stamp

KINDS: Final = {"Job": JOB, "JobSet": JOB_SET, "PipelineRun": PIPELINE_RUN}
QUEUES: Final = {"Job": "own", "JobSet": "sets", "PipelineRun": "pipelines-queue"}
LOOK_SECONDS: Final = 0.5
STOP_SECONDS: Final = 60.0
"""So long after the last attack may something run that nobody admitted."""

SIDE_BY_SIDE: Final = 40
MADE_BY_JOBSETS: Final = "as a child of its admitted JobSet"
"""A Job runs on the quota of a JobSet as far as that goes: it is no breach that it has no Workload."""

Row = tuple[str, str, Act]
"""Words, kind and what the tenant does."""


def rows() -> Iterator[Row]:
    """What is tried."""
    for kind in KINDS:
        for words, variant in tenants.VARIANTS.items():
            if (kind, words) != ("Job", MADE_BY_JOBSETS):
                yield f"starts a waiting {kind} {words}", kind, tenants.starting(kind, variant)
            if words != "as it is":
                yield f"changes a running {kind}: {words}", kind, tenants.releasing(kind, variant)


def attacks() -> Iterator[Attack]:
    """The rows, where there are servers to run."""
    if found(os.environ.get("KUBEBUILDER_ASSETS")) is not None:
        for words, _, _ in rows():
            yield Attack(threat="T1", way=f"tenant {words}, on a real API server", siege=words)


async def siege() -> dict[str, str]:
    """Play all rows at once; the breaches, by words."""
    assets = found(os.environ.get("KUBEBUILDER_ASSETS"))
    assert assets is not None
    with tempfile.TemporaryDirectory(prefix="siege-", ignore_cleanup_errors=True) as directory:
        folder = Path(directory)
        (folder / "rules").mkdir()
        (folder / "rules" / "config.yaml").write_text(RULES)
        with api_server(assets, folder) as server:
            kube = HttpKube.from_kubeconfig(str(server.kubeconfig))
            try:
                await _define(kube)
                options = DevOptions(
                    directory=folder / "dev",
                    kubeconfig=server.kubeconfig,
                    rules=folder / "rules",
                    webhook=True,
                    processes=False,
                )
                async with running(options, _say), _controllers(kube):
                    return await _Siege(kube).play()
            finally:
                await kube.close()


def _say(_text: str) -> None:
    """The logs say more."""


async def _define(kube: HttpKube) -> None:
    served_by_others = (kinds.PIPELINE_RUN, kinds.TASK_RUN, JOB_SET.kind)
    for kind in served_by_others:
        await kube.create(CUSTOM_RESOURCE_DEFINITION, definition(kind))

    async def served() -> bool:
        wanted = {(kind.group, kind.version, kind.plural) for kind in served_by_others}
        return wanted <= await kube.served()

    await eventually(served)


class _ClusterField(Field):
    """What one row has. Its objects are named after it; nobody restarts a service that all rows share."""

    def __init__(self, kube: HttpKube, number: int) -> None:
        world = SimpleNamespace(crash=lambda *_, **__: None)
        api = SimpleNamespace(kinds=(JOB_SET.kind,))
        parts = SimpleNamespace(kube=kube, api=api, world=world)
        super().__init__(Stage(cast("Any", parts)))
        self._kube, self.prefix = kube, f"r{number}-"

    async def waiting(self, kind: str, name: str = "waits", **metadata: Any) -> Object:
        return await super().waiting(kind, f"{self.prefix}{name}", **metadata)

    async def delete(
        self,
        obj: Object,
        propagation: str = "Background",  # noqa: ARG002
        grace_seconds: int | None = None,  # noqa: ARG002
    ) -> None:
        metadata = obj["metadata"]
        with suppress(KubeError):
            await self._kube.delete(self.stage.kind(obj), metadata["namespace"], metadata["name"])


class _Siege:
    def __init__(self, kube: HttpKube) -> None:
        self._kube = kube
        self._rows = list(rows())
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)
        self._stage = _ClusterField(kube, 0).stage

    async def play(self) -> dict[str, str]:
        """Everything runs before the first attack: what one row gives away another would take."""
        fields = await self._furnish()
        got = await asyncio.gather(*(self._row(number, field) for number, field in fields.items()))
        breaches = {words: text for words, text in got if text}
        return breaches | await self._judge()

    async def _furnish(self) -> dict[int, _ClusterField]:
        """Queues that are full: of the tenant's own, and one of others."""
        stage = self._stage
        for kind, queue in QUEUES.items():
            resource = "tekton.dev/pipelineruns" if kind == "PipelineRun" else "cpu"
            many = 1 + sum(of == kind and _changes(words) for words, of, _ in self._rows)
            await stage.create(*pool(queue, {resource: many}, namespaces=(TENANT, OTHERS)))
        await stage.create(*pool("full", {"cpu": 1}, namespaces=(TENANT, OTHERS)))
        made = [await stage.create(work("Job", "honest", "full", namespace=OTHERS))]
        shared = await self._running(_ClusterField(self._kube, 0), *KINDS)
        made += shared.values()
        fields = {}
        for number, (words, kind, _) in enumerate(self._rows, 1):
            fields[number] = field = _ClusterField(self._kube, number)
            field.running = dict(shared)
            if _changes(words):
                field.running |= await self._running(field, kind)
                made.append(field.running[kind])
        await eventually(lambda: stage.is_admitted(*made))
        return fields

    async def _running(self, field: _ClusterField, *of: str) -> dict[str, Object]:
        name = f"{field.prefix}runs"
        return {kind: await field.create(work(kind, name, QUEUES[kind])) for kind in of}

    async def _row(self, number: int, field: _ClusterField) -> tuple[str, str]:
        words, _, act = self._rows[number - 1]
        async with self._room:
            try:
                await act(field)
            except BreachError as breach:
                return words, str(breach)
            return words, ""

    async def _judge(self) -> dict[str, str]:
        """What runs uncounted, once everything had time to be stopped."""
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        while True:
            uncounted = await self._uncounted()
            if not uncounted or asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(LOOK_SECONDS)
        breaches: dict[str, str] = {}
        for name in uncounted:
            number = int(name.rpartition("/")[2].removeprefix("r").partition("-")[0])
            words = self._rows[number - 1][0] if number else self._rows[0][0]
            breaches[words] = f"{name} runs, and no Workload of it has quota"
        return breaches

    async def _uncounted(self) -> list[str]:
        counted = {
            owner["uid"]
            for workload in (await self._kube.list(kinds.WORKLOAD, namespace=TENANT)).items
            if has_status(workload, "QuotaReserved", "True")
            for owner in workload["metadata"].get("ownerReferences") or ()
        }
        return [
            f"{obj['kind']} {obj['metadata']['name']}".replace(" ", "/")
            for integration in KINDS.values()
            for obj in await _all(self._kube, integration)
            if _runs(integration, obj) and obj["metadata"]["uid"] not in counted
        ]


def _changes(words: str) -> bool:
    return words.startswith("changes")


async def _all(kube: HttpKube, integration: Integration) -> list[Object]:
    listed = (await kube.list(integration.kind, namespace=TENANT)).items
    return [{**obj, "kind": integration.kind.kind} for obj in listed]


def _runs(integration: Integration, obj: Object) -> bool:
    ended = integration.finish(obj) is not None or "deletionTimestamp" in obj["metadata"]
    return not (ended or integration.held(obj))


@asynccontextmanager
async def _controllers(kube: HttpKube) -> AsyncIterator[None]:
    task = asyncio.create_task(_control(kube))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _control(kube: HttpKube) -> None:
    """Say of Jobs and PipelineRuns what their controllers would."""
    while True:
        for integration in (JOB, PIPELINE_RUN):
            with suppress(KubeError):
                for obj in (await kube.list(integration.kind)).items:
                    if (status := _status_of(integration, obj)) is not None:
                        await _write(kube, integration, obj, status)
        await asyncio.sleep(LOOK_SECONDS)


def _status_of(integration: Integration, obj: Object) -> Object | None:
    started = bool((obj.get("status") or {}).get("startTime"))
    if integration.finish(obj) is not None:
        return None
    if integration.held(obj):
        return job_stopped(obj) if started and integration is JOB else None
    if integration is PIPELINE_RUN and str(obj["spec"].get("status", "")).startswith("Cancel"):
        ended = {"type": "Succeeded", "status": "False", "reason": "Cancelled", "message": ""}
        return {"completionTime": stamp(), "conditions": [{**ended, "lastTransitionTime": stamp()}]}
    if started:
        return None
    return job_started(obj) if integration is JOB else run_started(obj)


async def _write(kube: HttpKube, integration: Integration, obj: Object, status: Object) -> None:
    metadata = obj["metadata"]
    patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
    with suppress(KubeError):
        await kube.patch(
            integration.kind, metadata["namespace"], metadata["name"], patch, subresource="status"
        )
