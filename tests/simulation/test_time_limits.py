"""Clocks in a few unkind worlds on every run; `make simulate SCENARIO=lives` plays hundreds."""

import pytest

from services.quota.lifecycle.timers import LifecycleTimers
from services.quota.lifecycle.workload import WorkloadLifecycle
from services.simulator.scenarios import SCENARIOS
from tests.simulation.mistakes import finds


@pytest.mark.parametrize("seed", [1, 2, 5, 9])
def test_time_limits_are_neither_lost_shortened_nor_counted_twice(seed: int) -> None:
    assert SCENARIOS["lives"](seed).problems == []


def test_judge_finds_a_leader_that_skips_timers_of_its_predecessors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LifecycleTimers, "restore", lambda *_: None)
    monkeypatch.setattr(
        WorkloadLifecycle,
        "from_workload_state",
        classmethod(lambda _, state: WorkloadLifecycle(uid=state.uid)),
    )
    assert finds(SCENARIOS["lives"], "its count goes from", 5)
