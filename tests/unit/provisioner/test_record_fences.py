"""The record of a platform is fenced by the log, which may have an earlier one than the view."""

import pytest

from services.provisioner.store import Store
from shared.contracts.messages.hosts import PlatformState
from shared.testing.builders import NOON

PLATFORM = "linux/arm64"


def record(run: str) -> PlatformState:
    return PlatformState(cluster="hub", platform=PLATFORM, returned={"uid": run}, at=NOON)


@pytest.mark.parametrize(
    ("in_the_log", "holds"),
    [
        pytest.param(3, "team-a:view", id="the log has lost the view's record"),
        pytest.param(5, "team-a:view", id="the log has the view's record"),
        pytest.param(7, "team-a:log", id="the log is further than the view"),
    ],
)
def test_next_record_is_fenced_by_the_log_and_goes_on_from_the_newer_one(
    in_the_log: int, holds: str
) -> None:
    store = Store(cluster="hub", host_config=("system", "hosts"), providers=frozenset())
    store.apply_platform_state(record("team-a:view"), 5)
    known = store.records[PLATFORM]
    store.fence_record(known, record("team-a:log"), in_the_log)
    assert store.records[PLATFORM].sequence == in_the_log
    assert store.ledger(PLATFORM).returned["uid"] == holds


def test_record_that_was_written_while_the_log_was_asked_keeps_its_fence() -> None:
    store = Store(cluster="hub", host_config=("system", "hosts"), providers=frozenset())
    store.apply_platform_state(record("team-a:view"), 5)
    asked_for = store.records[PLATFORM]
    store.store_record(store.ledger(PLATFORM), 9)
    store.fence_record(asked_for, record("team-a:view"), 5)
    assert store.records[PLATFORM].sequence == 9
