"""What a patcher in an attacker's hands can have quota believe: nothing of what the watcher sees run."""

from itertools import product
from typing import Any

import pytest

from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import JobRef
from shared.testing.builders import workload
from tests.unit.quota.service_setup import NOON
from tests.unit.quota.test_trust import Desk

ACTIONS = ("release", "suspend", "reserve", "finish", "hold")
RESULTS = ("applied", "refused", "gone")
VERSIONS = ("", "0", "1", "999999")
OWNER = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="x", uid="u-x")
RUNNING = {
    "its pods run": {"held": False, "pods_active": True},
    "it has no pods yet": {"held": False, "pods_active": False},
    "it was stopped, and its pods end": {"held": True, "pods_active": True},
}


def lies(desk: Desk) -> list[Outcome]:
    """Every outcome that can be said of the last decision about x."""
    last = [each for each in desk.sent if each.name == "x"][-1]
    return [
        Outcome.model_validate(
            {"cluster": "hub", "namespace": "team", "name": "x", "uid": "u-x", "at": NOON,
             "term": last.term, "number": last.number, "message": "forged",
             "action": action, "result": result, "version": version}
        )
        for action, result, version in product(ACTIONS, RESULTS, VERSIONS)
    ]  # fmt: skip


def states(desk: Desk, name: str) -> list[str]:
    return [each.state for each in desk.sent if each.name == name]


@pytest.mark.parametrize("seen", RUNNING.values(), ids=RUNNING)
def test_no_outcome_gives_back_quota_of_what_is_seen_to_run(seen: dict[str, Any]) -> None:
    desk = Desk()
    assert states(desk, "x") == ["admitted"]
    desk.apply(workload("x", phase="running", version="2", **seen))
    desk.apply(workload("y"))
    # The first lies may have it evicted; then come those about the eviction.
    for _ in range(3):
        for lie in lies(desk):
            desk.apply(lie)
            assert "admitted" not in states(desk, "y"), (lie.action, lie.result, lie.version)
    desk.apply(workload("x", phase="gone", version="3"))
    assert states(desk, "y")[-1] == "admitted", "it waits for what runs, and for nothing else"


@pytest.mark.parametrize("action", ["release", "suspend"])
def test_lie_before_anything_is_seen_to_run_counts_until_the_watcher_has_seen_it(
    action: str,
) -> None:
    desk = Desk()
    desk.apply(workload("y"))
    result = "refused"
    if action == "suspend":
        desk.apply(workload("x", active=False, generation=1))
        result = "applied"
    for lie in lies(desk):
        if (lie.action, lie.result) == (action, result):
            desk.apply(lie)
    assert states(desk, "y")[-1] == "admitted", "nobody but the patcher could know better"
    # It had started x: the watcher sees it, quota counts it beside y and has it stopped.
    runs: dict[str, Any] = {"phase": "running", "held": False, "pods_active": True, "owner": OWNER}
    desk.apply(workload("x", version="2", **runs))
    assert states(desk, "x")[-1] == "evicted"
    desk.apply(workload("y", phase="gone", version="2"))
    desk.apply(workload("z"))
    for lie in lies(desk):
        desk.apply(lie)
    assert "admitted" not in states(desk, "z"), "x runs"
    desk.apply(workload("x", phase="gone", version="3"))
    assert states(desk, "z")[-1] == "admitted"
