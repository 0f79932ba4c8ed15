"""Terms of leadership: what a term reads first, what a restart continues, what leaves the views."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from shared.bus.port import CaughtUp, Entry
from shared.contracts.kube import kinds
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.subjects import join, observed_filter
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.dispatcher.harness import (
    Harness,
    job,
    offer,
    workload_of,
)


def test_admissions_and_jobs_are_read_once_a_multikueue_check_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    watch = MemoryBus.watch

    def noted(bus: MemoryBus, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp]:
        read.extend([stream, *filters])
        return watch(bus, stream, *filters)

    monkeypatch.setattr(MemoryBus, "watch", noted)
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            await asyncio.sleep(60)
            assert "SPOKES" in read
            assert "ADMISSIONS" not in read
            assert observed_filter(kinds.JOB, "hub") not in read
            await harness.configure(harness.spokes)
            await harness.until_order("east", "offered")
            assert read.count("ADMISSIONS") == 1
            assert read.count(observed_filter(kinds.JOB, "hub")) == 1

        harness.run(drive, configured=False)


@pytest.mark.parametrize(
    ("configured", "listed"),
    [(True, True), (True, False), (False, True)],
    ids=["all before", "listed later", "configured later"],
)
def test_nothing_is_published_before_the_jobs_of_the_list_are_read(
    monkeypatch: pytest.MonkeyPatch, configured: bool, listed: bool
) -> None:
    watch = MemoryBus.watch

    async def slowly(
        bus: MemoryBus, stream: str, *filters: str
    ) -> AsyncGenerator[Entry | CaughtUp]:
        slow = observed_filter(kinds.JOB, "hub") in filters
        async with aclosing(watch(bus, stream, *filters)) as items:
            async for item in items:
                await asyncio.sleep(30 if slow else 0)
                yield item

    monkeypatch.setattr(MemoryBus, "watch", slowly)
    status = join("spoke", "hub", None, "east")
    with Harness(spokes_seconds=1.0) as harness:

        async def drive() -> None:
            await harness.submit(job())
            await asyncio.sleep(0 if configured and listed else 200)
            if not configured:
                await harness.configure(harness.spokes)
            if not listed:
                await harness.sync("hub")
            await asyncio.sleep(20)
            assert await harness.bus.latest("SPOKES", status) is None
            await asyncio.sleep(100)
            assert await harness.bus.latest("SPOKES", status) is not None

        harness.run(drive, configured=configured, listed=listed)


@pytest.mark.parametrize("moment", ["before the offer", "offered", "won", "admitted"])
def test_restarted_dispatcher_continues_where_it_stopped(moment: str) -> None:
    with Harness() as harness:

        async def drive() -> None:
            def restart(now: str) -> None:
                if moment == now:
                    harness.world.crash("dispatcher", down_seconds=3)

            restart("before the offer")
            train = job()
            _, west = await offer(harness, train)
            restart("offered")
            await harness.observe_remote_workload("west", west)
            restart("won")
            ready = await harness.until_check("Ready")
            assert ready.spoke == "west"
            await harness.until_order("west", "chosen")
            await harness.until_order("east", "withdrawn")
            await harness.decide(train, "admitted")
            restart("admitted")
            await asyncio.sleep(10)
            chosen = await harness.last_order("west")
            assert chosen is not None
            assert chosen.state == "chosen"
            await harness.decide(train, "released")
            await harness.until_order("west", "withdrawn")

        harness.run(drive)


def test_winner_recorded_before_crash_is_kept_when_another_spoke_is_first_afterwards() -> None:
    with Harness() as harness:

        async def drive() -> None:
            train = job()
            east, west = await offer(harness, train)
            harness.world.partition("dispatcher", "bus")
            harness.world.crash("dispatcher")
            check = await harness.last_check()
            assert check is not None
            published = check.model_copy(update={"state": "Ready", "spoke": "east"})
            await harness.bus.publish(published)
            await harness.observe_remote_workload("west", west)
            await harness.observe_remote_workload("east", east)
            harness.world.heal("dispatcher", "bus")
            harness.world.restart("dispatcher")
            await harness.until_order("east", "chosen")
            await harness.until_order("west", "withdrawn")

        harness.run(drive)


def test_order_of_other_dispatcher_read_before_its_admission_is_kept() -> None:
    with Harness() as harness:

        async def drive() -> None:
            await asyncio.sleep(1)
            train = job()
            order = Dispatch(
                spoke="east",
                cluster="hub",
                namespace="team-a",
                name=workload_of(),
                uid="uid-train",
                number=7,
                state="offered",
                at=harness.world.now(),
            )
            # The order overtakes the admission on the way to this dispatcher.
            published = harness.bus.publish(order)
            await harness.submit(train)
            await harness.decide(train, "reserved")
            await published
            await harness.until_order("west", "offered")
            await asyncio.sleep(5)
            kept = await harness.last_order("east")
            assert kept is not None
            assert (kept.state, kept.number) == ("offered", 7)

        harness.run(drive)


def test_orders_stay_in_view_until_empty_hub_status_is_published() -> None:
    with Harness(forget_seconds=5, tidy_seconds=0.01) as harness:

        async def drive() -> None:
            train, others = job(), [job(f"other-{number}") for number in range(9)]
            east, west = await offer(harness, train)
            await harness.observe_remote_workload("west", west)
            await harness.until_order("west", "chosen")
            await harness.observe_copy("west", west, active=1)
            await harness.until_hub_status(status={"active": 1})
            train["status"] = {"active": 1}
            await harness.observe(kinds.JOB, train)
            await harness.decide(train, "evicted")
            await harness.until_order("west", "withdrawn")
            await asyncio.sleep(10)
            for other in others:
                await harness.submit(other)
            for other in others:  # The dispatcher is at these when the last word of the copy comes.
                await harness.decide(other, "reserved")
            for spoke, order in (("east", east), ("west", west)):
                await harness.observe_copy(spoke, order, deleted=True)
                await harness.report_gone(spoke, order)
            await harness.until_hub_status(status={})

        harness.run(drive)
