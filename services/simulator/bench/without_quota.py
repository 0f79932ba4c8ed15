"""Admits every Workload at once, without quota: the lower bound T0 of any admission controller.

T0 is the time that API server and runner alone need. Kueue's scalability runner ends when the
queues report no admitted workloads, so their statuses are written, too.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Final

from services.simulator.bench.writer import Writer, is_true
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import CLUSTER_QUEUE, WORKLOAD
from shared.kube.port import Kube
from shared.kube.reflector import Changed, Listed, Reflector, Unserved

WRITERS: Final = 32
"""Concurrent writes."""

QUEUES_SECONDS: Final = 2.0
"""Between two updates of the queues' statuses."""

ACTIVE: Final = {
    "type": "Active",
    "status": "True",
    "reason": "Ready",
    "message": "By test runner",
    "lastTransitionTime": "2000-01-01T00:00:00Z",
}


async def admit_without_quota(kube: Kube, writer: Writer) -> None:
    """Admit all waiting workloads, until cancelled."""
    waiting: asyncio.Queue[Body] = asyncio.Queue()
    unfinished: set[str] = set()

    async def write() -> None:
        while True:
            await writer.admit(await waiting.get())

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(write())
        group.create_task(_keep_queues(kube, unfinished))
        answered: set[str] = set()
        async with aclosing(_seen(kube)) as workloads:
            async for workload in workloads:
                uid = workload["metadata"]["uid"]
                if is_true(workload, "Finished"):
                    unfinished.discard(uid)
                elif uid not in answered and not is_true(workload, "QuotaReserved"):
                    answered.add(uid)
                    unfinished.add(uid)
                    waiting.put_nowait(workload)


async def _keep_queues(kube: Kube, unfinished: set[str]) -> None:
    """Write to all queues whether any workload is admitted; which queue does not matter."""
    while True:
        await asyncio.sleep(QUEUES_SECONDS)
        status = {"reservingWorkloads": min(1, len(unfinished)), "conditions": [ACTIVE]}
        for queue in (await kube.list(CLUSTER_QUEUE)).items:
            before = (queue.get("status") or {}).get("reservingWorkloads")
            if before != status["reservingWorkloads"]:
                name = queue["metadata"]["name"]
                await kube.patch(
                    CLUSTER_QUEUE, None, name, {"status": status}, subresource="status"
                )


async def _seen(kube: Kube) -> AsyncGenerator[Body, None]:
    reflector = Reflector(kube=kube, kind=WORKLOAD, random=Random(0))
    async with aclosing(reflector.run()) as reflections:
        async for reflection in reflections:
            match reflection:
                case Listed():
                    for item in reflection.items:
                        yield item
                case Changed():
                    yield reflection.object
                case Unserved():
                    raise RuntimeError("this cluster has no Workload objects")
                case _:
                    pass
