"""Deactivation by quota sets `spec.active` to false once; retention deletes what stays inactive."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.patcher.workloads.retention import deletion_of
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.messages.workloads import WorkloadState
from shared.settings.configuration import WorkloadRetention
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import Setup

REASON = "DeactivatedDueToRequeuingLimitExceeded"
TEXT = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
Json = dict[str, Any]


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    yield subject
    while subject._running:
        await subject.kill_patcher()
    await subject.bus.stop()


async def put_out(setup: Setup) -> WorkloadState:
    """A job that was admitted, and that quota puts out."""
    await setup.flavor()
    state = await setup.submit()
    await setup.start_patcher()
    await setup.decide(state, "admitted")
    await eventually(lambda: has(setup, state, "Admitted"))
    await setup.decide(state, "evicted", reason=REASON, message=TEXT, deactivate=True)
    await eventually(lambda: is_inactive(setup, state))
    await eventually(lambda: has_no_mark(setup, state))
    return state


async def has(setup: Setup, state: WorkloadState, type_: str) -> bool:
    return (await setup.conditions(state)).get(type_) == "True"


async def is_inactive(setup: Setup, state: WorkloadState) -> bool:
    return ((await setup.workload(state)) or {})["spec"].get("active") is False


async def has_no_mark(setup: Setup, state: WorkloadState) -> bool:
    return "DeactivationTarget" not in await setup.conditions(state)


async def test_deactivation_sets_condition_then_active_then_removes_condition(setup: Setup) -> None:
    state = await put_out(setup)
    assert (await setup.conditions(state))["Evicted"] == "True"

    async def told() -> bool:
        return ("Workload", f"EvictedDueTo{REASON}", TEXT) in await setup.events()

    await eventually(told)


async def test_reactivation_by_a_user_is_not_reverted_by_the_same_decision(
    setup: Setup,
) -> None:
    state = await put_out(setup)
    obj = await setup.workload(state) or {}
    await setup.kube.patch(WORKLOAD, "default", state.name, {"spec": {"active": True}})
    assert obj["spec"]["active"] is False
    await setup.kill_patcher()
    # Not even by a patcher that knows the decision only, and is given it again.
    await setup.start_patcher()
    await setup.decide(state, "evicted", reason=REASON, message=TEXT, deactivate=True)
    await setup.decide(state, "waiting", reason="PendingEvaluation", deactivate=True)

    async def waits() -> bool:
        return (await setup.conditions(state)).get("QuotaReserved") == "False"

    await eventually(waits)
    assert not await is_inactive(setup, state)


async def test_deactivation_completes_after_a_crash_between_its_writes(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.start_patcher()
    await setup.decide(state, "admitted")
    await eventually(lambda: has(setup, state, "Admitted"))
    await setup.kill_patcher()
    # As it left it: marked, not yet inactive.
    obj = await setup.workload(state) or {}
    marks = [
        {"type": type_, "status": "True", "reason": reason, "message": TEXT}
        for type_, reason in (("Evicted", REASON), ("DeactivationTarget", "RequeuingLimitExceeded"))
    ]
    since = {"lastTransitionTime": "2026-01-01T12:00:00Z"}
    status = {"conditions": [*obj["status"]["conditions"], *(m | since for m in marks)]}
    await setup.kube.patch(
        WORKLOAD, "default", state.name, {"status": status}, subresource="status"
    )
    await setup.decide(state, "evicted", reason=REASON, message=TEXT, deactivate=True)
    await setup.start_patcher()
    await eventually(lambda: is_inactive(setup, state))
    await eventually(lambda: has_no_mark(setup, state))


# Retention -----------------------------------------------------------------------------------------

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
POLICY = WorkloadRetention(after_finished="1h", after_deactivated_by_kueue="10m")


def ended(*conditions: tuple[str, str], active: bool = True, **metadata: Any) -> Json:
    found = [
        {
            "type": type_,
            "status": "True",
            "reason": reason,
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
        for type_, reason in conditions
    ]
    meta = {"namespace": "team-a", "name": "job-train", "uid": "w", "ownerReferences": [OWNER]}
    return {
        "metadata": {**meta, **metadata},
        "spec": {"active": active},
        "status": {"conditions": found},
    }


BY_US = ("Evicted", REASON)
FATES: dict[str, tuple[Json, WorkloadRetention, tuple[str, float] | None]] = {
    "a finished workload goes when its time is up": (
        ended(("Finished", "Succeeded")), POLICY, ("job-train", 3600),
    ),
    "the job of one that quota deactivated goes with it": (
        ended(BY_US, active=False), POLICY, ("train", 600),
    ),
    "one that a user deactivated is kept": (
        ended(("Evicted", "Deactivated"), active=False), POLICY, None,
    ),
    "one that was activated again is kept": (ended(BY_US), POLICY, None),
    "one that still holds quota is kept": (
        ended(BY_US, ("QuotaReserved", "QuotaReserved"), active=False), POLICY, None,
    ),
    "somebody else's is kept, for its owner is not ours to delete": (
        ended(BY_US, active=False, ownerReferences=[]), POLICY, None,
    ),
    "nothing configured, nothing deleted": (
        ended(("Finished", "Succeeded")), WorkloadRetention(), None,
    ),
    "no time at all is a time": (
        ended(("Finished", "Succeeded")), WorkloadRetention(after_finished="0s"), ("job-train", 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "policy", "expected"), FATES.values(), ids=FATES.keys())
def test_retention_deletes_what_the_policy_names(
    obj: Json, policy: WorkloadRetention, expected: tuple[str, float] | None
) -> None:
    fate = deletion_of(as_body(obj), policy)
    if expected is None:
        assert fate is None
        return
    assert fate is not None
    name, seconds = expected
    since = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert (fate.metadata["name"], fate.at) == (name, since + timedelta(seconds=seconds))
