"""What the suite needs from a cluster beside the protocol that it tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shared.contracts.kube.kinds import CONFIG_MAP, WORKLOAD, Kind, Object
from shared.kube.client import HttpKube
from shared.kube.port import Kube, KubeError, WatchEvent
from shared.testing.waiting import PATIENCE_SECONDS

DEADLINE_SECONDS = PATIENCE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One cluster, and a namespace in it that is the test's own."""

    kube: Kube
    namespace: str
    forget: Callable[[], None] | None
    """Make all versions so far expire; None where nobody can say so and only the first ones have."""

    collects_garbage: bool = True
    small_pages: Callable[[int], HttpKube] | None = None
    """Another client with so many objects a page; None where there are no pages."""


def config_map(namespace: str, name: str, **data: str) -> Object:
    return {"metadata": {"namespace": namespace, "name": name}, "data": data}


def workload(namespace: str, name: str, **metadata: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "metadata": {"namespace": namespace, "name": name, **metadata},
        "spec": {
            "queueName": "q",
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


async def create(stage: Stage, *names: str, kind: Kind = CONFIG_MAP) -> list[Object]:
    make = workload if kind == WORKLOAD else config_map
    return [await stage.kube.create(kind, make(stage.namespace, name)) for name in names]


class Reading:
    """A watch that runs beside the test and is asked for its next event."""

    def __init__(self, events: AsyncIterator[WatchEvent]) -> None:
        self._events = events
        self._queue: asyncio.Queue[WatchEvent | KubeError | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for event in self._events:
                self._queue.put_nowait(event)
        except KubeError as error:
            self._queue.put_nowait(error)
        else:
            self._queue.put_nowait(None)

    async def next(self) -> tuple[str, str]:
        """Type and name of the next event that is no bookmark. Raises what the watch raised."""
        return (event := await self.event()).type, event.object["metadata"]["name"]

    async def event(self) -> WatchEvent:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                got = await self._queue.get()
                if isinstance(got, KubeError):
                    raise got
                assert got is not None, "the watch ended"
                if got.type != "BOOKMARK":
                    return got

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
