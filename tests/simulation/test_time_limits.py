"""Clocks in a few unkind worlds on every run; `make simulate SCENARIO=lives` plays hundreds."""

import pytest

from services.quota.lifecycle.timers import LifecycleTimers
from services.quota.lifecycle.workload import WorkloadLifecycle
from services.simulator.scenarios import SCENARIOS


@pytest.mark.parametrize("seed", [1, 2, 5, 9])
def test_no_clock_is_lost_cut_short_or_counted_twice(seed: int) -> None:
    assert SCENARIOS["lives"](seed).problems == []


def test_the_judge_sees_a_leader_that_does_not_read_what_earlier_ones_had_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LifecycleTimers, "restore", lambda *_: None)
    monkeypatch.setattr(
        WorkloadLifecycle,
        "from_workload_state",
        classmethod(lambda _, state: WorkloadLifecycle(uid=state.uid)),
    )
    assert any(SCENARIOS["lives"](seed).problems for seed in (2, 5, 9))
