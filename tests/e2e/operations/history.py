"""Everything that an API server said of the jobs of a test, in the order of its versions."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.conditions import is_true
from shared.contracts.kube.kinds import JOB, POD, Kind
from shared.kube.client import HttpKube
from shared.kube.port import KubeError

AGAIN_SECONDS: Final = 0.2


@dataclass(slots=True)
class History:
    """Changes of Jobs and pods."""

    jobs: list[Body] = field(default_factory=list)
    pods: list[Body] = field(default_factory=list)
    """Every version of every object, the oldest first."""

    gone: set[str] = field(default_factory=set)
    """uids of what was deleted."""

    gaps: int = 0
    """Watches that could not go on where the last one ended."""

    def stops(self) -> list[str]:
        """Jobs that were suspended after they had been let go, by name: each counts."""
        was: dict[str, bool] = {}
        found = []
        for job in self.jobs:
            uid, suspended = job["metadata"]["uid"], bool(spec_of(job).get("suspend"))
            if suspended and was.get(uid) is False:
                found.append(job["metadata"]["name"])
            was[uid] = suspended
        return found

    def running(self) -> Iterator[set[str]]:
        """After each change of a Job: the names of those that nothing holds, and that have not ended."""
        now: set[str] = set()
        for job in self.jobs:
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            is_let_go = not spec_of(job).get("suspend") and not is_true(job, "Complete", "Failed")
            is_last = uid in self.gone and job is self.last(uid)
            now = now | {name} if is_let_go and not is_last else now - {name}
            yield now

    def last(self, uid: str) -> Body:
        """The last version of a Job."""
        found: Body = next(job for job in reversed(self.jobs) if job["metadata"]["uid"] == uid)
        return found

    def pods_of(self, job: str) -> set[str]:
        """uids of all pods that a Job ever had."""
        return {
            pod["metadata"]["uid"]
            for pod in self.pods
            if (pod["metadata"].get("labels") or {}).get("job-name") == job
        }


@asynccontextmanager
async def followed(kube: HttpKube, namespace: str) -> AsyncIterator[History]:
    """Note all changes in a namespace for as long as the context lasts."""
    history = History()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_follow(kube, kind, namespace, history, into))
            for kind, into in ((JOB, history.jobs), (POD, history.pods))
        ]
        yield history
        for task in tasks:
            task.cancel()


async def _follow(
    kube: HttpKube, kind: Kind, namespace: str, history: History, into: list[Body]
) -> None:
    version = (await kube.list(kind, namespace=namespace)).resource_version
    while True:
        try:
            async for event in kube.watch(kind, resource_version=version, namespace=namespace):
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    into.append(event.object)
                if event.type == "DELETED":
                    history.gone.add(event.object["metadata"]["uid"])
        except KubeError:
            history.gaps += 1
            with suppress(KubeError):
                version = (await kube.list(kind, namespace=namespace)).resource_version
        await asyncio.sleep(AGAIN_SECONDS)
