"""A spoke: a cluster, a bus, and the parts of a patcher that carry out the orders of a hub."""

import asyncio
from random import Random
from typing import Any

from services.patcher.multikueue.copies import CopyReconciler
from services.patcher.multikueue.heartbeat import HeartbeatSender
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import LEASE, CopyState
from shared.contracts.messages.workloads import JobRef
from shared.integrations import Integrations
from shared.kube.port import (
    NotFoundError,
)
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from tests.unit.patcher.stage import NOON

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
ORDER = "sluicegate.dev/order"
SUBJECT = "sluice.copy.east.default.wl"


class Spoke:
    """A cluster and a bus in memory, with the parts of a patcher that carry out orders."""

    def __init__(self) -> None:
        self.kube = LocalKube(Api(now=lambda: NOON, random=Random(1)))
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="patcher")
        self.heartbeat = HeartbeatSender(
            kube=self.kube,
            bus=self.bus,
            cluster="east",
            quota="hub",
            now=lambda: NOON,
            beat_seconds=5,
        )
        self.integrations = Integrations()
        self.reading: str | None = None
        self.copies = CopyReconciler(
            kube=self.kube,
            bus=self.bus,
            cluster="east",
            now=lambda: NOON,
            lease_seconds_left=self.heartbeat.seconds_left,
            integrations=self.integrations,
            not_synced=lambda: self.reading,
        )

    async def reported(self) -> CopyState | None:
        await self.bus.flush()
        entry = self.server.latest("DISPATCHES", SUBJECT)
        return None if entry is None else CopyState.decode(entry.data)

    async def job(self) -> Object | None:
        try:
            return await self.kube.get(kinds.JOB, "default", "train")
        except NotFoundError:
            return None

    async def end(self, status: Object) -> None:
        """Write the status of the copy, as the controller of its kind does."""
        job = await self.kube.get(kinds.JOB, "default", "train")
        patch = [{"op": "add", "path": "/status", "value": {**job.get("status", {}), **status}}]
        await self.kube.patch(kinds.JOB, "default", "train", patch, subresource="status")

    async def apply(self, order: Dispatch) -> None:
        """Apply an order until it raises `LaterError` no more."""
        for _ in range(5):
            try:
                await self.copies.apply(order)
            except LaterError:
                await asyncio.sleep(0)
            else:
                return
        raise AssertionError("the order is never done")


def copy(number: int = 7, *, lease: str | None = None) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "default",
            "labels": {ORIGIN: "multikueue", PREBUILT: "wl"},
            "annotations": {ORDER: f"hub/{number}", **({LEASE: lease} if lease else {})},
            "finalizers": ["sluicegate.dev/copy"],
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never",
                                  "containers": [{"name": "c", "image": "none"}]}},
        },
    }  # fmt: skip


def order(state: Any, number: int = 7, **more: Any) -> Dispatch:
    usual: dict[str, Any] = {
        "spoke": "east", "cluster": "hub", "namespace": "default", "name": "wl", "uid": "u",
        "number": number, "at": NOON,
        "job": None if state == "chosen" else copy(number),
        "target": JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid="u"),
    }  # fmt: skip
    return Dispatch(state=state, **(usual | more))
