"""Plays scheduler and kubelet: pods run for as long as their annotation says, and end well."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from shared.contracts.kube.kinds import POD, Object
from shared.kube.client import HttpKube
from shared.kube.port import KubeError, NotFoundError

SECONDS: Final = "example.com/seconds"
"""Annotation of a pod: how long it runs. Without it, it runs until it is deleted."""

PAUSE_SECONDS: Final = 0.5


class PodRunner:
    """Runs the pods of one cluster. Remembers which ever ran."""

    def __init__(self, kube: HttpKube) -> None:
        self._kube = kube
        self._lives: dict[str, asyncio.Task[None]] = {}
        self.started: list[tuple[str, str]] = []
        """Namespace and job of each pod that began to run, in that order."""

        self.failures: list[BaseException] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run pods for as long as the context lasts."""
        follower = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            lives = [follower, *self._lives.values()]
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with suppress(KubeError):
                listing = await self._kube.list(POD)
                for pod in listing.items:
                    self._observe(pod)
                events = self._kube.watch(POD, resource_version=listing.resource_version)
                async for event in events:
                    self._observe(event.object)
            await asyncio.sleep(PAUSE_SECONDS)

    def _observe(self, pod: Object) -> None:
        metadata = pod.get("metadata") or {}
        uid = metadata.get("uid")
        if uid is None or uid in self._lives or metadata.get("deletionTimestamp"):
            return
        if (pod.get("spec") or {}).get("schedulingGates"):
            return  # It changes when its gates are gone.
        self._lives[uid] = asyncio.create_task(self._live(pod))

    async def _live(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            return
        labels = metadata.get("labels") or {}
        self.started.append((metadata["namespace"], labels.get("job-name", metadata["name"])))
        await self._say(pod, "Running", ready=True)
        seconds = (metadata.get("annotations") or {}).get(SECONDS)
        if seconds is None:
            return
        await asyncio.sleep(float(seconds))
        await self._say(pod, "Succeeded", ready=False)

    async def _say(self, pod: Object, phase: str, *, ready: bool) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = "True" if ready else "False"
        conditions = [
            {"type": type_, "status": status, "lastTransitionTime": at}
            for type_ in ("Ready", "ContainersReady")
        ]
        patch = {
            "metadata": {"uid": pod["metadata"]["uid"]},
            "status": {"phase": phase, "startTime": at, "conditions": conditions},
        }
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        with suppress(NotFoundError):
            await self._kube.patch(POD, namespace, name, patch, subresource="status")
