"""A cluster, a bus and watchers in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from services.watcher.app import Watcher, assemble
from services.watcher.settings import WatcherSettings
from shared.bus.port import Entry
from shared.contracts.kube.kinds import JOB, Kind, Object
from shared.contracts.messages.observed import Observed
from shared.kube.port import Kube
from shared.testing.world.loop import VirtualLoop
from shared.testing.world.memory_bus import MemoryBus, MemoryServer

START = datetime(2026, 1, 1, tzinfo=UTC)


class Harness:
    """What a test needs. Make it inside the loop."""

    def __init__(self, *, max_payload: int = 4 << 20, seed: int = 1) -> None:
        self.server = MemoryServer(max_payload=max_payload)
        self.api = Api(now=now, random=Random(seed))
        self.kube = LocalKube(self.api)
        self.random = Random(seed)
        self._started = 0
        self._running: list[tuple[asyncio.Task[None], MemoryBus, LocalKube]] = []

    async def start(self, *, kube: Kube | None = None, namespaces: tuple[str, ...] = ()) -> Watcher:
        """One more watcher of the cluster."""
        self._started += 1
        bus = MemoryBus(self.server, instance=f"watcher-{self._started}")
        local = LocalKube(self.api)
        watcher = assemble(
            settings=WatcherSettings(cluster="hub", namespaces=namespaces),
            bus=bus,
            kube=local if kube is None else kube,
            now=now,
            random=self.random,
        )
        await bus.start()
        self._running.append((asyncio.create_task(watcher.run()), bus, local))
        return watcher

    async def kill(self) -> None:
        """End all watchers as SIGKILL would, as far as others can tell."""
        running, self._running = self._running, []
        for task, bus, kube in running:
            bus.crash()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await kube.close()

    def break_watches(self) -> None:
        for _, _, kube in self._running:
            kube.break_watches()

    def log(self) -> list[Entry]:
        """Everything on the log, oldest first."""
        stream = self.server.stream("OBSERVED")
        entries = []
        for sequence in sorted(stream.messages):
            stored = stream.messages[sequence]
            entries.append(
                Entry(
                    subject=stored.subject,
                    data=stored.data,
                    headers=stored.headers,
                    sequence=sequence,
                    time=stored.time,
                )
            )
        return entries

    def published(self, kind: Kind | None = None) -> list[Observed]:
        """Every observation on the log, oldest first."""
        entries = [entry for entry in self.log() if not entry.subject.endswith(".synced")]
        messages = [Observed.decode(entry.data, entry.headers) for entry in entries]
        return [one for one in messages if kind is None or one.plural == kind.plural]

    def synced(self) -> int:
        return sum(entry.subject.endswith(".synced") for entry in self.log())

    def view(self) -> dict[str, tuple[str, str]]:
        """Subject to uid and version of what exists, as any reader of the log would have it."""
        view: dict[str, tuple[str, str]] = {}
        for one in self.published():
            if one.deleted:
                view.pop(one.subject, None)
            else:
                view[one.subject] = (one.uid, one.resource_version)
        return view

    async def truth(self, *kinds: Kind) -> dict[str, tuple[str, str]]:
        """The same, as the cluster has it."""
        existing = {}
        for kind in kinds:
            for item in (await self.kube.list(kind)).items:
                metadata = item["metadata"]
                one = Observed(
                    cluster="hub",
                    group=kind.group,
                    version=kind.version,
                    plural=kind.plural,
                    kind=kind.kind,
                    namespace=metadata.get("namespace"),
                    name=metadata["name"],
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                )
                existing[one.subject] = (one.uid, one.resource_version)
        return existing

    async def job(self, name: str, **annotations: str) -> Object:
        return await self.kube.create(JOB, job(name, **annotations))

    async def touch(self, name: str, value: str) -> None:
        patch = {"metadata": {"labels": {"touched": value}}}
        await self.kube.patch(JOB, "default", name, patch)

    async def delete(self, name: str) -> None:
        await self.kube.delete(JOB, "default", name)


def now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def job(name: str, **annotations: str) -> Object:
    return {
        "metadata": {"namespace": "default", "name": name, "annotations": annotations},
        "spec": {
            "suspend": True,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
            },
        },
    }


def run_harness(drive: Callable[[Harness], Awaitable[None]], **harness: int) -> None:
    """Run `drive` in virtual time; nothing of it is left behind."""
    loop = VirtualLoop()

    async def run() -> None:
        here = Harness(**harness)
        try:
            await drive(here)
        finally:
            await here.kill()

    try:
        loop.run_until_complete(run())
    finally:
        loop.dispose()
