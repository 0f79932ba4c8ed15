"""The fair sharing status of a queue."""

from functools import partial
from typing import Any

import pytest

from services.patcher.cluster.queue_status import queue_status
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.messages.queues import (
    CohortShare,
    FlavorUsage,
    QueueStatus,
    ResourceUsage,
)
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup

OBJ = as_body({"metadata": {"name": "q", "namespace": "team", "generation": 1}})
EARLIER = "2025-12-31T23:59:00Z"


def told(**more: Any) -> QueueStatus:
    fields: dict[str, Any] = {
        "cluster": "hub",
        "kind": "LocalQueue",
        "namespace": "team",
        "name": "q",
        "at": NOON,
    }
    fields |= {"active": True, "reason": "Ready", "message": "Can submit new workloads"}
    fields |= {"pending": 0, "reserving": 0, "admitted": 0}
    return QueueStatus.model_validate(fields | more)


def test_consumed_resources_are_in_kueues_field() -> None:
    """Kueue reads it at the same place."""
    status = queue_status(OBJ, told(consumed={"cpu": "1500m"}, consumed_at=EARLIER), at=NOON)
    assert status["fairSharing"] == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1500m"},
            "lastUpdate": EARLIER,
        },
    }


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_counts_and_usage_are_in_kueues_fields(kind: str) -> None:
    resources = [ResourceUsage(name="cpu", total="3", borrowed="1")]
    used = [FlavorUsage(name="spot", resources=resources)]
    namespace = "team" if kind == "LocalQueue" else None
    queue = told(
        kind=kind,
        namespace=namespace,
        pending=3,
        reserving=2,
        admitted=1,
        reservation=used,
        usage=used,
    )
    cpu = {"name": "cpu", "total": "3"} | ({"borrowed": "1"} if namespace is None else {})
    shown = [{"name": "spot", "resources": [cpu]}]
    status = queue_status(OBJ, queue, at=NOON)
    others = {"conditions", "fairSharing"}
    assert {key: value for key, value in status.items() if key not in others} == {
        "pendingWorkloads": 3,
        "reservingWorkloads": 2,
        "admittedWorkloads": 1,
        "flavorsReservation": shown,
        "flavorsUsage": shown,
    }


def test_queue_without_flavors_shows_no_usage() -> None:
    status = queue_status(OBJ, told(kind="LocalQueue", reservation=[], usage=[]), at=NOON)
    assert status["flavorsReservation"] is status["flavorsUsage"] is None


def test_weighted_share_is_in_kueues_field() -> None:
    status = queue_status(OBJ, told(kind="ClusterQueue", weighted_share=125), at=NOON)
    assert status["fairSharing"] == {"weightedShare": 125}


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_fair_sharing_is_absent_without_consumption(kind: str) -> None:
    assert queue_status(OBJ, told(kind=kind), at=NOON).get("fairSharing") is None


async def test_status_of_a_deleted_queue_is_not_written_to_its_successor() -> None:
    setup = Setup()
    await setup.bus.start()
    await setup.start_patcher()
    obj = await setup.kube.create(
        kinds.LOCAL_QUEUE,
        as_body(
            {"metadata": {"name": "q", "namespace": "default"}, "spec": {"clusterQueue": "cq"}}
        ),
    )
    other = await setup.kube.create(
        kinds.LOCAL_QUEUE,
        as_body(
            {"metadata": {"name": "z", "namespace": "default"}, "spec": {"clusterQueue": "cq"}}
        ),
    )
    await setup.bus.publish(told(namespace="default", uid="earlier"))
    await setup.bus.publish(told(namespace="default", name="z", uid=other["metadata"]["uid"]))

    async def status_of_queue(name: str) -> object:
        return (await setup.kube.get(kinds.LOCAL_QUEUE, "default", name)).get("status")

    await eventually(partial(status_of_queue, "z"))
    assert not await status_of_queue("q")
    await setup.bus.publish(told(namespace="default", uid=obj["metadata"]["uid"]))
    await eventually(partial(status_of_queue, "q"))
    await setup.kill_patcher()
    await setup.bus.stop()


async def test_share_of_a_cohort_is_written_and_removed() -> None:
    setup = Setup()
    await setup.bus.start()
    await setup.start_patcher()
    uid = (await setup.kube.create(kinds.COHORT, as_body({"metadata": {"name": "c"}})))["metadata"][
        "uid"
    ]

    async def shows(status: object) -> bool:
        return ((await setup.kube.get(kinds.COHORT, None, "c")).get("status") or {}) == status

    for share, shown in (
        (125, {"fairSharing": {"weightedShare": 125}}),
        (0, {"fairSharing": {"weightedShare": 0}}),
        (None, {}),
    ):
        # One of an earlier Cohort of the name changes nothing.
        for of, number in (("earlier", 7), (uid, share)):
            await setup.bus.publish(
                CohortShare(cluster="hub", name="c", uid=of, weighted_share=number, at=NOON)
            )
        await eventually(partial(shows, shown))
    await setup.kill_patcher()
    await setup.bus.stop()
