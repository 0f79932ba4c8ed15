"""What LocalQueues used lately decides who goes first; a restart must not forget it."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import AdmissionCheckChanged, CheckRule, CheckStateChanged
from services.quota.engine.views.queues import QueueView
from services.quota.publishing.queue_status import queue_statuses
from services.quota.wire.inbound import local_queue
from shared.contracts.kube.bodies import Body, as_body
from tests.unit.quota.builders import (
    CLUSTER,
    SECOND,
    Bench,
    admitted,
    drained,
    finished,
    held,
    local,
    queue,
    slots,
    work,
)

HOUR = 3600 * SECOND
MINUTE = 60 * SECOND
POLICY = Policy(resource_weights={}, half_life=HOUR, sampling_interval=MINUTE)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def bench(*facts: Any) -> Bench:
    """One queue of one slot, reached by the LocalQueues `q` and `other`."""
    return Bench(queue("q", slots(1), usage_based=True), *facts, policy=POLICY)


def view(bench: Bench, name: str) -> QueueView:
    found = bench.engine.local_queue(CLUSTER, f"ns/{name}")
    assert found is not None
    return found


def slot_used(bench: Bench) -> int:
    """Thousandths."""
    return (view(bench, "q").consumed or {})["slot"]


def tick(bench: Bench) -> None:
    """Wait as the service does: until the engine asks to be called."""
    at = bench.engine.next_at()
    assert at is not None
    bench.now = at
    bench.engine.decide(at)


def test_usage_is_sampled_without_other_facts() -> None:
    one = bench()
    one.decide(work("w1"))
    for _ in range(60):
        tick(one)
    assert slot_used(one) == pytest.approx(506, abs=5), (
        "half of a slot after a half-life, and a price"
    )
    one.decide(finished("w1"))
    for _ in range(60):
        tick(one)
    assert slot_used(one) == pytest.approx(250, abs=5)


def test_engine_without_admission_fair_sharing_takes_no_samples() -> None:
    idle = Bench(queue("q", slots(1), usage_based=True))
    idle.decide(work("w1"))
    assert idle.engine.next_at() is None


def test_queue_of_another_mode_is_sampled_but_not_ordered_by_usage() -> None:
    one = Bench(queue("q", slots(1)), local("other", "q"), policy=POLICY)
    one.decide(work("w1"))
    for _ in range(60):
        tick(one)
    assert slot_used(one) == pytest.approx(500, abs=5)
    one.decide(work("w2"), work("w3", to="other"))
    assert admitted(one.decide(finished("w1"))) == ["w2"]


def test_past_usage_orders_local_queues_after_restart() -> None:
    before = bench(local("other", "q"))
    before.decide(work("w1"))
    for _ in range(60):
        tick(before)
    seen = view(before, "q")

    recorded = local("q", consumed=seen.consumed, consumed_at=seen.sampled_at)
    for facts, first in (([recorded], "w3"), ([local("q")], "w2")):
        after = bench(*facts, local("other", "q"))
        after.now = before.now
        assert admitted(after.decide(work("w2"), work("w3", to="other"))) == [first]


def test_admission_after_recorded_sample_gets_its_penalty_again() -> None:
    at = 1_000 * SECOND
    record = local("q", consumed={}, consumed_at=at)
    one = bench(record, local("other", "q", consumed={}, consumed_at=at))
    one.decide(replace(held("w1"), at=at + SECOND), work("w1"), work("w2"), work("w3", to="other"))
    assert admitted(one.decide(finished("w1"))) == ["w3"]
    elder = bench(record, local("other", "q", consumed={}, consumed_at=at))
    elder.decide(
        replace(held("w1"), at=at - SECOND), work("w1"), work("w2"), work("w3", to="other")
    )
    assert admitted(elder.decide(finished("w1"))) == ["w2"]


def test_short_job_between_two_samples_counts_as_past_usage() -> None:
    one = bench(local("other", "q"))
    assert admitted(one.decide(work("w1"))) == ["w1"]
    one.decide(finished("w1"))
    tick(one)
    assert slot_used(one) == pytest.approx(11, abs=1), "a slot for one interval"
    assert admitted(one.decide(work("w2"), work("w3", to="other"))) == ["w3"]


CHECK = AdmissionCheckChanged(cluster=CLUSTER, name="c")


def checked(slot: int) -> Bench:
    """As `bench`, and what has quota waits for a check."""
    rule = CheckRule(name="c")
    facts = (queue("q", slots(slot), usage_based=True, checks=(rule,)), local("other", "q"))
    return Bench(CHECK, *facts, policy=POLICY)


def ready(name: str, *, at: int) -> CheckStateChanged:
    return CheckStateChanged(
        cluster=CLUSTER, namespace="ns", name=name, uid=f"uid-{name}", check="c", state="Ready", at=at,
    )  # fmt: skip


def test_reservation_that_waits_for_a_check_has_a_price_and_no_usage() -> None:
    one = checked(2)
    one.decide(work("w1"))
    for _ in range(3):
        tick(one)
    assert slot_used(one) == 0
    assert admitted(one.decide(work("w2"), work("w3", to="other"))) == ["w3"]
    one.now += 30 * SECOND
    one.decide(ready("w1", at=one.now))
    assert slot_used(one) == pytest.approx(17, abs=1), "its price, and the seconds since the sample"


@pytest.mark.parametrize("end", [finished("w1"), work("w1", active=False)])
def test_price_goes_with_what_cannot_be_admitted_any_more(end: Any) -> None:
    one = checked(1)
    one.decide(work("w1"))
    one.decide(end, drained("w1"))
    assert admitted(one.decide(work("w2"), work("w3", to="other"))) == ["w2"]


@pytest.mark.parametrize(
    ("state", "first"), [("reserved", "w3"), ("admitted", "w2")], ids=["pending", "charged before"]
)
def test_price_of_a_reservation_is_pending_again_after_a_restart(state: Any, first: str) -> None:
    one = checked(2)
    one.take(*(local(name, "q", consumed={}, consumed_at=one.now) for name in ("q", "other")))
    since = replace(held("w1"), state=state, checks=("c",), at=one.now - SECOND)
    one.decide(since, work("w1"))
    assert admitted(one.decide(work("w2"), work("w3", to="other"))) == [first]


def test_price_goes_when_its_workload_is_admitted_in_another_mode() -> None:
    one, rule = checked(2), CheckRule(name="c")
    one.decide(work("w1"))
    one.decide(queue("q", slots(2), checks=(rule,)))
    one.decide(ready("w1", at=one.now))
    one.decide(queue("q", slots(2), usage_based=True, checks=(rule,)))
    assert admitted(one.decide(work("w2"), work("w3", to="other"))) == ["w2"]


def test_own_record_read_back_changes_nothing() -> None:
    one = bench()
    one.decide(work("w1"))
    tick(one)
    known = view(one, "q")
    one.decide(local("q", consumed={"slot": 9_000}, consumed_at=one.now - HOUR))
    assert view(one, "q") == known


def test_recorded_usage_wakes_no_workload() -> None:
    one = bench()
    one.decide(work("w1"), work("w2"))
    one.take(local("q", consumed={"slot": 1}, consumed_at=one.now))
    assert not one.engine.needs_another_cycle


def test_published_usage_is_restored_unchanged() -> None:
    one = bench()
    one.decide(work("w1"))
    for _ in range(60):
        tick(one)
    [said] = [s for s in queue_statuses(one.engine, CLUSTER, NOON) if s.kind == "LocalQueue"]
    assert said.consumed is not None
    assert said.consumed_at is not None
    sharing = {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": said.consumed,
            "lastUpdate": said.consumed_at.isoformat(),
        },
    }
    fact = local_queue(CLUSTER, obj(status={"fairSharing": sharing}))
    seen = view(one, "q")
    assert (fact.consumed, fact.consumed_at) == (seen.consumed, seen.sampled_at)


def obj(**more: Any) -> Body:
    metadata = {"name": "q", "namespace": "ns"}
    return as_body({"metadata": metadata, "spec": {"clusterQueue": "q"}, **more})


UNREADABLE: dict[str, Any] = {
    "no time": {"consumedResources": {"cpu": "1"}},
    "no quantity": {"consumedResources": {"cpu": "much"}, "lastUpdate": "2026-01-01T00:00:00Z"},
    "no map": {"consumedResources": ["cpu"], "lastUpdate": "2026-01-01T00:00:00Z"},
    "no time that is one": {"consumedResources": {}, "lastUpdate": "yesterday"},
    "not a record at all": "much",
}


@pytest.mark.parametrize("record", UNREADABLE.values(), ids=list(UNREADABLE))
def test_unreadable_usage_record_is_ignored(record: Any) -> None:
    status = {"fairSharing": {"admissionFairSharingStatus": record}}
    assert local_queue(CLUSTER, obj(status=status)) == local_queue(CLUSTER, obj())


def test_usage_record_with_suffix_is_read_exactly() -> None:
    status = {
        "fairSharing": {
            "admissionFairSharingStatus": {
                "consumedResources": {"cpu": "1500m", "memory": "1Gi"},
                "lastUpdate": "1970-01-01T00:01:00Z",
            }
        }
    }
    fact = local_queue(CLUSTER, obj(status=status))
    assert fact == replace(
        fact, consumed={"cpu": 1500, "memory": 1024**3 * 1000}, consumed_at=60 * SECOND
    )
