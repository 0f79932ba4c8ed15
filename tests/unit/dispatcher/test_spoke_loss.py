"""Spokes that are lost, silent, incompatible, cut off, or named twice."""

import asyncio
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import SCHEMA, CopyState, Heartbeat
from shared.testing.world.connection import Deposed
from tests.unit.dispatcher.harness import (
    LOST,
    Harness,
    job,
    start_on_west,
)

LOST_WITH_LEASES: dict[str, Any] = {
    **LOST,
    "redispatch": "afterLease",
    "stop_seconds": 10.0,
    "patcher_down_seconds": 20.0,
}
"""As `LOST`, with leases of 30 seconds."""


def copy_state(spoke: str, order: Dispatch, harness: Harness) -> CopyState:
    return CopyState(
        spoke=spoke, cluster="hub", namespace=order.namespace, name=order.name, uid=order.uid,
        number=order.number, state="gone", at=harness.world.now(),
    )  # fmt: skip


def test_workload_on_lost_spoke_is_not_started_elsewhere() -> None:
    with Harness(**LOST) as harness:

        async def drive() -> None:
            await start_on_west(harness, job())
            harness.silent.add("west")
            await asyncio.sleep(600)
            chosen = await harness.last_order("west")
            assert chosen is not None
            assert chosen.state == "chosen"
            check = await harness.last_check()
            assert check is not None
            assert check.state == "Ready"

        harness.run(drive)


def test_spoke_declared_lost_by_operator_frees_its_workloads() -> None:
    with Harness(**LOST) as harness:

        async def drive() -> None:
            train = job()
            await start_on_west(harness, train)
            harness.silent.add("west")
            await asyncio.sleep(100)
            lost = {"sluicegate.dev/lost": "the machine room burnt down"}
            metadata = {"name": "west", "uid": "uid-west", "annotations": lost}
            await harness.observe(kinds.MULTIKUEUE_CLUSTER, {"metadata": metadata, "spec": {}})
            retry = await harness.until_check("Retry")
            assert retry.message == 'Admitting remote lost: "west"'
            await harness.decide(train, "evicted")
            await harness.until_order("west", "withdrawn")
            before = await harness.last_order("east")
            await harness.decide(train, "reserved")
            if before is not None:
                await harness.report_gone("east", before)
            again = await harness.until_order("east", "offered")
            assert before is None or again.number > before.number

        harness.run(drive)


def test_workload_of_lost_spoke_with_lease_restarts_after_timeout() -> None:
    with Harness(**LOST_WITH_LEASES) as harness:

        async def drive() -> None:
            train = job()
            west = await start_on_west(harness, train)
            assert west.job is not None
            annotations = west.job["metadata"]["annotations"]
            assert annotations["sluicegate.dev/lease-seconds"] == "30"
            harness.silent.add("west")
            silent_since = harness.world.loop.time()
            retry = await harness.until_check("Retry")
            assert harness.world.loop.time() - silent_since >= 55
            assert retry.message == 'Admitting remote lost: "west"'

        harness.run(drive)


def test_dispatcher_cut_off_from_bus_does_not_count_spokes_as_lost() -> None:
    with Harness(**LOST_WITH_LEASES) as harness:

        async def drive() -> None:
            await start_on_west(harness, job())
            harness.world.partition("dispatcher", "bus", seconds=200)
            await asyncio.sleep(300)
            check = await harness.last_check()
            assert check is not None
            assert check.state == "Ready"

        harness.run(drive)


def test_dispatcher_at_a_server_that_was_cut_off_does_not_count_spokes_as_lost() -> None:
    with Harness(**LOST_WITH_LEASES) as harness:
        server = harness.server

        async def drive() -> None:
            await start_on_west(harness, job())
            server.replicated = True
            harness.silent.add("west")
            await asyncio.sleep(55)
            server.deposed["dispatcher"] = Deposed(server, server.streams)
            harness.silent.clear()  # It is back, and renews its leases.
            await asyncio.sleep(12)
            server.deposed.clear()
            await asyncio.sleep(60)
            check = await harness.last_check()
            assert check is not None
            assert check.state == "Ready"

        harness.run(drive)


def test_silent_spoke_gets_no_offer() -> None:
    with Harness(**LOST) as harness:

        async def drive() -> None:
            harness.silent.add("east")
            await asyncio.sleep(20)
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            await harness.until_order("west", "offered")
            assert await harness.last_order("east") is None

        harness.run(drive)


def test_spoke_of_other_schema_version_gets_no_offer_and_a_reason() -> None:
    with Harness(**LOST) as harness:
        harness.forms["east"] = 2

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await asyncio.sleep(3)
            await harness.decide(train, "reserved")
            await harness.until_order("west", "offered")
            assert await harness.last_order("east") is None
            state = await harness.until_spoke("east", active=False)
            assert (state.reason, state.message) == (
                "SchemaMismatch",
                "It speaks version 2, this hub version 1: update the older one",
            )

        harness.run(drive)


def test_spoke_without_api_server_gets_no_offer_and_a_reason() -> None:
    with Harness(**LOST) as harness:
        harness.cut_off.add("west")

        async def drive() -> None:
            state = await harness.until_spoke("west", active=False)
            assert state.reason == "ClientConnectionFailed"
            assert state.message == "Its patcher is heard, but does not reach its API server"
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            await harness.until_order("east", "offered")
            assert await harness.last_order("west") is None

            harness.cut_off.clear()
            await harness.until_spoke("west", active=True)
            await harness.until_order("west", "offered")

        harness.run(drive)


def test_workload_keeps_running_while_its_spoke_has_no_api_server() -> None:
    with Harness(**LOST) as harness:

        async def drive() -> None:
            west = await start_on_west(harness, job())
            harness.cut_off.add("west")
            await harness.until_spoke("west", active=False)
            await asyncio.sleep(120)
            order = await harness.last_order("west")
            assert order is not None
            assert (order.state, order.number) == ("chosen", west.number)

        harness.run(drive)


def test_cluster_with_two_names_is_used_under_one_and_keeps_its_copies() -> None:
    with Harness(spokes=("east", "west", "orient"), dispatcher="best-fit", **LOST) as harness:
        harness.identities = {"east": "one", "west": "another", "orient": "one"}

        async def drive() -> None:
            state = await harness.until_spoke("orient", active=False)
            assert (state.reason, state.message) == (
                "BadConfig", 'It is the same cluster as "east" (known first)',
            )  # fmt: skip
            await harness.observe_queues()
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            east = await harness.until_order("east", "offered")
            for name in ("east", "orient"):  # Both watchers see what the one patcher made.
                await harness.observe_copy(name, east)
                await harness.observe_remote_workload(name, east)
            await harness.until_order("east", "chosen")
            await asyncio.sleep(120)
            assert await harness.last_order("orient") is None, "its copy is no stray"

        harness.run(drive)


def test_hub_under_another_name_is_not_used_as_spoke() -> None:
    with Harness(**LOST) as harness:
        harness.identities = {"hub": "one", "east": "one"}

        async def drive() -> None:
            harness.world.outside(harness.send_heartbeats("hub"))
            state = await harness.until_spoke("east", active=False)
            assert state.message == 'It is the same cluster as "hub" (this hub)'
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            await harness.until_order("west", "offered")
            assert await harness.last_order("east") is None

        harness.run(drive)


@pytest.mark.parametrize("seconds", [-600, 600])
def test_spoke_with_clock_ten_minutes_off_is_not_lost(seconds: int) -> None:
    with Harness(**LOST) as harness:
        harness.skew_seconds = seconds

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            # Quota's clock is ten minutes ahead of ours, the spokes' are before or behind.
            await harness.decide(train, "reserved", ahead_seconds=600)
            west = await harness.until_order("west", "offered")
            await harness.observe_copy("west", west)
            await harness.observe_remote_workload("west", west)
            await harness.until_order("west", "chosen")

        harness.run(drive)


def test_messages_of_a_spoke_under_another_name_are_ignored() -> None:
    with Harness(**LOST) as harness:

        async def drive() -> None:
            train = job()
            west = await start_on_west(harness, train)
            await harness.decide(train, "evicted")
            await harness.until_order("west", "withdrawn")
            harness.forge(
                copy_state("west", west, harness), under=copy_state("east", west, harness)
            )
            await harness.observe_copy("west", west, deleted=True)
            harness.silent.add("west")
            beats = [
                Heartbeat(
                    spoke=spoke, instance="east", number=10_000, form=SCHEMA, at=harness.world.now()
                )
                for spoke in ("west", "east")
            ]
            await harness.decide(train, "reserved")
            for _ in range(30):
                harness.forge(beats[0], under=beats[1])
                await asyncio.sleep(1)

            still = await harness.last_order("west")
            assert still is not None
            assert still.state == "withdrawn", "west itself has not reported its copy as gone"
            await harness.until_spoke("west", active=False)  # It is not west that is heard.

        harness.run(drive)
