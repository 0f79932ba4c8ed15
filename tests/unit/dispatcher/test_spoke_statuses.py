"""What spokes report is kept of orders that exist, and takes little room whatever its contents."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from services.dispatcher.spokes.statuses import PackedRecord, SpokeStatuses
from services.dispatcher.store import Store
from shared.contracts.kube import kinds
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import CopyState, HubStatus
from shared.contracts.messages.workloads import JobRef
from shared.contracts.refs import WorkloadRef
from shared.testing.builders import observed_object
from tests.unit.dispatcher.harness import Harness, job, start_on_west
from tests.unit.dispatcher.test_identities import store

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
LARGE: dict[str, Any] = {"x": [{} for _ in range(100_000)]}
"""Twenty times as large once it is decoded."""

WORKLOAD = WorkloadRef("hub", "a", "w")


def report(name: str, *, number: int = 1, **parts: Any) -> CopyState:
    return CopyState(
        spoke="east", cluster="hub", namespace="a", name=name, uid="u", number=number,
        state="gone", at=AT, **parts,
    )  # fmt: skip


def order(name: str = "w", *, state: Any = "withdrawn") -> Dispatch:
    return Dispatch(
        spoke="east", cluster="hub", namespace="a", name=name, uid="u", number=1, state=state, at=AT
    )


def kept(found: Store) -> tuple[int, int]:
    """How many reports, and how many bytes of their statuses."""
    return (
        sum(len(each) for each in found.reports.values()),
        found.ended_statuses.bytes_of("east"),
    )


def test_reports_about_unordered_work_are_not_kept() -> None:
    found = store("east")
    for number in range(50):
        found.observe_report(report(f"none-{number}", ended=LARGE), number)
    assert kept(found) == (0, 0)
    assert found.reports == {}


@pytest.mark.parametrize("is_published", [True, False], ids=["published", "on its way"])
def test_report_about_an_order_is_kept_with_its_status(is_published: bool) -> None:
    found = store("east")
    if is_published:
        found.observe_order(order(), 1)
    else:
        found.expected_orders.add((WORKLOAD, "east"))
    found.observe_report(report("w", ended={"succeeded": 1}), 2)
    if not is_published:
        found.record_order(order(), 1)
    told = found.success_report(WORKLOAD, "u")
    assert told is not None
    assert told.ended is None
    assert found.ended_statuses.of("east", WORKLOAD) == {"succeeded": 1}
    assert found.is_removed(WORKLOAD, "east")


def test_status_of_a_copy_is_kept_packed_and_goes_with_it() -> None:
    found = store("east")
    metadata = {
        "name": "j", "namespace": "a", "uid": "u", "resourceVersion": "1",
        "labels": {
            "kueue.x-k8s.io/multikueue-origin": "multikueue",
            "kueue.x-k8s.io/prebuilt-workload-name": "w",
        },
        "annotations": {"sluicegate.dev/order": "hub/1"},
    }  # fmt: skip
    seen = observed_object(
        kinds.JOB, {"metadata": metadata, "spec": {}, "status": LARGE}, cluster="east"
    )
    found.observe_spoke_object("east", seen)
    assert found.copy_statuses.of("east", WORKLOAD) == LARGE
    assert 0 < found.copy_statuses.bytes_of("east") < len(seen.encode()) // 50
    found.observe_spoke_object("east", seen.ended())
    assert found.copy_statuses.bytes_of("east") == 0


def test_spoke_with_too_many_statuses_harms_only_itself() -> None:
    statuses = SpokeStatuses(most=200)
    first, second = (WorkloadRef("hub", "a", name) for name in ("first", "second"))
    statuses.put("east", first, {"a": [n * n * 7919 for n in range(20)]})
    held = statuses.bytes_of("east")
    statuses.put("east", second, {"a": [n * n * 7919 for n in range(90)]})
    assert (statuses.bytes_of("east"), statuses.of("east", second)) == (held, None)
    statuses.put("west", second, {"a": 1})
    assert statuses.of("west", second) == {"a": 1}
    statuses.put("east", first, None)
    statuses.put("east", second, {"a": 2})
    assert statuses.of("east", second) == {"a": 2}


def test_status_for_the_hub_is_kept_packed() -> None:
    target = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="j", uid="u")
    status = HubStatus(
        cluster="hub", namespace="a", name="w", uid="u", target=target, status=LARGE, at=AT
    )
    record = PackedRecord.of(status, 7)
    assert (record.message, record.sequence) == (status, 7)
    assert len(record.packed) < len(status.encode()) // 50


def test_report_that_is_older_than_the_last_message_of_its_order_counts_after_a_restart() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            west = await start_on_west(harness, train)
            await harness.observe_copy("west", west, deleted=True)
            harness.world.crash("dispatcher")
            last = await harness.last_order("west")
            assert last is not None
            # The view keeps the last message of each subject: that of the order comes behind.
            await harness.report_gone("west", last)
            await harness.bus.publish(last.model_copy(update={"state": "withdrawn"}))
            harness.world.restart("dispatcher")
            await harness.decide(train, "evicted")
            await asyncio.sleep(5)
            await harness.decide(train, "reserved")
            again = await harness.until_order("west", "offered")
            assert again.number > last.number

        harness.run(drive)
