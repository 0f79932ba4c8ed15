"""What `sluice demo --spokes` shows and checks, on played logs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from services.ctl.demo.spokes import distribution, judge
from services.simulator.judge.message_logs import read_logs
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.workloads import JobRef

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPOKES = ("spoke-1", "spoke-2")


def order(spoke: str, state: Any, name: str = "a", *, kind: str = "Job") -> Dispatch:
    target = JobRef(api_version="v1", kind=kind, plural="any", name=name, uid=name)
    return Dispatch(
        spoke=spoke, cluster="hub", namespace="team", name=name, uid=name, state=state,
        target=target, at=NOON,
    )  # fmt: skip


def test_distribution_has_a_line_for_each_spoke_even_without_work() -> None:
    orders = [
        order("spoke-1", "offered"),
        order("spoke-1", "chosen"),
        order("spoke-1", "chosen"),
        order("spoke-1", "chosen", "b", kind="PipelineRun"),
        order("spoke-2", "offered", "b"),
    ]
    first, second = distribution(orders, SPOKES)
    assert first.split() == ["spoke-1", "2", "#" * 30, "1", "PipelineRuns,", "1", "Jobs"]
    assert second.split() == ["spoke-2", "0", "0", "PipelineRuns,", "0", "Jobs"]


CASES: dict[str, tuple[list[Dispatch], str, str]] = {
    "a spoke without work": (
        [order("spoke-1", "offered"), order("spoke-1", "chosen")],
        "every spoke had a share", "spoke-2 ran nothing",
    ),
    "two at once": (
        [order("spoke-1", "chosen"), order("spoke-2", "chosen")],
        "nobody ran on two spokes", "team/a was chosen on 2 spokes at once",
    ),
    "copies everywhere": (
        [order("spoke-1", "offered"), order("spoke-2", "offered")],
        "at most 1.1 copies were made for a workload, on average", "2 copies for 1 workloads",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("orders", "check", "problem"), CASES.values(), ids=CASES.keys())
def test_each_fault_of_spokes_is_found(orders: list[Dispatch], check: str, problem: str) -> None:
    found = judge(read_logs([]), orders, [], spokes=SPOKES, stuck=[], left=[])
    assert found[check] == [problem]


def test_running_on_two_spokes_in_turn_is_no_fault() -> None:
    orders = [
        order("spoke-1", "chosen"),
        order("spoke-1", "withdrawn"),
        order("spoke-2", "chosen"),
    ]
    found = judge(read_logs([]), orders, [], spokes=SPOKES, stuck=[], left=[])
    assert found["nobody ran on two spokes"] == []
    assert found["every spoke had a share"] == []
