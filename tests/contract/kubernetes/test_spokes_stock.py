"""What a spoke with a Kueue of its own is given, on each of the clusters: Workload, job, and their end."""

import asyncio
from typing import Any

import pytest

from services.dispatcher.spokes.copies import make_copy, make_workload, order_id
from services.patcher.multikueue.copies import CopyReconciler
from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import CopyState
from shared.contracts.messages.workloads import JobRef
from shared.integrations import JOB, Integrations
from shared.kube.port import NotFoundError
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from tests.clock import now
from tests.contract.kubernetes.stage import DEADLINE_SECONDS, Stage
from tests.simulation.spokes.stock_kueue import PREBUILT, StockSpoke, conditions_of


class Pair:
    """The part of a patcher that carries orders out, where `SLUICE_SPOKE_QUOTA` is `kueue`."""

    def __init__(self, stage: Stage, workload: str) -> None:
        self._workload = workload
        self._server = MemoryServer()
        self.bus = MemoryBus(self._server, instance="patcher")
        self._spokes = CopyReconciler(
            kube=stage.kube, bus=self.bus, cluster="stock", now=now,
            lease_seconds_left=lambda seconds: seconds,
            integrations=Integrations(), not_synced=lambda: None, own_kueue=True,
        )  # fmt: skip
        self._namespace = stage.namespace

    def order(self, state: Any, **more: Any) -> Dispatch:
        usual = {
            "spoke": "stock", "cluster": "hub", "namespace": self._namespace, "name": self._workload,
            "uid": "u-1", "number": 7, "at": now(),
            "target": JobRef(
                api_version="batch/v1", kind="Job", plural="jobs", name="train", uid="u-1"
            ),
        }  # fmt: skip
        return Dispatch(state=state, **(usual | more))

    async def apply(self, order: Dispatch) -> None:
        """As the bus delivers it: again, until it is done."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                try:
                    return await self._spokes.apply(order)
                except LaterError:
                    await asyncio.sleep(0.05)

    async def said(self) -> str:
        await self.bus.flush()
        entry = self._server.latest(
            "DISPATCHES", f"sluice.copy.stock.{self._namespace}.{self._workload}"
        )
        return "" if entry is None else CopyState.decode(entry.data).state


def submitted(namespace: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train", "namespace": namespace, "uid": "u-1",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {
            "suspend": True,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }  # fmt: skip


async def there(stage: Stage, kind: Kind, name: str) -> Object | None:
    try:
        return await stage.kube.get(kind, stage.namespace, name)
    except NotFoundError:
        return None


@pytest.mark.parametrize(
    "name", ["job-train-1234", "job-train-" + 243 * "a"], ids=["short", "too long for a label"]
)
async def test_workload_is_copied_before_the_job_and_both_are_deleted(
    stage: Stage, name: str
) -> None:
    pair = Pair(stage, name)
    await pair.bus.start()
    kueue = StockSpoke(stage.kube, now, slots=1, namespace=stage.namespace)
    of: dict[str, Any] = {"integration": JOB, "workload": name, "order": order_id("hub", 7)}
    job = submitted(stage.namespace)
    workload = make_workload(job, origin="multikueue", queue="main", priority=5, **of)
    copy = make_copy(job, origin="multikueue", **of)

    await pair.apply(pair.order("offered", workload=workload, job=copy))
    await kueue.look()
    admitted = await there(stage, kinds.WORKLOAD, name)
    assert admitted is not None
    assert conditions_of(admitted)["Admitted"] == "True"
    assert await there(stage, kinds.JOB, "train") is None, "no job before its hub chose"

    await pair.apply(pair.order("chosen", workload=workload, job=copy))
    await kueue.look()
    made = await there(stage, kinds.JOB, "train")
    assert made is not None
    marks = "labels" if len(name) <= 63 else "annotations"
    assert made["metadata"][marks][PREBUILT] == name
    assert (made["spec"]["suspend"], "managedBy" in made["spec"]) == (False, False)

    await pair.apply(pair.order("withdrawn", job=copy, started=True))
    assert await pair.said() == "gone"
    assert await there(stage, kinds.JOB, "train") is None
    assert await there(stage, kinds.WORKLOAD, name) is None
    await pair.bus.stop()
