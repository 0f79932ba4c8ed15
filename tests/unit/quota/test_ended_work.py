"""Ended workloads leave the views once every durable has passed them; a nearly full log loses the oldest."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from services.quota.ended_work import EndedWork
from shared.bus.follow import recall
from shared.bus.port import Entry, LaterError
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.queues import HistoryStart
from shared.contracts.messages.workloads import Finish, WorkloadState
from shared.telemetry import probes
from shared.testing.probing import acts
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_streams import MemoryStream
from tests.unit.quota.service_setup import SETTINGS, Setup, became

VIEWS = ("ADMISSIONS", "OUTCOMES", "WORKLOADS")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.quota.ended_work.SWEEP_SECONDS", 0.02)
    monkeypatch.setattr("services.quota.ended_work.AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("services.quota.ended_work.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("services.quota.ended_work.TRIM_AGAIN", timedelta(0))
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)
    short = SETTINGS.model_copy(update={"forget_seconds": 0.05})
    monkeypatch.setattr("tests.unit.quota.service_setup.SETTINGS", short)


def viewed(setup: Setup, stream: str) -> set[str]:
    """Names of the workloads in a view."""
    view = setup.server.view(stream)
    return {m.subject.split(".")[4] for m in view.messages.values() if m.subject.count(".") == 4}


def logged(setup: Setup, stream: str) -> set[str]:
    log = setup.server.stream(stream)
    return {m.subject.split(".")[4] for m in log.messages.values() if m.subject.count(".") == 4}


async def ended(setup: Setup, name: str) -> WorkloadState:
    """A workload that was admitted, carried out, finished and deleted."""
    await setup.workload(name)
    await became(setup, name, "admitted")
    await setup.outcome(await setup.last(name), "release", "applied")
    await setup.workload(name, phase="finished", finish=Finish(success=True))
    await became(setup, name, "released")
    return await setup.workload(name, phase="gone")


async def lives(setup: Setup, name: str) -> None:
    """A workload that runs. It has the last message of each view, which always stays."""
    await setup.workload(name)
    await became(setup, name, "admitted")
    await setup.outcome(await setup.last(name), "release", "applied")


async def left_views(setup: Setup, name: str, views: tuple[str, ...] = VIEWS) -> None:
    async def yes() -> bool:
        return not any(name in viewed(setup, view) for view in views)

    await eventually(yes)


async def test_ended_workload_leaves_all_views_and_stays_in_the_logs(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await ended(setup, "x")
    await lives(setup, "y")
    await left_views(setup, "x")
    for view in VIEWS:
        assert viewed(setup, view) == {"y"}
        assert logged(setup, view) == {"x", "y"}


async def test_next_leader_finishes_what_the_last_one_began(setup: Setup) -> None:
    """It finds a tombstone, a decision or an outcome alone, and deletes it."""
    await setup.cluster(cpus=1)
    await setup.start_quota()
    for name in ("a", "b", "c"):
        await ended(setup, name)
    await setup.stop_quota()
    for name, kept in (("a", "WORKLOADS"), ("b", "ADMISSIONS"), ("c", "OUTCOMES")):
        for view in VIEWS:
            what = {"ADMISSIONS": "admission", "OUTCOMES": "outcome", "WORKLOADS": "workload"}[view]
            if view != kept:
                setup.server.purge(view, f"sluice.{what}.hub.team.{name}", 1 << 30)
    await setup.start_quota("b")
    await lives(setup, "y")
    for name in ("a", "b", "c"):
        await left_views(setup, name)


async def test_workload_whose_release_is_not_stored_stays(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.cluster(cpus=2)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    await lives(setup, "y")
    publish = MemoryBus.publish

    def on_its_way(bus: MemoryBus, message: Message, **fences: Any) -> Any:
        if isinstance(message, Admission) and message.state == "released":
            return asyncio.get_running_loop().create_future()
        return publish(bus, message, **fences)

    monkeypatch.setattr(MemoryBus, "publish", on_its_way)
    await setup.workload("x", phase="gone")
    await asyncio.sleep(0.5)
    assert "x" in viewed(setup, "ADMISSIONS") & viewed(setup, "WORKLOADS")


async def test_end_that_a_durable_has_not_passed_stays(setup: Setup) -> None:
    busy = True
    patcher = MemoryBus(setup.server, instance="patcher")

    async def handle(entry: Entry) -> None:
        if busy and entry.subject.endswith(".x"):
            raise LaterError("the API server does not answer", delay_seconds=0.05)

    patcher.work("WORKLOADS", "patcher-hub-workload", handle, filters=("sluice.workload.hub.>",))
    await patcher.start()
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await ended(setup, "x")
    await ended(setup, "z")
    await lives(setup, "y")
    await left_views(setup, "z")
    with acts(probes.END_KEPT):
        await asyncio.sleep(0.2)
    assert "x" in viewed(setup, "WORKLOADS")
    busy = False
    await left_views(setup, "x")
    await patcher.stop()


async def test_workload_that_waits_runs_or_cannot_be_read_stays(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("runs", phase="running", held=False, pods_active=True)
    await became(setup, "runs", "admitted")
    await setup.outcome(await setup.last("runs"), "release", "applied")
    await setup.workload("waits")
    await became(setup, "waits", "waiting")
    broken: Any = await setup.workload("broken")
    await became(setup, "broken", "waiting")
    object.__setattr__(broken := broken.replace(generation=1), "encode", lambda: b"{}")
    await setup.bus.publish(broken)
    await setup.workload("late")
    await became(setup, "late", "waiting")
    await asyncio.sleep(0.3)
    assert viewed(setup, "WORKLOADS") == {"runs", "waits", "broken", "late"}
    assert viewed(setup, "ADMISSIONS") == {"runs", "waits", "broken", "late"}
    assert viewed(setup, "OUTCOMES") == {"runs"}


async def test_reused_name_keeps_its_new_messages(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await ended(setup, "x")
    await setup.workload("x", uid="second")
    await became(setup, "x", "admitted")
    await asyncio.sleep(0.3)
    assert "x" in viewed(setup, "WORKLOADS") & viewed(setup, "ADMISSIONS")
    assert (await setup.last("x")).uid == "second"


async def test_late_outcome_of_an_ended_workload_leaves_the_view(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await ended(setup, "x")
    await lives(setup, "y")
    await left_views(setup, "x")
    last = (await setup.last("x")).replace(number=1)
    await setup.outcome(last, "release", "applied")
    await setup.outcome(await setup.last("y"), "release", "applied")
    await left_views(setup, "x")


async def test_nearly_full_log_loses_its_oldest_ended_workloads_and_nothing_that_lives(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("waits", priority=-1, cpu=9)
    await became(setup, "waits", "waiting")
    for name in ("a", "b", "c"):
        await ended(setup, name)
    await lives(setup, "y")
    for name in ("a", "b", "c"):
        await left_views(setup, name)

    def fullness(stream: MemoryStream) -> float:
        """As if the log had room for these: a workload more or less decides."""
        names = logged(setup, stream.name) & {"a", "b", "c"}
        return {3: 0.65, 2: 0.55, 1: 0.45, 0: 0.3}[len(names)]

    monkeypatch.setattr(MemoryStream, "fullness", property(fullness))
    monkeypatch.setattr("services.quota.ended_work.BATCH", 1)

    async def trimmed() -> bool:
        return all(logged(setup, log) & {"a", "b", "c"} == {"c"} for log in VIEWS)

    with acts(probes.HISTORY_TRIMMED):
        await eventually(trimmed)
    assert {"waits", "y"} <= logged(setup, "WORKLOADS")
    terms = [
        m for m in setup.server.stream("ADMISSIONS").messages.values() if ".term." in m.subject
    ]
    assert len(terms) == 1

    async def told() -> bool:
        """Where the history begins is published after the log was trimmed."""
        starts: set[str] = set()
        handlers = {HistoryStart: lambda start, _: starts.add(start.log)}
        await recall(setup.bus, handlers, filters=["sluice.history.>"])
        return starts == set(VIEWS)

    await eventually(told)
    await setup.workload("y", phase="finished", finish=Finish(success=True))
    await became(setup, "y", "released")


@pytest.mark.parametrize(("used", "kept"), [(0.59, 100), (0.6, 64), (0.71, 16), (0.9, 8)])
async def test_workload_that_is_changed_again_and_again_keeps_its_newest_states(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, used: float, kept: int
) -> None:
    monkeypatch.setattr("services.quota.ended_work.TRIM_AGAIN", timedelta(minutes=10))
    monkeypatch.setattr(MemoryStream, "fullness", property(lambda _: used))
    await setup.cluster(cpus=1)
    for number in range(100):
        last = await setup.workload("noisy", priority=-number - 1, cpu=9)
    await setup.workload("calm", cpu=9)
    log = setup.server.stream("WORKLOADS")

    def states(name: str) -> list[int]:
        return [one.sequence for one in log.messages.values() if one.subject.endswith(f".{name}")]

    newest = states("noisy")[-kept:]
    await setup.start_quota()
    await eventually(lambda: states("noisy") == newest)
    await asyncio.sleep(0.1)
    assert (states("noisy"), len(states("calm"))) == (newest, 1)
    assert last.subject in {one.subject for one in setup.server.view("WORKLOADS").messages.values()}


async def test_histories_are_shortened_until_the_log_has_room(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest first; the others keep theirs."""
    monkeypatch.setattr("services.quota.ended_work.BATCH", 1)
    await setup.cluster(cpus=1)
    for number in range(90):
        await setup.workload("longest", priority=-number - 1, cpu=9)
        if number < 80:
            await setup.workload("long", priority=-number - 1, cpu=9)
    log = setup.server.stream("WORKLOADS")

    def states(name: str) -> int:
        return sum(one.subject.endswith(f".{name}") for one in log.messages.values())

    monkeypatch.setattr(
        MemoryStream, "fullness", property(lambda _: 0.65 if states("longest") == 90 else 0.45)
    )
    with acts(probes.HISTORY_SHORTENED):
        await setup.start_quota()
        await eventually(lambda: states("longest") == 64)
    await asyncio.sleep(0.1)
    assert states("long") == 80


async def test_log_full_of_what_lives_is_looked_through_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    asked: list[str] = []
    at_or_after, may_trim = MemoryBus.at_or_after, EndedWork._may_trim

    async def noted(bus: MemoryBus, stream: str, sequence: int) -> Entry | None:
        begun.extend([stream] if sequence == 1 else [])
        return await at_or_after(bus, stream, sequence)

    def counted(work: EndedWork, stream: str) -> bool:
        asked.append(stream)
        return may_trim(work, stream)

    monkeypatch.setattr("services.quota.ended_work.TRIM_AGAIN", timedelta(minutes=10))
    monkeypatch.setattr(MemoryBus, "at_or_after", noted)
    monkeypatch.setattr(EndedWork, "_may_trim", counted)
    monkeypatch.setattr(MemoryStream, "fullness", property(lambda _: 0.65))
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await lives(setup, "y")

    async def asked_often() -> bool:
        return len(asked) > 10 * len(VIEWS)

    await eventually(asked_often)
    assert sorted(begun) == sorted(VIEWS)


async def test_outcome_of_an_unknown_cluster_does_not_stop_admission(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await ended(setup, "x")
    stray = Outcome(
        cluster="nowhere", namespace="n", name="w", uid="u", result="gone", action="release",
        term=1, number=1, at=(await setup.last("x")).decided_at,
    )  # fmt: skip
    await setup.bus.publish(stray)
    await setup.workload("y")
    await became(setup, "y", "admitted")
    await asyncio.sleep(0.2)
    assert "w" in viewed(setup, "OUTCOMES"), "nobody lists that cluster: it may live"


async def test_old_tombstones_of_objects_leave_the_view(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = timedelta(seconds=-60)
    monkeypatch.setattr("services.quota.ended_work.CROWDED_AGE", due)
    monkeypatch.setattr("services.quota.ended_work.OBJECTS_AGE", due)
    monkeypatch.setattr("services.quota.ended_work.OBJECTS_SECONDS", 0.02)
    await setup.cluster(cpus=1)
    await setup.observe(kinds.NAMESPACE, "gone", {}, deleted=True)
    await setup.observe(kinds.NAMESPACE, "alive", {})
    await setup.start_quota()

    def names() -> set[str]:
        view = setup.server.view("OBSERVED").messages.values()
        return {message.subject.split(".")[4] for message in view}

    await eventually(lambda: "gone" not in names())
    assert {"team", "alive", "cq", "q", "f"} <= names()


@pytest.mark.parametrize(("most", "crowded"), [(1, False), (20_000, True)])
async def test_tombstones_that_are_many_leave_the_view_before_the_next_look(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, most: int, crowded: bool
) -> None:
    """More than one look finds; or the view is crowded, and they are young."""
    due = timedelta(seconds=-60)
    monkeypatch.setattr("services.quota.ended_work.OBJECTS_MAX", most)
    monkeypatch.setattr("services.quota.ended_work.CROWDED_SECONDS", 0.02)
    monkeypatch.setattr("services.quota.ended_work.CROWDED_AGE", due)
    monkeypatch.setattr("services.quota.ended_work.OBJECTS_AGE", timedelta(1) if crowded else due)
    fullness = 0.51 if crowded else 0.5
    monkeypatch.setattr(MemoryStream, "fullness", property(lambda _: fullness))
    await setup.cluster(cpus=1)
    for name in ("a", "b", "c"):
        await setup.observe(kinds.NAMESPACE, name, {}, deleted=True)
    await setup.observe(kinds.NAMESPACE, "alive", {})
    await setup.start_quota()

    def names() -> set[str]:
        view = setup.server.view("OBSERVED").messages.values()
        return {message.subject.split(".")[4] for message in view}

    await eventually(lambda: names().isdisjoint({"a", "b", "c"}))
    assert {"team", "alive", "cq", "q", "f"} <= names()


async def test_tombstones_of_an_hour_stay_in_a_view_that_has_room(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.ended_work.CROWDED_AGE", timedelta(seconds=-60))
    monkeypatch.setattr("services.quota.ended_work.OBJECTS_SECONDS", 0.02)
    await setup.cluster(cpus=1)
    await setup.observe(kinds.NAMESPACE, "gone", {}, deleted=True)
    await setup.observe(kinds.NAMESPACE, "alive", {})
    await setup.start_quota()
    await asyncio.sleep(0.3)
    view = setup.server.view("OBSERVED").messages.values()
    assert "gone" in {message.subject.split(".")[4] for message in view}
