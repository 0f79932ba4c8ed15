"""Reasons of workloads that nobody evaluates: behind the head of a strict queue, and after a blockage."""

from datetime import UTC, datetime
from typing import Any

import pytest

from services.quota.engine.facts import LocalQueueGone, Wait
from services.quota.engine.scheduling.messages import NOT_YET_EVALUATED
from services.quota.wire.outbound import is_less_specific
from shared.contracts.messages.admissions import Admission
from tests.unit.quota.builders import CLUSTER, Bench, finished, local, queue, slots, waits, work

STRICT = "StrictFIFO"
BEST_EFFORT = "BestEffortFIFO"


class LastReasons:
    """A queue of one slot, and the last reason that each workload was told."""

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.bench = Bench(self.queue())
        self.reasons: dict[str, str] = {}

    def queue(self, **more: Any) -> Any:
        return queue("q", slots(1), strategy=self.strategy, **more)

    def tell(self, *facts: Any) -> dict[str, str]:
        self.reasons |= waits(self.bench.decide(*facts))
        self.reasons |= waits(list(self.bench.engine.unpublished_reasons(100)))
        return self.reasons


@pytest.fixture(params=[STRICT, BEST_EFFORT])
def shown(request: pytest.FixtureRequest) -> LastReasons:
    shown = LastReasons(request.param)
    shown.tell(*(work(f"w{n}", created_at=n) for n in range(1, 4)))
    return shown


def behind(shown: LastReasons) -> str:
    """What whoever comes after the head is told."""
    return "PendingEvaluation" if shown.strategy == STRICT else "WaitingForQuota"


def test_each_workload_behind_the_head_has_a_reason(shown: LastReasons) -> None:
    assert shown.reasons == {"w2": "WaitingForQuota", "w3": behind(shown)}
    assert shown.tell(finished("w1"))["w3"] == "WaitingForQuota", "it is the head now"


BLOCKAGES: dict[str, tuple[list[Any], list[Any], str]] = {
    "a LocalQueue that was away": (
        [LocalQueueGone(cluster=CLUSTER, namespace="ns", name="q")],
        [local("q")],
        "Misconfigured",
    ),
    "a LocalQueue that was stopped": ([local("q", stop="Hold")], [local("q")], "Suspended"),
    "a gate": (
        [work("w3", created_at=3, generation=2, gated="a")],
        [work("w3", created_at=3, generation=3)],
        "AdmissionGated",
    ),
    "a workload that was deactivated": (
        [work("w3", created_at=3, generation=2, active=False)],
        [work("w3", created_at=3, generation=3)],
        "Deactivated",
    ),
}


@pytest.mark.parametrize("case", BLOCKAGES)
def test_reason_of_a_blockage_ends_with_it(shown: LastReasons, case: str) -> None:
    blockage, end, reason = BLOCKAGES[case]
    assert shown.tell(*blockage)["w3"] == reason
    assert shown.tell(*end) == {"w2": "WaitingForQuota", "w3": behind(shown)}


def test_each_workload_in_a_queue_gets_its_reason_when_the_queue_stops_and_resumes(
    shown: LastReasons,
) -> None:
    stopped = shown.tell(shown.queue(stop="Hold"))
    assert stopped == {"w2": "Suspended", "w3": "Suspended"}
    assert shown.tell(shown.queue()) == {"w2": "WaitingForQuota", "w3": behind(shown)}


@pytest.mark.parametrize(
    ("reason", "uid", "message", "less"),
    [
        ("WaitingForQuota", "u", NOT_YET_EVALUATED, True),
        ("Suspended", "u", NOT_YET_EVALUATED, False),
        ("WaitingForQuota", "another", NOT_YET_EVALUATED, False),
        ("WaitingForQuota", "u", "Gave its quota back: Preempted", False),
    ],
)
def test_restarted_engine_does_not_take_a_reason_back(
    reason: str, uid: str, message: str, less: bool
) -> None:
    shown = Admission(
        cluster="hub", namespace="ns", name="w", uid=uid, term=1, number=1, state="waiting",
        decided_at=datetime(2026, 1, 1, tzinfo=UTC), reason=reason, message="known",
    )  # fmt: skip
    wait = Wait(cluster="hub", key="ns/w", uid="u", reason="PendingEvaluation", message=message)
    assert is_less_specific(wait, shown) == less
    assert not is_less_specific(wait, None)
