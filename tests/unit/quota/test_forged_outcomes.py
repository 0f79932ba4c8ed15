"""What a patcher in an attacker's hands can have quota believe: nothing of what the watcher sees run."""

from itertools import product
from typing import Any

import pytest

from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import JobRef
from shared.testing.builders import workload
from tests.unit.quota.service_setup import NOON
from tests.unit.quota.test_trust import Stage

ACTIONS = ("release", "suspend", "reserve", "finish", "hold")
RESULTS = ("applied", "refused", "gone")
VERSIONS = ("", "0", "1", "999999")
OWNER = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="x", uid="u-x")
RUNNING = {
    "its pods run": {"held": False, "pods_active": True},
    "it has no pods yet": {"held": False, "pods_active": False},
    "it was stopped, and its pods end": {"held": True, "pods_active": True},
}


def lies(stage: Stage) -> list[Outcome]:
    """Every outcome that can be said of the last decision about x."""
    last = [each for each in stage.sent if each.name == "x"][-1]
    return [
        Outcome.model_validate(
            {"cluster": "hub", "namespace": "team", "name": "x", "uid": "u-x", "at": NOON,
             "term": last.term, "number": last.number, "message": "forged",
             "action": action, "result": result, "version": version}
        )
        for action, result, version in product(ACTIONS, RESULTS, VERSIONS)
    ]  # fmt: skip


def states(stage: Stage, name: str) -> list[str]:
    return [each.state for each in stage.sent if each.name == name]


@pytest.mark.parametrize("seen", RUNNING.values(), ids=RUNNING)
def test_no_outcome_gives_back_quota_of_what_is_seen_to_run(seen: dict[str, Any]) -> None:
    stage = Stage()
    assert states(stage, "x") == ["admitted"]
    stage.apply(workload("x", phase="running", version="2", **seen))
    stage.apply(workload("y"))
    # The first lies may have it evicted; then come those about the eviction.
    for _ in range(3):
        for lie in lies(stage):
            stage.apply(lie)
            assert "admitted" not in states(stage, "y"), (lie.action, lie.result, lie.version)
    stage.apply(workload("x", phase="gone", version="3"))
    assert states(stage, "y")[-1] == "admitted", "it waits for what runs, and for nothing else"


@pytest.mark.parametrize("action", ["release", "suspend"])
def test_lie_before_anything_is_seen_to_run_counts_until_the_watcher_has_seen_it(
    action: str,
) -> None:
    stage = Stage()
    stage.apply(workload("y"))
    result = "refused"
    if action == "suspend":
        stage.apply(workload("x", active=False, generation=1))
        result = "applied"
    for lie in lies(stage):
        if (lie.action, lie.result) == (action, result):
            stage.apply(lie)
    assert states(stage, "y")[-1] == "admitted", "nobody but the patcher could know better"
    # It had started x: the watcher sees it, quota counts it beside y and has it stopped.
    runs: dict[str, Any] = {"phase": "running", "held": False, "pods_active": True, "owner": OWNER}
    stage.apply(workload("x", version="2", **runs))
    assert states(stage, "x")[-1] == "evicted"
    stage.apply(workload("y", phase="gone", version="2"))
    stage.apply(workload("z"))
    for lie in lies(stage):
        stage.apply(lie)
    assert "admitted" not in states(stage, "z"), "x runs"
    stage.apply(workload("x", phase="gone", version="3"))
    assert states(stage, "z")[-1] == "admitted"
