"""Checks beside MultiKueue's: who answers them where, and that no copy is offered before all are ready."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.dispatcher.hub.configuration import MultiKueueConfiguration
from services.dispatcher.hub.other_checks import OtherChecks
from shared.bus.port import CaughtUp, Entry
from shared.contracts.controllers import MACHINES, MULTIKUEUE, PROVISIONING, WINDOW
from shared.contracts.kube import kinds
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.workloads import RecordedCheck, WorkloadState
from shared.testing.builders import admission, observed, workload
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.dispatcher.harness import CHECK, Harness, job, workload_of

DECIDED = datetime(2026, 1, 1, 12, 0, 10, 600_000, tzinfo=UTC)
CONTROLLERS = {
    "multikueue": MULTIKUEUE, "machines": MACHINES, "window": WINDOW, "budget": "example.com/budget",
    "provisioning": PROVISIONING,
}  # fmt: skip
"""Controller of each AdmissionCheck of the hub."""


def on_bus(
    check: str, *, service: Any, state: Any = "Ready", second: float = 11, uid: str = "u-job"
) -> CheckState:
    at = DECIDED.replace(second=0, microsecond=0) + timedelta(seconds=second)
    return CheckState(
        cluster="hub", namespace="team", name="job", uid=uid, check=check, service=service, state=state,
        at=at,
    )  # fmt: skip


def in_status(check: str, state: Any = "Ready", second: float = 11) -> RecordedCheck:
    at = DECIDED.replace(second=0, microsecond=0) + timedelta(seconds=second)
    return RecordedCheck(check=check, state=state, at=at)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Who has answered when, and which of the checks are pending then."""

    checks: tuple[str, ...] = ("multikueue", "budget")
    bus: tuple[CheckState, ...] = ()
    status: tuple[RecordedCheck, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)
    lost: bool = False
    """Quota was taken back after these answers, and was given again."""

    later: tuple[tuple[RecordedCheck, ...], ...] = ()
    """What the status shows after the new reservation, one after the other."""

    pending: tuple[str, ...] = ()


CASES = {
    "nobody has answered": Case(pending=("budget",)),
    "a foreign check is ready in the status": Case(status=(in_status("budget"),)),
    "the check of the autoscaler is ready in the status": Case(
        checks=("multikueue", "provisioning"), status=(in_status("provisioning"),)
    ),
    "a foreign check is pending in the status": Case(
        status=(in_status("budget", "Pending"),), pending=("budget",)
    ),
    "a foreign check is rejected in the status": Case(
        status=(in_status("budget", "Rejected"),), pending=("budget",)
    ),
    "a foreign check was ready for an earlier reservation": Case(
        status=(in_status("budget", second=9),), pending=("budget",)
    ),
    "a foreign check is ready in the second of the reservation": Case(
        status=(in_status("budget", second=10),)
    ),
    "one of two foreign checks is ready": Case(
        checks=("multikueue", "budget", "provisioning"),
        status=(in_status("budget"), in_status("provisioning", "Pending")),
        pending=("provisioning",),
    ),
    "the status is that of an earlier job of the name": Case(
        status=(in_status("budget"),), state={"uid": "u-earlier"}, pending=("budget",)
    ),
    "the workload is being evicted": Case(
        status=(in_status("budget"),), state={"evicted": True}, pending=("budget",)
    ),
    "a foreign check is answered on the bus by a service of ours": Case(
        bus=(on_bus("budget", service="provisioner"),), pending=("budget",)
    ),
    "a check of ours is answered in the status by somebody": Case(
        checks=("multikueue", "machines"), status=(in_status("machines"),), pending=("machines",)
    ),
    "a check of ours is answered on the bus by its service": Case(
        checks=("multikueue", "machines"), bus=(on_bus("machines", service="provisioner"),)
    ),
    "a check of ours is answered on the bus by another service": Case(
        checks=("multikueue", "machines"),
        bus=(on_bus("machines", service="dispatcher"),),
        pending=("machines",),
    ),
    "a foreign check and two of ours are ready, each where its controller answers": Case(
        checks=("multikueue", "budget", "machines", "window"),
        bus=(on_bus("machines", service="provisioner"), on_bus("window", service="dispatcher")),
        status=(in_status("budget"),),
    ),
    "a check that does not exist is answered in both places": Case(
        checks=("multikueue", "none"),
        bus=(on_bus("none", service="provisioner"),),
        status=(in_status("none"),),
        pending=("none",),
    ),
    "the answer to a reservation of the same second is still there": Case(
        status=(in_status("budget", second=10),), lost=True, pending=("budget",)
    ),
    "the answer to a reservation of the same second is shown again": Case(
        status=(in_status("budget", second=10),),
        lost=True,
        later=((in_status("budget", second=10),),),
        pending=("budget",),
    ),
    "a foreign check is ready anew after quota was taken back": Case(
        status=(in_status("budget", second=10),),
        lost=True,
        later=((in_status("budget", second=12),),),
    ),
    "a foreign check takes its answer back": Case(
        status=(in_status("budget"),),
        later=((in_status("budget", "Retry", second=12),),),
        pending=("budget",),
    ),
    "the status has lost the answer": Case(
        status=(in_status("budget"),), later=((),), pending=("budget",)
    ),
    "the same answer is given once more after another one": Case(
        status=(in_status("budget", second=10),),
        lost=True,
        later=((in_status("budget", "Pending", second=10),), (in_status("budget", second=10),)),
    ),
    "a check of ours was ready in the same second before quota was taken back": Case(
        checks=("multikueue", "machines"),
        bus=(on_bus("machines", service="provisioner"),),
        lost=True,
        pending=("machines",),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_check_is_pending_until_its_own_controller_answers_this_reservation(case: Case) -> None:
    configuration = MultiKueueConfiguration(cluster="hub")
    for name, controller in CONTROLLERS.items():
        configuration.observe(observed(kinds.ADMISSION_CHECK, name, {"controllerName": controller}))
    others = OtherChecks(configuration)
    for answer in case.bus:
        others.observe_answer(answer)
    about = workload("job", checks=list(case.status), **case.state)
    others.observe_workload(about)
    if case.lost:
        others.on_quota_lost(about.ref)
    for shown in case.later:
        others.observe_workload(workload("job", checks=list(shown), **case.state))
    reserved = admission(workload("job"), "reserved", checks=list(case.checks), decided_at=DECIDED)
    assert others.pending(reserved) == case.pending


@pytest.mark.parametrize("first", ["its end", "the end of its quota"])
def test_other_checks_forget_a_workload_that_is_gone(first: str) -> None:
    others = OtherChecks(MultiKueueConfiguration(cluster="hub"))
    about = workload("job", checks=[in_status("budget")])
    others.observe_workload(about)
    others.observe_answer(on_bus("machines", service="provisioner"))
    ends: dict[str, Callable[[], object]] = {
        "its end": lambda: others.observe_workload(about.gone()),
        "the end of its quota": lambda: others.on_quota_lost(about.ref),
    }
    for end in sorted(ends, key=lambda name: name != first):
        ends[end]()
    assert not any((others._answers, others._states, others._void))


def late(log: str) -> Any:
    """A `watch` that is slow to read one log."""
    watch = MemoryBus.watch

    async def slow(bus: MemoryBus, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp]:
        await asyncio.sleep(10 if stream == log else 0)
        async with aclosing(watch(bus, stream, *filters)) as items:
            async for item in items:
                yield item

    return slow


@pytest.mark.parametrize("first", ["the status", "the check", "the reservation"])
def test_copy_is_offered_once_a_foreign_check_is_ready_in_the_status(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order in which the streams may bring them."""
    with Harness() as harness:
        train = job()

        async def show(state: Any) -> None:
            check = RecordedCheck(check="budget", state=state, at=harness.world.now())
            await harness.bus.publish(
                WorkloadState(
                    cluster="hub", namespace="team-a", name=workload_of(), uid="uid-train", phase="waiting",
                    created_at=DECIDED, checks=[check],
                )
            )  # fmt: skip

        async def drive() -> None:
            steps = {
                "the status": lambda: show("Pending"),
                "the check": lambda: harness.observe(
                    kinds.ADMISSION_CHECK,
                    {"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/b"}},
                ),
                "the reservation": lambda: harness.decide(train, "reserved", CHECK, "budget"),
            }
            await harness.submit(train)
            for step in sorted(steps, key=lambda name: name != first):
                await steps[step]()
                await asyncio.sleep(5)
            pending = await harness.until_check("Pending")
            assert pending.message == "The workload waits for other admission checks: budget"
            await asyncio.sleep(30)
            assert await harness.last_order("east") is None
            await show("Ready")
            offered = await harness.until_order("east", "offered")
            # The next term gets the answer last of all, and plans nothing before that.
            monkeypatch.setattr(MemoryBus, "watch", late("WORKLOADS"))
            harness.world.crash("dispatcher", down_seconds=1)
            await asyncio.sleep(60)
            assert await harness.last_order("east") == offered

        harness.run(drive)
