"""Answers of admission checks in the status of a Workload, as in Kueue."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.patcher.workloads.status import status_for
from services.simulator.local import LocalKube
from shared.contracts.controllers import WINDOW
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.messages.admissions import Admission, AdmissionState
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup

Json = dict[str, Any]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def shown(seconds: int) -> str:
    return at(seconds).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def decided(state: AdmissionState, second: int, *checks: str, **more: Any) -> Admission:
    return Admission(
        cluster="hub", namespace="team-a", name="w", uid="u", state=state, term=1, number=second + 1,
        decided_at=at(second), cluster_queue="cq", checks=list(checks), **more,
    )  # fmt: skip


def says(state: Any, second: float, message: str = "", **more: Any) -> CheckState:
    given: Json = {"check": "machines", "uid": "u", **more}
    return CheckState(
        cluster="hub", namespace="team-a", name="w", state=state, message=message, at=at(second),
        **given,
    )  # fmt: skip


Step = tuple[Admission, list[CheckState]]


def written(*steps: Step, listed: list[Json] | None = None) -> list[Json] | None:
    """What stands there after each step was carried out, each of them twice."""
    status: Json = {} if listed is None else {"admissionChecks": listed}
    for admission, said in steps:
        for _ in range(2):
            obj = {"metadata": {"generation": 1}, "status": status}
            status = status_for(as_body(obj), admission, None, said)
    return status.get("admissionChecks")


RESERVED = decided("reserved", 10, "machines")
READY = says("Ready", 20.5, "machines are ready")
RETRY = says("Retry", 20, "no capacity", requeue_after_seconds=60.0)
EVICTED = decided("evicted", 21, "machines", reason="AdmissionCheck")
AGAIN = decided("reserved", 90, "machines")


def entry(state: str, second: int, message: str = "", **more: Any) -> Json:
    return {
        "name": "machines", "state": state, "lastTransitionTime": shown(second), "message": message,
        **more,
    }  # fmt: skip


def put_back(second: int, **more: Any) -> Json:
    return entry("Pending", second, "Reset to Pending after eviction. Previously: Retry", **more)


LIVES: dict[str, tuple[list[Step], list[Json] | None]] = {
    "without a check nothing is there": ([(decided("admitted", 10), [])], None),
    "who waits for quota has none yet": ([(decided("waiting", 5), [])], None),
    "with its reservation each check is pending": ([(RESERVED, [])], [entry("Pending", 10)]),
    "what is said changes the text and not the time": (
        [(RESERVED, []), (RESERVED, [says("Pending", 15, "machine m-1 is starting")])],
        [entry("Pending", 10, "machine m-1 is starting")],
    ),
    "ready is since it was said": ([(RESERVED, [READY])], [entry("Ready", 20, "machines are ready")]),
    "and stays so with the admission": (
        [(RESERVED, [READY]), (decided("admitted", 21, "machines"), [READY])],
        [entry("Ready", 20, "machines are ready")],
    ),
    "who is admitted before the answer was read has it all the same": (
        [(RESERVED, []), (decided("admitted", 21, "machines"), [])],
        [entry("Ready", 21)],
    ),
    "though an older word of the check was read": (
        [(RESERVED, []), (decided("admitted", 21, "machines"), [says("Pending", 15, "starting")])],
        [entry("Ready", 21)],
    ),
    "a check that fails later is seen": (
        [(decided("admitted", 21, "machines"), [says("Rejected", 30, "gone")])],
        [entry("Rejected", 30, "gone")],
    ),
    "what was said before the reservation is not meant": (
        [(RESERVED, [says("Ready", 9, "long ago")])],
        [entry("Pending", 10)],
    ),
    "nor what was said to another workload of that name": (
        [(RESERVED, [says("Ready", 20, uid="earlier")])],
        [entry("Pending", 10)],
    ),
    "a retry says when": (
        [(RESERVED, [RETRY])], [entry("Retry", 20, "no capacity", requeueAfterSeconds=60)],
    ),
    "an eviction puts it back, and counts the try": (
        [(RESERVED, [RETRY]), (EVICTED, [RETRY])],
        [put_back(21, retryCount=1, requeueAfterSeconds=60)],
    ),
    "also where the retry was not written before the eviction": (
        [(RESERVED, []), (EVICTED, [RETRY])],
        [put_back(21, retryCount=1, requeueAfterSeconds=60)],
    ),
    "a preemption puts it back, and counts none": (
        [(RESERVED, [READY]), (decided("evicted", 30, "machines", preempted_by="a/b"), [READY])],
        [entry("Pending", 30, "Reset to Pending after eviction. Previously: Ready")],
    ),
    "while it waits it is as it was put back": (
        [(RESERVED, [RETRY]), (EVICTED, [RETRY]), (decided("waiting", 25), [])],
        [put_back(21, retryCount=1, requeueAfterSeconds=60)],
    ),
    "quota lost without an eviction puts it back, too": (
        [(RESERVED, [READY]), (decided("waiting", 25), [])],
        [entry("Pending", 25, "Reset to Pending after eviction. Previously: Ready")],
    ),
    "the second try is counted by itself": (
        [
            (RESERVED, [RETRY]), (EVICTED, [RETRY]), (AGAIN, [RETRY]),
            (decided("evicted", 99, "machines"), [says("Retry", 95, "still none")]),
        ],
        [put_back(99, retryCount=2)],
    ),
    "the next answer ends the delay of the last one": (
        [(RESERVED, [RETRY]), (EVICTED, [RETRY]), (AGAIN, [says("Ready", 95, "there")])],
        [entry("Ready", 95, "there", retryCount=1)],
    ),
    "a check that the queue does not name any more goes": (
        [(RESERVED, [READY]), (decided("admitted", 40), [])], None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "expected"), LIVES.values(), ids=LIVES.keys())
def test_check_states_follow_decisions_and_answers(
    steps: list[Step], expected: list[Json] | None
) -> None:
    assert written(*steps) == expected


def test_each_check_has_its_state_in_the_order_of_the_queue() -> None:
    both = decided("reserved", 10, "window", "machines")
    found = written((both, [READY])) or []
    assert [(one["name"], one["state"]) for one in found] == [
        ("window", "Pending"), ("machines", "Ready"),
    ]  # fmt: skip


def test_state_written_by_another_controller_keeps_its_pod_set_updates() -> None:
    theirs = {**entry("Ready", 15, "capacity is there"), "name": "theirs"}
    theirs["podSetUpdates"] = [{"name": "main", "labels": {"zone": "a"}}]
    for state in ("reserved", "admitted"):
        admission = decided(state, 10, "theirs")
        assert written((admission, []), listed=[theirs]) == [theirs]
    put_back = written((decided("evicted", 30, "theirs"), []), listed=[theirs]) or [{}]
    assert put_back[0]["state"] == "Pending"
    assert "podSetUpdates" not in put_back[0]


@pytest.mark.parametrize("state", ["reserved", "admitted"])
def test_foreign_check_without_an_entry_is_pending(state: AdmissionState) -> None:
    obj = as_body({"metadata": {"generation": 1}, "status": {}})
    status = status_for(obj, decided(state, 10, "theirs"), None, [], {"theirs"})
    assert [one["state"] for one in status["admissionChecks"]] == ["Pending"]


def test_checks_above_the_limit_are_not_written() -> None:
    many = decided("reserved", 10, *(f"check-{n}" for n in range(12)))
    assert len(written((many, [])) or []) == 8


# --- on a cluster ----------------------------------------------------------------------------------


async def states(setup: Setup, state: WorkloadState) -> list[tuple[str, str]]:
    obj = await setup.workload(state) or {}
    found = (obj.get("status") or {}).get("admissionChecks") or []
    return [(one["state"], one["message"]) for one in found]


def become(setup: Setup, state: WorkloadState, *expected: tuple[str, str]) -> Callable[[], Any]:
    async def now() -> bool:
        return await states(setup, state) == list(expected)

    return now


async def say(setup: Setup, state: WorkloadState, said: Any, message: str) -> None:
    await setup.bus.publish(
        says(said, 0, message, uid=state.uid).model_copy(
            update={"namespace": "default", "name": state.name}
        )
    )


async def test_answer_between_two_decisions_is_written(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "reserved", checks=["machines"])
    await eventually(become(setup, state, ("Pending", "")))
    await say(setup, state, "Pending", "machine m-1 is starting")
    await eventually(become(setup, state, ("Pending", "machine m-1 is starting")))
    await say(setup, state, "Ready", "it is up")
    await eventually(become(setup, state, ("Ready", "it is up")))
    assert (await setup.job())["spec"]["suspend"] is True, "quota has not said so yet"
    await setup.decide(state, "admitted", checks=["machines"])

    async def runs() -> bool:
        return not (await setup.job())["spec"]["suspend"]

    await eventually(runs)
    assert await states(setup, state) == [("Ready", "it is up")]

    async def told() -> bool:
        text = "Admission check machines updated state from Pending to Ready with message: it is up"
        return ("Workload", "AdmissionCheckUpdated", text) in await setup.events()

    await eventually(told)


async def test_answer_before_the_reservation_is_written_with_it(
    setup: Setup,
) -> None:
    await setup.kill_patcher()
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "reserved", checks=["machines"])
    await say(setup, state, "Ready", "it is up")
    await setup.start_patcher()
    await eventually(become(setup, state, ("Ready", "it is up")))


async def test_answer_without_a_running_patcher_is_written_after_its_start(
    setup: Setup,
) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "reserved", checks=["machines"])
    await eventually(become(setup, state, ("Pending", "")))
    await setup.kill_patcher()
    await say(setup, state, "Retry", "no capacity")
    obj = await setup.workload(state)
    assert obj is not None
    await setup.observe(kinds.WORKLOAD, obj)
    await setup.start_patcher()
    await eventually(become(setup, state, ("Retry", "no capacity")))


class CountingKube(LocalKube):
    """Counts what is written about Workloads."""

    writes = 0

    async def patch(self, kind: kinds.Kind, *names: Any, **options: Any) -> kinds.Object:
        self.writes += kind == kinds.WORKLOAD
        return await super().patch(kind, *names, **options)


@pytest.mark.parametrize("checks", [[], ["machines"]], ids=["without a check", "with one"])
async def test_decision_with_checks_is_one_write(setup: Setup, checks: list[str]) -> None:
    await setup.kill_patcher()
    setup.patchers_kube = kube = CountingKube(setup.api)
    await setup.start_patcher()
    await setup.flavor()
    state = await setup.submit()
    await eventually(lambda: setup.workload(state))
    await setup.decide(state, "reserved", checks=checks)

    async def reserved() -> bool:
        return (await setup.conditions(state)).get("QuotaReserved") == "True"

    await eventually(reserved)
    assert kube.writes == 1


async def test_answer_of_another_service_is_not_written(setup: Setup) -> None:
    check = {"metadata": {"name": "machines"}, "spec": {"controllerName": WINDOW}}
    await setup.observe(kinds.ADMISSION_CHECK, check)
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "reserved", checks=["machines"])
    await eventually(become(setup, state, ("Pending", "")))
    for service in ("provisioner", "dispatcher"):
        about = {"namespace": "default", "name": state.name, "service": service}
        answer = says("Ready", 0, f"by the {service}", uid=state.uid)
        await setup.bus.publish(answer.model_copy(update=about))
    await eventually(become(setup, state, ("Ready", "by the dispatcher")))
