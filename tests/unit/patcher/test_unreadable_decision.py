"""What cannot be carried out becomes a dead letter with an outcome, and can be tried again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.bus.follow import recall
from shared.bus.port import Entry
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.contracts.messages.spokes import CopyState
from shared.contracts.messages.workloads import WorkloadState
from shared.kube.port import RefusedError
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup
from tests.unit.patcher.test_api_server_errors import FaultyKube, faulty


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    subject.patchers_kube = FaultyKube(subject.kube)
    await subject.bus.start()
    await subject.start_patcher()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


@pytest.mark.parametrize(("runs", "action"), [(False, "release"), (True, "hold")])
async def test_unreadable_decision_is_answered_and_kept_as_dead_letter(
    setup: Setup, runs: bool, action: str
) -> None:
    state = await setup.submit()
    if runs:
        state = state.replace(pods_active=True, held=False, phase="running")
        await setup.bus.publish(state)
    decision: Any = Admission(
        cluster="hub", namespace="default", name=state.name, uid=state.uid, state="admitted",
        term=3, number=7, decided_at=NOON, cluster_queue="cq",
    )  # fmt: skip
    object.__setattr__(decision, "encode", lambda: b'{"state": "admitted"}')
    await setup.bus.publish(decision)

    async def answered() -> bool:
        return any(outcome.number == 7 for outcome in await setup.outcomes())

    await eventually(answered)
    outcome = (await setup.outcomes())[-1]
    assert (outcome.result, outcome.action, outcome.term) == ("refused", action, 3)
    assert "cannot be read" in outcome.message
    dead: list[DeadLetter] = []

    async def buried() -> bool:
        await recall(setup.bus, {DeadLetter: lambda message, _: dead.append(message)})
        return bool(dead)

    await eventually(buried)


class Letters:
    """The dead letters of a setup, and requests to try them again."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    async def now(self) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        await recall(self._setup.bus, {DeadLetter: lambda letter, _: found.append(letter)})
        return found

    async def became(self, state: str, tries: int) -> DeadLetter:
        async def yes() -> bool:
            return [(one.state, one.tries) for one in await self.now()] == [(state, tries)]

        await eventually(yes)
        return (await self.now())[0]

    async def retry(self, letter: DeadLetter) -> None:
        cluster = letter.original_subject.split(".")[2]
        await self._setup.bus.publish(
            RetryRequest(
                cluster=cluster, service=letter.service, tries=letter.tries, at=NOON,
                original_subject=letter.original_subject,
            )
        )  # fmt: skip


@pytest.fixture
def letters(setup: Setup) -> Letters:
    return Letters(setup)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Subjects of decisions that nobody can read while they are in the list."""
    subjects: list[str] = []
    real = Entry.read

    def read(entry: Entry, kind: Any) -> Any:
        if entry.subject in subjects:
            raise UndecodableError(kind.type, "a word of another release")
        return real(entry, kind)

    monkeypatch.setattr(Entry, "read", read)
    return subjects


async def running(setup: Setup) -> WorkloadState:
    """A job that was admitted, and whose state says that it is held: its watcher is late."""
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def runs() -> bool:
        return (await setup.job())["spec"]["suspend"] is False

    await eventually(runs)
    return state


async def test_quota_is_held_of_a_job_that_runs_though_its_state_says_that_it_waits(
    setup: Setup, unreadable: list[str], letters: Letters
) -> None:
    state = await running(setup)
    unreadable.append(f"sluice.admission.hub.default.{state.name}")
    await setup.decide(state, "evicted")
    await letters.became("open", 1)
    outcome = (await setup.outcomes())[-1]
    assert (outcome.action, outcome.result) == ("hold", "refused")
    assert (await setup.job())["spec"]["suspend"] is False


async def test_quota_is_held_of_a_job_that_runs_on_a_spoke(
    setup: Setup, unreadable: list[str], letters: Letters
) -> None:
    state = await setup.submit(managedBy=MULTIKUEUE)
    unreadable.append(f"sluice.admission.hub.default.{state.name}")
    await setup.decide(state, "evicted")
    await letters.became("open", 1)
    assert [(one.action, one.result) for one in await setup.outcomes()] == [("hold", "refused")]


async def test_job_whose_quota_was_given_back_is_started_by_a_later_decision_only(
    setup: Setup, unreadable: list[str], letters: Letters
) -> None:
    await setup.flavor()
    state = await setup.submit()
    unreadable.append(f"sluice.admission.hub.default.{state.name}")
    await setup.decide(state, "admitted")
    letter = await letters.became("open", 1)
    unreadable.clear()
    await letters.retry(letter)
    await letters.became("handled", 1)
    assert (await setup.job())["spec"]["suspend"] is True
    outcome = (await setup.outcomes())[-1]
    assert (outcome.action, outcome.result) == ("release", "refused")

    await setup.decide(state, "admitted")

    async def runs() -> bool:
        return (await setup.job())["spec"]["suspend"] is False

    await eventually(runs)


async def test_retried_decision_is_carried_out_and_reported_to_quota(
    setup: Setup, letters: Letters, unreadable: list[str]
) -> None:
    state = await running(setup)
    unreadable.append(f"sluice.admission.hub.default.{state.name}")
    await setup.decide(state, "evicted")
    letter = await letters.became("open", 1)
    await letters.retry(letter)
    again = await letters.became("open", 2)
    assert "another release" in again.reason
    assert (await setup.job())["spec"]["suspend"] is False

    unreadable.clear()
    await letters.retry(again)
    closed = await letters.became("handled", 2)
    assert closed.body == ""
    assert (await setup.job())["spec"]["suspend"] is True

    async def told() -> bool:
        found = [(o.action, o.result) for o in await setup.outcomes()]
        return found[-2:] == [("hold", "applied"), ("suspend", "applied")]

    await eventually(told)


async def test_retry_handles_the_newest_message_of_the_subject(
    setup: Setup, letters: Letters, unreadable: list[str]
) -> None:
    await setup.flavor()
    state = await setup.submit()
    unreadable.append(f"sluice.admission.hub.default.{state.name}")
    await setup.decide(state, "admitted")
    letter = await letters.became("open", 1)
    unreadable.clear()
    await setup.decide(state, "waiting", reason="WaitingForQuota")
    await letters.retry(letter)
    await letters.became("handled", 1)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_retry_of_an_ended_object_closes_its_letter(setup: Setup, letters: Letters) -> None:
    subject = "sluice.admission.hub.default.job-gone"
    await setup.bus.publish(
        RetryRequest(cluster="hub", service="patcher", original_subject=subject, tries=1, at=NOON)
    )
    closed = await letters.became("handled", 1)
    assert closed.original_subject == subject


async def test_refused_eviction_holds_quota_with_the_reason(setup: Setup, letters: Letters) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def runs() -> bool:
        return (await setup.job())["spec"]["suspend"] is False

    await eventually(runs)
    refusal = RefusedError("admission webhook denied it", status=422)
    faulty(setup).answers["patch", "Job", ""] = [refusal] * 9
    await setup.decide(state, "evicted")
    letter = await letters.became("open", 1)
    assert "denied" in letter.reason

    async def told() -> bool:
        outcome = (await setup.outcomes())[-1]
        is_refused = (outcome.action, outcome.result) == ("hold", "refused")
        return is_refused and "denied" in outcome.message

    await eventually(told)


async def test_order_nested_too_deeply_for_any_reader_becomes_a_dead_letter(
    setup: Setup, letters: Letters
) -> None:
    order: Any = Dispatch(
        spoke="hub", cluster="center", namespace="default", name="wl", uid="u", state="offered",
        number=7, at=NOON,
    )  # fmt: skip
    object.__setattr__(order, "encode", lambda: b'{"job":' + b"[" * 100_000)
    await setup.bus.publish(order)
    await letters.became("open", 1)


@pytest.mark.parametrize(
    ("broken", "told"), [({"state": "later"}, True), ({"uid": None}, False)], ids=["word", "uid"]
)
async def test_unreadable_order_is_refused_to_the_hub(
    setup: Setup, letters: Letters, broken: dict[str, Any], told: bool
) -> None:
    order: Any = Dispatch(
        spoke="hub", cluster="center", namespace="default", name="wl", uid="u", state="offered",
        number=7, at=NOON,
    )  # fmt: skip
    body = order.model_copy(update=broken).model_dump_json(exclude_none=True).encode()
    object.__setattr__(order, "encode", lambda: body)
    await setup.bus.publish(order)
    await letters.became("open", 1)

    async def reported() -> bool:
        found: list[CopyState] = []
        await recall(setup.bus, {CopyState: lambda report, _: found.append(report)})
        reports = [(report.cluster, report.state, report.number) for report in found]
        return reports == [("center", "refused", 7)] * told

    await eventually(reported)
