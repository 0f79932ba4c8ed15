"""Nobody is admitted by what is not known: the room in the logs, queues that a newer release describes."""

import asyncio

import pytest

from shared.bus.headers import TYPE
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import SCHEMA_VERSION
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Observed, Synced
from tests.unit.quota.service_setup import NOON, AskedBus, Setup, asked_again, became, says


async def test_no_workload_is_admitted_while_the_room_in_the_logs_is_unknown(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)
    await setup.cluster(cpus=3)
    bus = AskedBus(setup.server, instance="quota-a")
    bus.says = False
    await setup.start_quota(bus=bus)
    await setup.workload("x")
    await says(setup, "x", "NATS does not say how full ADMISSIONS and WORKLOADS and OUTCOMES is")
    assert await setup.states("x") == []

    bus.says = True
    await became(setup, "x", "admitted")

    bus.says = False
    await asked_again(bus)
    # From now on every answer is too old.
    monkeypatch.setattr("services.quota.log_room.KNOWN_SECONDS", 0.0)
    await setup.workload("y")
    await asked_again(bus)
    assert await setup.states("y") == []


@pytest.mark.parametrize("before", [True, False], ids=["it led before", "it begins to lead"])
async def test_queues_of_a_newer_release_count_once_this_one_has_listed_them(
    setup: Setup, before: bool
) -> None:
    await setup.cluster()
    if before:
        await setup.start_quota()
        await setup.workload("w")
        await became(setup, "w", "admitted")
    newer = {TYPE: Observed.type, SCHEMA_VERSION: "99"}
    detail = kinds.CLUSTER_QUEUE.detail
    setup.server.publish(f"sluice.observed.hub._.cq.{detail}", b"{}", newer)
    setup.server.publish("sluice.observed.hub._._.synced", b"{}", newer | {TYPE: Synced.type})
    if not before:
        await setup.start_quota()
    await setup.workload("x")
    if before:
        await says(setup, "x", "a newer release writes OBSERVED of hub: upgrade quota")
    await asyncio.sleep(0.2)
    assert await setup.states("x") == []

    await setup.bus.publish(Synced(cluster="hub", epoch="2", kinds=[], at=NOON))
    await became(setup, "x", "admitted")


async def test_term_is_above_one_of_a_newer_release_whose_clock_is_ahead(setup: Setup) -> None:
    ahead = int(NOON.timestamp()) + (1 << 32)
    began = Term(term=ahead, holder="newer", began_at=NOON)
    newer = {TYPE: Term.type, SCHEMA_VERSION: "99"}
    setup.server.publish(began.subject, began.encode(), newer)
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).term > ahead


@pytest.mark.parametrize("schema", ["garbage", "99"])
async def test_answer_of_a_check_counts_behind_garbage_but_not_behind_a_newer_release(
    setup: Setup, schema: str
) -> None:
    await setup.cluster(checks=["safe"])
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "reserved")
    await setup.stop_quota()
    reserved = await setup.last("x")
    ready = CheckState.answer(
        reserved, "safe", "Ready", "", service="dispatcher", now=reserved.decided_at
    )
    await setup.bus.publish(ready)
    newer = {} if schema == "garbage" else {TYPE: CheckState.type, SCHEMA_VERSION: schema}
    setup.server.publish(ready.subject, b'{"what": "ever"', newer)
    await setup.start_quota("b")
    await setup.workload("y")
    await became(setup, "y", "reserved")
    if schema == "garbage":
        await became(setup, "x", "admitted")
    assert ("admitted" in await setup.states("x")) == (schema == "garbage")


@pytest.mark.parametrize("when", ["before this release leads", "while this release leads"])
async def test_answer_of_a_newer_release_counts_for_what_this_one_knows_of_it(
    setup: Setup, when: str
) -> None:
    """What it has let start would be stopped again and again, as started without quota."""
    await setup.cluster(checks=["safe"])
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "reserved")
    if when == "before this release leads":
        await setup.stop_quota()
    reserved = await setup.last("x")
    ready = CheckState.answer(
        reserved, "safe", "Ready", "", service="dispatcher", now=reserved.decided_at
    )
    newer = {TYPE: CheckState.type, SCHEMA_VERSION: "99"}
    setup.server.publish(ready.subject, ready.encode(), newer)
    if when == "before this release leads":
        await setup.start_quota("b")
    await became(setup, "x", "admitted")
