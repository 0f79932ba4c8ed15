"""When a state is said, in virtual time."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from services.classifier.projection import handlers
from services.classifier.projection.handlers import (
    DECISION_DELAY_SECONDS,
    RETRY_SECONDS,
    ROOM_SECONDS,
    Projection,
    Term,
)
from services.classifier.projection.policy import DEFAULT_POLICY
from services.classifier.projection.projector import Projector
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import workload
from shared.testing.world.loop import run_virtual
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.memory_streams import MemoryStream
from shared.testing.world.world import ProcessContext, World

QUOTA = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
FINISHED = {"type": "Finished", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}
EVICTED = {"type": "Evicted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}


class Stage:
    """A classifier that projects one Workload of somebody else's, as the test shows it."""

    bus: MemoryBus

    def __init__(self) -> None:
        self.world = World(1)
        self.server = MemoryServer(world=self.world)
        self.version = 0

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.server, instance=context.instance)
        await bus.start()
        await Projection(bus=bus, cluster="hub").run()

    async def show(self, *conditions: dict[str, Any], name: str = "theirs") -> None:
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"u-{name}",
            "resourceVersion": str(self.version + 1),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        status = {"conditions": list(conditions), "admission": {"clusterQueue": "cq"}}
        await self._observe(
            name, object={"metadata": metadata, "spec": {"queueName": "q"}, "status": status}
        )

    async def delete(self) -> None:
        """The Workload object is deleted."""
        await self._observe("theirs", deleted=True)
        await asyncio.sleep(1)

    async def _observe(self, name: str, **seen: Any) -> None:
        self.version += 1
        await self.bus.publish(
            Observed(
                cluster="hub", group=kinds.WORKLOAD.group, version="v1beta2", plural="workloads",
                kind="Workload", namespace="team", name=name, uid=f"u-{name}",
                resource_version=str(self.version), **seen,
            )
        )  # fmt: skip

    def said(self) -> list[WorkloadState]:
        logged = self.server.streams["WORKLOADS"].messages.values()
        return [WorkloadState.decode(one.data) for one in logged]

    def play(self, drive: Any) -> None:
        async def play() -> None:
            self.bus = MemoryBus(self.server, instance="others")
            await self.bus.start()
            synced = Synced(cluster="hub", epoch="1", kinds=[], at=self.world.now())
            await self.bus.publish(synced)
            self.world.process("classifier", self._serve)
            await asyncio.sleep(1)
            await drive()

        try:
            self.world.run(play)
            assert not self.world.failures, self.world.failures
        finally:
            self.world.close()


def test_many_workloads_are_projected_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "TURN", 2)
    turn, projected = 0, Counter[int]()
    project = Projector._project

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def counted(*given: Any) -> Any:
        projected[turn] += 1
        asyncio.get_running_loop().call_soon(next_turn)
        return project(*given)

    monkeypatch.setattr(Projector, "_project", counted)
    stage = Stage()

    async def drive() -> None:
        for number in range(20):
            await stage.show(name=f"w{number}")
        projected.clear()
        stage.world.crash("classifier", down_seconds=1)
        await asyncio.sleep(30)
        assert projected.total() >= 20
        assert max(projected.values()) <= 2
        assert len(stage.said()) == 20

    stage.play(drive)


def test_recorded_decision_is_published_after_a_delay() -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await stage.show(QUOTA)
        await asyncio.sleep(DECISION_DELAY_SECONDS - 2)
        assert [state.held for state in stage.said()] == [True]
        await asyncio.sleep(4)
        assert [state.held for state in stage.said()] == [True, False]
        assert stage.said()[-1].admission == {"clusterQueue": "cq"}

    stage.play(drive)


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param(FINISHED, ("finished", None), id="it ends"),
        pytest.param(EVICTED, ("waiting", "2026-01-01 00:00:02+00:00"), id="it is evicted"),
    ],
)
def test_later_change_is_published_at_once_and_cancels_the_delayed_state(
    then: dict[str, str], expected: tuple[str, str | None]
) -> None:
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await stage.show(QUOTA)
        await asyncio.sleep(1)
        await stage.show(QUOTA, then)
        await asyncio.sleep(1)
        assert len(stage.said()) == 2
        last = stage.said()[-1]
        assert (last.phase, last.evicted_at and str(last.evicted_at)) == expected
        await asyncio.sleep(2 * DECISION_DELAY_SECONDS)
        assert len(stage.said()) == 2

    stage.play(drive)


def test_new_term_publishes_recorded_decisions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of decisions may have been lost; what is written down stands for it."""
    monkeypatch.setattr(handlers, "DECISION_DELAY_SECONDS", 1_000_000.0)
    stage = Stage()

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        await stage.show(QUOTA)
        await asyncio.sleep(120)
        assert [state.held for state in stage.said()] == [True]
        stage.world.crash("classifier", down_seconds=1)
        await asyncio.sleep(120)
        assert [state.held for state in stage.said()] == [True, False]

    stage.play(drive)


def test_nearly_full_log_postpones_new_workloads_and_takes_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, used = Stage(), {"WORKLOADS": 0.0}

    monkeypatch.setattr(
        MemoryStream, "fullness", property(lambda stream: used.get(stream.name, 0.0))
    )

    async def drive() -> None:
        await stage.show()
        await asyncio.sleep(1)
        used["WORKLOADS"] = 0.85
        await asyncio.sleep(ROOM_SECONDS + 1)
        await stage.show(name="new")
        await stage.show(FINISHED)
        await asyncio.sleep(ROOM_SECONDS + 1)
        assert [(s.name, s.phase) for s in stage.said()] == [
            ("theirs", "waiting"),
            ("theirs", "finished"),
        ]
        used["WORKLOADS"] = 0.5
        await asyncio.sleep(ROOM_SECONDS + 1)
        assert (stage.said()[-1].name, stage.said()[-1].phase) == ("new", "waiting")

    stage.play(drive)


def sent(*states: WorkloadState) -> list[tuple[str, str, str]]:
    """What is told of states that come while the log is full; a moment later it is not any more."""
    server = MemoryServer()

    async def play() -> None:
        bus = MemoryBus(server, instance="classifier")
        await bus.start()
        async with asyncio.TaskGroup() as group:
            term = Term(bus, "hub", group, DEFAULT_POLICY)
            server.stream("WORKLOADS").full = True
            for state in states:
                term._enqueue(state)
                await asyncio.sleep(RETRY_SECONDS / 10)
            server.stream("WORKLOADS").full = False
        await bus.stop()

    run_virtual(play())
    logged = [
        WorkloadState.decode(one.data) for one in server.streams["WORKLOADS"].messages.values()
    ]
    return [(state.name, state.uid, state.phase) for state in logged]


RENAMED = workload("new", uid="u-1", phase="running"), workload("old", uid="u-1", phase="gone")
"""A job that runs under its new name, and the end of its old name."""


@pytest.mark.parametrize("before", [(), (workload("new", uid="u-0"),)], ids=["first", "second"])
def test_end_of_an_old_name_is_published_though_another_job_takes_the_new_name(
    before: tuple[WorkloadState, ...],
) -> None:
    told = sent(*before, *RENAMED, workload("new", uid="u-2", phase="running"))
    assert told[-1] == ("old", "u-1", "gone")
    assert ("new", "u-2", "running") in told


def test_each_of_several_old_names_ends() -> None:
    names = "abc"
    told = sent(
        *(workload(name, uid="u-1", phase="running") for name in names),
        *(workload(name, uid="u-1", phase="gone") for name in names[:-1]),
    )
    assert [one for one in told if one[2] == "gone"] == [("a", "u-1", "gone"), ("b", "u-1", "gone")]
