"""Stock Kueue, as far as the other side of MultiKueue sees it: by the objects that it reads and writes.

`StockSpoke` is what runs on a worker cluster, `StockHub` the manager's MultiKueue controller. Each knows the
documented objects, labels and conditions, and nothing of Sluicegate.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.integrations import JOB
from shared.kube.port import Kube, NotFoundError

__all__ = ["NAMESPACE", "ORIGIN", "PREBUILT", "StockHub", "StockSpoke", "conditions_of"]

NAMESPACE: Final = "team-a"
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
LOOK_SECONDS: Final = 1.0

HAS_QUOTA: Final = {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted")}
HAS_NONE: Final = {"QuotaReserved": ("False", "Pending"), "Admitted": ("False", "NoReservation")}


def conditions_of(workload: Object) -> dict[str, str]:
    """Type of each condition to its status."""
    found = (workload.get("status") or {}).get("conditions") or []
    return {one["type"]: one["status"] for one in found}


class _Actor:
    def __init__(self, kube: Kube, now: Callable[[], datetime], *, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self._now = now

    async def say(self, workload: Object, said: dict[str, tuple[str, str]], **status: Any) -> None:
        """Set conditions of a Workload, each to a status with a reason."""
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        known = {c["type"]: c for c in (workload.get("status") or {}).get("conditions") or []}
        for type_, (value, reason) in said.items():
            told = {"type": type_, "status": value, "reason": reason, "message": "by Kueue"}
            known[type_] = {**told, "lastTransitionTime": at}
        patch = {"status": {**status, "conditions": list(known.values())}}
        name = workload["metadata"]["name"]
        await self.kube.patch(kinds.WORKLOAD, self.namespace, name, patch, subresource="status")

    async def get(self, kind: kinds.Kind, name: str) -> Object | None:
        try:
            return await self.kube.get(kind, self.namespace, name)
        except NotFoundError:
            return None


class StockSpoke(_Actor):
    """Kueue on a worker cluster: one slot for each Workload that it admits."""

    def __init__(
        self, kube: Kube, now: Callable[[], datetime], *, slots: int, namespace: str = NAMESPACE
    ) -> None:
        super().__init__(kube, now, namespace=namespace)
        self.slots = slots
        self.admitted: list[str] = []
        """Every Workload that ever got a slot, in that order."""

        self.jobs_without: list[str] = []
        """Jobs that came before their Workload had quota: MultiKueue makes none."""

    async def live(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Once at everything."""
        for workload in (await self.kube.list(kinds.WORKLOAD, namespace=self.namespace)).items:
            await self._queue(workload)
        for job in (await self.kube.list(kinds.JOB, namespace=self.namespace)).items:
            await self._reconcile(job)

    async def evict(self, name: str) -> None:
        """A more important one of this cluster takes the slot."""
        workload = await self.kube.get(kinds.WORKLOAD, self.namespace, name)
        self.slots -= 1
        await self.say(workload, {"Evicted": ("True", "Preempted"), **HAS_NONE}, admission=None)

    @staticmethod
    def workload_of(job: Object) -> str:
        """The Workload that a job names by annotation, or else by label."""
        metadata = job["metadata"]
        marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        return str(marks.get(PREBUILT, ""))

    async def _queue(self, workload: Object) -> None:
        conditions = conditions_of(workload)
        if conditions.get("QuotaReserved") == "True" or conditions.get("Finished") == "True":
            return
        if await self._held() >= self.slots or workload["metadata"].get("deletionTimestamp"):
            return
        name = workload["metadata"]["name"]
        self.admitted.append(name)
        sets = [{"name": one["name"], "count": one["count"]} for one in workload["spec"]["podSets"]]
        admission = {"clusterQueue": "kueues-own", "podSetAssignments": sets}
        await self.say(workload, HAS_QUOTA, admission=admission)

    async def _held(self) -> int:
        listing = await self.kube.list(kinds.WORKLOAD, namespace=self.namespace)
        return sum(
            conditions_of(one).get("QuotaReserved") == "True"
            and conditions_of(one).get("Finished") != "True"
            for one in listing.items
        )

    async def _reconcile(self, job: Object) -> None:
        """A job with a prebuilt Workload takes that as its own, and runs while it is admitted."""
        metadata = job["metadata"]
        workload = await self.get(kinds.WORKLOAD, self.workload_of(job))
        if workload is None or metadata.get("deletionTimestamp"):
            return  # Without its Workload it stays suspended.
        if not workload["metadata"].get("ownerReferences"):
            owner: Object = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"]}
            owners = [{**owner, "uid": metadata["uid"], "controller": True}]
            patch = {"metadata": {"ownerReferences": owners}}
            await self.kube.patch(
                kinds.WORKLOAD, self.namespace, workload["metadata"]["name"], patch
            )
        admitted = conditions_of(workload).get("Admitted") == "True"
        if not admitted and metadata["name"] not in self.jobs_without:
            self.jobs_without.append(metadata["name"])
        finish = JOB.finish(job)
        if finish is not None:
            if conditions_of(workload).get("Finished") != "True":
                reason = "Succeeded" if finish.success else "Failed"
                await self.say(workload, {"Finished": ("True", reason)})
        elif bool(job["spec"].get("suspend")) is admitted:
            released: Object = {"spec": {"suspend": not admitted}}
            await self.kube.patch(kinds.JOB, self.namespace, metadata["name"], released)


class StockHub(_Actor):
    """The manager's controller: mirrors a Workload, then its job, and copies the status back."""

    def __init__(
        self,
        kube: Kube,
        now: Callable[[], datetime],
        *,
        origin: str = "multikueue",
        names_in: str = "labels",
    ) -> None:
        """`kube`: of the worker cluster; `names_in`: where jobs name their Workload."""
        super().__init__(kube, now, namespace=NAMESPACE)
        self._labels = {ORIGIN: origin}
        self._names_in = names_in

    async def mirror(self, name: str, pod_sets: list[Object], *, queue: str) -> None:
        """Make the remote Workload. There is no job yet."""
        await self.kube.create(
            kinds.WORKLOAD,
            {
                "apiVersion": kinds.WORKLOAD.api_version,
                "kind": kinds.WORKLOAD.kind,
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": dict(self._labels),
                },
                "spec": {"queueName": queue, "podSets": pod_sets, "active": True, "priority": 0},
            },
        )

    async def start(self, workload: str, job: Object) -> None:
        """The remote Workload was admitted first here: make the remote job."""
        labels = {**(job["metadata"].get("labels") or {}), **self._labels}
        metadata = {**job["metadata"], "labels": labels}
        named = metadata.get(self._names_in) or {}
        metadata[self._names_in] = {**named, PREBUILT: workload}
        await self.kube.create(kinds.JOB, {**job, "metadata": metadata})

    async def clean_up(self, workload: str, job: str) -> None:
        """It ended, or is wanted no more: the job goes, then its Workload."""
        for kind, name in ((kinds.JOB, job), (kinds.WORKLOAD, workload)):
            found = await self.get(kind, name)
            if found is not None:
                await self.kube.delete(kind, self.namespace, name, uid=found["metadata"]["uid"])
