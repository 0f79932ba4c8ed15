"""Offers: which spokes get one, which one wins, and when there is none."""

import asyncio
from datetime import timedelta
from typing import Any, Literal

import pytest

from shared.bus.port import PublishFuture
from shared.contracts.controllers import MACHINES
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import AdmissionState
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.dispatcher.harness import (
    CHECK,
    Harness,
    job,
    offer,
    workload_of,
)


def test_first_spoke_with_quota_wins_and_other_offers_are_withdrawn() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            pending = await harness.until_check("Pending")
            assert pending.message == "The workload waits for one of: east, west"
            east = await harness.until_order("east", "offered")
            west = await harness.until_order("west", "offered")
            assert east.job is not None
            assert east.job["metadata"]["labels"] == {
                "kueue.x-k8s.io/queue-name": "main",
                "kueue.x-k8s.io/prebuilt-workload-name": workload_of(),
                "kueue.x-k8s.io/multikueue-origin": "multikueue",
            }
            await harness.observe_copy("east", east)
            await harness.observe_copy("west", west)
            await harness.observe_remote_workload("west", west)
            ready = await harness.until_check("Ready")
            assert (ready.message, ready.spoke) == ('The workload was admitted on "west"', "west")
            chosen = await harness.until_order("west", "chosen")
            assert chosen.job is None, "so that it is not made again when it is done and deleted"
            withdrawn = await harness.until_order("east", "withdrawn")
            assert withdrawn.job == {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": "train",
                    "namespace": "team-a",
                    "labels": {
                        "kueue.x-k8s.io/prebuilt-workload-name": workload_of(),
                        "kueue.x-k8s.io/multikueue-origin": "multikueue",
                    },
                    "annotations": {"sluicegate.dev/order": f"hub/{withdrawn.number}"},
                },
            }

        harness.run(drive)


def test_running_copy_without_workload_wins() -> None:
    with Harness() as harness:

        async def drive() -> None:
            east, _ = await offer(harness, job())
            await harness.observe_copy("east", east, active=1)
            assert (await harness.until_check("Ready")).spoke == "east"

        harness.run(drive)


@pytest.mark.parametrize("state", ["evicted", "released"])
def test_evicted_or_released_workload_withdraws_every_copy(state: AdmissionState) -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            _, west = await offer(harness, train)
            await harness.observe_remote_workload("west", west)
            await harness.until_order("west", "chosen")
            await harness.decide(train, "admitted")
            await asyncio.sleep(1)
            await harness.decide(train, state)
            await harness.until_order("west", "withdrawn")

        harness.run(drive)


def test_next_reservation_waits_until_chosen_spoke_reports_copy_gone() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            east, west = await offer(harness, train)
            await harness.observe_remote_workload("west", west)
            first = await harness.until_check("Ready")
            await harness.decide(train, "evicted")
            withdrawn = await harness.until_order("west", "withdrawn")
            assert withdrawn.started
            await harness.observe_copy("east", east, deleted=True)
            await harness.report_gone("east", east)
            await harness.decide(train, "reserved")
            pending = await harness.until_check("Pending", after=first.attempt)
            assert pending.message == (
                "The workload waits until its copy is confirmed to be gone from: west"
            )
            await asyncio.sleep(50)
            assert (await harness.until_order("east", "withdrawn")).number == east.number
            await harness.observe_remote_workload("west", west, reserved=False)
            await harness.observe_copy("west", west, deleted=True)
            await asyncio.sleep(50)
            assert (await harness.until_order("east", "withdrawn")).number == east.number
            await harness.report_gone("west", withdrawn)
            again = await harness.until_order("west", "offered")
            assert again.number > west.number
            await harness.until_order("east", "offered")

        harness.run(drive)


def test_workload_without_usable_spoke_retries_after_delay() -> None:
    with Harness() as harness:

        async def drive() -> None:
            await harness.configure(["north", "nowhere"])
            nowhere = {"metadata": {"name": "nowhere", "uid": "uid-nowhere"}, "spec": {}}
            await harness.observe(kinds.MULTIKUEUE_CLUSTER, nowhere, deleted=True)
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            retry = await harness.until_check("Retry")
            assert retry.message == (
                "No usable worker cluster. Missing clusters: nowhere. Inactive clusters: north"
            )
            assert retry.requeue_after_seconds == 60
            await harness.decide(train, "evicted")
            await harness.sync("north")
            harness.world.outside(harness.send_heartbeats("north"))
            await asyncio.sleep(1)
            await harness.decide(train, "reserved")
            await harness.until_order("north", "offered")
            await harness.until_check("Pending", after=retry.attempt)

        harness.run(drive)


def test_workload_without_multikueue_check_is_ignored() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved", "machines")
            await asyncio.sleep(5)
            assert await harness.last_order("east") is None
            assert await harness.last_check() is None

        harness.run(drive)


def test_no_offer_before_other_checks_are_ready() -> None:
    with Harness() as harness:

        async def publish_machines(
            state: Literal["Pending", "Ready"], *, late: float = 0.0, service: Any = "provisioner"
        ) -> None:
            state_message = CheckState(
                cluster="hub", namespace="team-a", name=workload_of(), uid="uid-train", check="machines",
                service=service, state=state, at=harness.world.now() - timedelta(seconds=late),
            )  # fmt: skip
            await harness.bus.publish(state_message)

        async def drive() -> None:
            check = {"metadata": {"name": "machines"}, "spec": {"controllerName": MACHINES}}
            await harness.observe(kinds.ADMISSION_CHECK, check)
            train = job()
            await harness.submit(train)
            await asyncio.sleep(30)
            await publish_machines("Ready", late=5.0)
            await harness.decide(train, "reserved", CHECK, "machines")
            pending = await harness.until_check("Pending")
            assert pending.message == "The workload waits for other admission checks: machines"
            await publish_machines("Pending")
            await asyncio.sleep(30)
            assert await harness.last_order("east") is None, (
                "it was ready for an earlier reservation"
            )
            await publish_machines("Ready", service="dispatcher")
            await asyncio.sleep(30)
            assert await harness.last_order("east") is None, "another service said so"

            await publish_machines("Ready")
            east = await harness.until_order("east", "offered")
            await harness.observe_copy("east", east)
            await harness.observe_remote_workload("east", east)
            await harness.until_order("east", "chosen")

        harness.run(drive)


def test_spoke_that_ignores_an_offer_comes_last_afterwards() -> None:
    with Harness(dispatcher="best-fit") as harness:

        async def drive() -> None:
            await harness.observe_queues()
            first, second = job("first"), job("second")
            await harness.submit(first)
            await harness.decide(first, "reserved")
            await harness.until_order("east", "offered", "first")
            began = harness.world.loop.time()
            await harness.until_order("west", "offered", "first")
            assert harness.world.loop.time() - began >= 10

            await harness.submit(second)
            await harness.decide(second, "reserved")
            await harness.until_order("west", "offered", "second")
            assert await harness.last_order("east", "second") is None
            await asyncio.sleep(10)
            assert (await harness.until_spoke("east", active=True)).failures == 1

        harness.run(drive)


@pytest.mark.parametrize("dispatcher", ["all-at-once", "best-fit"])
def test_job_label_restricts_offers_to_its_spoke(dispatcher: str) -> None:
    with Harness(dispatcher=dispatcher) as harness:

        async def drive() -> None:
            await harness.observe_queues()
            train = job()
            train["metadata"]["labels"]["sluicegate.dev/spoke"] = "west"
            await harness.submit(train)
            await harness.decide(train, "reserved")
            await harness.until_order("west", "offered")
            await asyncio.sleep(10)
            assert await harness.last_order("east") is None

        harness.run(drive)


def test_job_label_of_unknown_spoke_retries_with_reason() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            train["metadata"]["labels"]["sluicegate.dev/spoke"] = "north"
            await harness.submit(train)
            await harness.decide(train, "reserved")
            retry = await harness.until_check("Retry")
            assert retry.message == "No usable worker cluster. Not north: east, west"

        harness.run(drive)


def test_admission_before_its_job_is_observed_is_planned_again() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            await harness.decide(train, "reserved")
            await asyncio.sleep(5)
            assert await harness.last_order("east") is None
            await harness.submit(train)
            await harness.until_order("east", "offered")

        harness.run(drive)


def test_answer_is_not_older_than_reservation_when_clock_is_behind() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved", ahead_seconds=100)
            pending = await harness.until_check("Pending")
            assert (pending.at - harness.world.now()).total_seconds() > 90

        harness.run(drive)


def test_job_of_same_name_with_other_uid_is_another_workload() -> None:
    with Harness() as harness:

        async def drive() -> None:
            east, west = await offer(harness, job())
            second = job(uid="another")
            await harness.submit(second)
            await harness.decide(second, "reserved")
            assert (await harness.until_order("east", "offered", uid="another")).uid == "another"
            await harness.decide(job(), "released")
            await harness.until_order("east", "withdrawn")
            await harness.until_order("west", "withdrawn")
            assert east.uid == west.uid == "uid-train"

        harness.run(drive)


def test_spoke_that_reports_name_taken_loses_offer_to_other_spoke() -> None:
    with Harness(dispatcher="best-fit", fallback_seconds=5.0) as harness:

        async def drive() -> None:
            await harness.observe_queues()
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            east = await harness.until_order("east", "offered")
            await harness.report("east", east, "taken", "Job team-a/train is there already")
            await harness.until_order("west", "offered")
            await harness.until_order("east", "withdrawn")

        harness.run(drive)


def test_report_that_comes_before_the_order_is_known_to_be_stored_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = MemoryBus.publish

    async def answered_late(stored: PublishFuture) -> int:
        sequence = await stored
        await asyncio.sleep(3)
        return sequence

    def publish_orders_late(bus: MemoryBus, message: Message, **more: Any) -> PublishFuture:
        stored = publish(bus, message, **more)
        return answered_late(stored) if isinstance(message, Dispatch) else stored

    monkeypatch.setattr(MemoryBus, "publish", publish_orders_late)
    with Harness(dispatcher="best-fit", fallback_seconds=600.0) as harness:

        async def drive() -> None:
            await harness.observe_queues()
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            east = await harness.until_order("east", "offered")
            await harness.report("east", east, "taken", "Job team-a/train is there already")
            await harness.until_order("west", "offered")

        harness.run(drive)
