"""Terms of the quota service: restarts, fencing, lost logs."""

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from services.quota.decider import Decider
from shared.bus.port import FencedError
from shared.contracts.messages.admissions import Admission, AdmissionState, Term
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import Finish
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.quota.service_setup import NOON, AskedBus, Setup, asked_again, became


async def test_restart_repeats_and_forgets_no_admission(setup: Setup) -> None:
    await setup.cluster()
    for name in "xyz":
        await setup.workload(name)
    await setup.start_quota()
    await became(setup, "z", "waiting")
    await setup.stop_quota()
    before = await setup.log()
    await setup.start_quota("b")
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await became(setup, "z", "admitted")
    new = (await setup.log())[len(before) :]
    assert [(a.name, a.state) for a in new] == [("x", "released"), ("z", "admitted")]
    assert {a.term > before[-1].term for a in new} == {True}


async def test_stale_leader_is_fenced_by_server(setup: Setup) -> None:
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    last = await setup.bus.last_sequence("ADMISSIONS")
    stale = (await setup.last("x")).model_copy(update={"state": "released", "number": 99})
    with pytest.raises(FencedError):
        await setup.bus.publish(stale, expect_last=last - 1)


async def test_leader_that_reads_another_term_restarts(setup: Setup) -> None:
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    last = await setup.bus.last_sequence("ADMISSIONS")
    await setup.bus.publish(Term(term=7, holder="other", began_at=NOON), expect_last=last)
    await setup.workload("y")
    await became(setup, "y", "admitted")
    assert (await setup.last("y")).term > 7


async def test_term_that_a_spoke_made_up_is_not_followed(setup: Setup) -> None:
    lie = Outcome(
        cluster="east", namespace="a", name="w", uid="u", action="release", result="applied",
        term=10**30, number=1, at=NOON,
    )  # fmt: skip
    await setup.bus.publish(lie)
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).term < 2 * datetime.now(UTC).timestamp()


async def test_lease_can_be_renewed_while_a_new_leader_applies_what_it_read(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, applied = 0, Counter[int]()
    apply = Decider.apply

    def counted(decider: Decider, message: Message) -> str | None:
        applied[turn] += 1
        return apply(decider, message)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr("services.quota.term.TURN", 5)
    monkeypatch.setattr(Decider, "apply", counted)
    await setup.cluster()
    for number in range(20):
        await setup.workload(f"w{number}")
    turning = asyncio.create_task(count_turns())
    await setup.start_quota()
    await became(setup, "w0", "admitted")
    turning.cancel()
    with suppress(asyncio.CancelledError):
        await turning
    assert applied.total() > 20
    assert max(applied.values()) <= 5


class Overtaken(MemoryBus):
    """A bus on which another leader goes on writing until the next one begins."""

    written: Admission | Term | None = None

    async def last_sequence(self, stream: str) -> int:
        if stream == "ADMISSIONS" and self.written is not None:
            message, self.written = self.written, None
            await self.publish(message)
        return await super().last_sequence(stream)


@pytest.mark.parametrize("state", ["admitted", "evicted", "waiting"])
async def test_new_leader_applies_only_last_decision_of_each_workload(
    setup: Setup, state: AdmissionState
) -> None:
    await setup.cluster(checks=["safe"])
    await setup.workload("x")
    await setup.start_quota()
    await became(setup, "x", "reserved")
    await setup.stop_quota()
    reserved = await setup.last("x")
    ready = CheckState(
        cluster="hub", namespace="team", name="x", uid="u-x", check="safe", state="Ready",
        message="", attempt=reserved.number, at=reserved.decided_at,
    )  # fmt: skip
    await setup.bus.publish(ready)
    bus = Overtaken(setup.server, instance="quota-b")
    bus.written = reserved.model_copy(update={"state": state, "number": reserved.number + 1})
    await setup.start_quota("b", bus=bus)
    await setup.workload("y")
    await became(setup, "y", "reserved")
    after = (await setup.states("x"))[1:]
    assert after == ([state] if state != "waiting" else ["waiting", "reserved"])


@pytest.mark.parametrize(("epoch", "term"), [(0, 10**11), (10**15, 7)])
async def test_new_leader_is_above_a_term_that_the_view_does_not_have_yet(
    setup: Setup, epoch: int, term: int
) -> None:
    await setup.cluster()
    await setup.workload("x")
    setup.server.lags["ADMISSIONS"] = 0.1
    bus = Overtaken(setup.server, instance="quota-b")
    highest = (epoch or await bus.epoch("ADMISSIONS"), term)  # Its clock, or its log, is ahead.
    bus.written = Term(epoch=highest[0], term=term, holder="quota-a", began_at=NOON)
    await setup.start_quota("b", bus=bus)
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).ruling > highest


async def test_decisions_of_stale_leader_are_repaired_by_the_next(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    valid = await setup.last("x")
    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("y")
    await became(setup, "y", "admitted")

    # As on three servers: stored, because what it predicts has come true.
    void = [
        valid.replace(state="released", number=50),
        valid.replace(name="unknown", uid="u-unknown", number=51),
    ]
    for one in void:
        last = await setup.bus.publish(one)

    # Nothing is to be decided: the leader looks at the end of the log, and its successor repairs.
    stored = setup.server.stream("ADMISSIONS").messages

    def repaired() -> list[Admission]:
        """What the last term has decided since."""
        after = [stored[sequence] for sequence in sorted(stored) if sequence > last]
        terms = [Term.decode(one.data).term for one in after if ".term." in one.subject]
        decisions = [Admission.decode(one.data) for one in after if ".term." not in one.subject]
        return [one for one in decisions if terms and one.term == terms[-1]]

    expected = {("x", "admitted"), ("unknown", "released")}
    await eventually(lambda: {(a.name, a.state) for a in repaired()} == expected)
    again = next(a for a in repaired() if a.name == "x")
    assert again.same_except(valid, "term", "number", "epoch", "inputs", "traceparent")
    assert await setup.bus.void("ADMISSIONS") == []


async def test_term_grows_although_log_lost_its_term_messages(
    setup: Setup,
) -> None:
    await setup.cluster()
    decided = Admission(
        cluster="hub", namespace="team", name="z", uid="u-z", state="released", term=7, number=1,
        decided_at=NOON, cluster_queue="cq",
    )  # fmt: skip
    await setup.bus.publish(decided)
    await setup.workload("x")
    await setup.start_quota()
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).term > 7


async def test_nearly_full_log_accepts_releases_but_no_admissions(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)
    await setup.cluster(cpus=30)
    bus = AskedBus(setup.server, instance="quota-a")
    await setup.start_quota(bus=bus)
    for number in range(29):
        await setup.workload(f"w{number}")
    await setup.workload("x")
    await became(setup, "x", "admitted")
    stream = setup.server.stream("ADMISSIONS")
    stream._bytes_max = int(stream.bytes / 0.85)
    await asked_again(bus)

    await setup.workload("y")
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await became(setup, "x", "released")
    await asked_again(bus)
    assert await setup.states("y") == []

    stream._bytes_max = stream.bytes * 10
    await became(setup, "y", "admitted")


async def test_lost_log_is_restored_from_cluster_records(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
    recorded = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
    running = {"phase": "running", "pods_active": True, "held": False}
    await setup.workload("x", admission=recorded, **running)
    await setup.workload("y")
    await setup.start_quota()
    await became(setup, "y", "waiting")
    assert all(a.state != "admitted" or a.name == "x" for a in await setup.log())
