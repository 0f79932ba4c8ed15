"""What the view knows, and for how long."""

import asyncio
import weakref
from datetime import timedelta

from services.console.view import AUDIT_SECONDS, ViewChange
from shared.contracts.messages.explain import PositionsRequest
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import QueueRef, WorkloadRef
from shared.testing.waiting import eventually
from tests.unit.console.stage import (
    START,
    Stage,
    decision,
    ended,
    play,
    status,
    workload,
)

IDLE_SECONDS = 600.0
FIRST = WorkloadRef("hub", "team", "job-first")
CQ = QueueRef("hub", "", "cq")


class Torn(Observed):
    """One whose body did not come whole."""

    def encode(self) -> bytes:
        return super().encode()[:-10]


# Only while somebody looks ----------------------------------------------------------------------


def test_streams_are_not_read_before_the_first_question() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        await asyncio.sleep(5 * IDLE_SECONDS)
        assert not stage.reading
        assert await stage.view.wait_until_read(5.0)
        assert stage.reading
        assert stage.view.queue(CQ)[0] is not None

    play(scene, idle_seconds=IDLE_SECONDS)


def test_question_while_bus_is_down_fails_after_the_wait() -> None:
    async def scene(stage: Stage) -> None:
        stage.server.up = False
        asked = asyncio.create_task(stage.view.wait_until_read(5.0))
        running = asyncio.create_task(stage.view.run())
        assert not await asked
        assert asyncio.get_running_loop().time() == 5.0
        running.cancel()

    play(scene, idle_seconds=IDLE_SECONDS)


def test_idle_view_stops_reading_and_drops_its_state() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.say(workload("first"), ended("done", after=60.0))
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        await asyncio.sleep(IDLE_SECONDS - 1.0)
        assert stage.view.workload(FIRST) is not None
        await asyncio.sleep(2.0)
        assert not stage.reading
        assert [*stage.view.states(), *stage.view.queues(), *stage.view.replica.states()] == []
        assert stage.view.history.count_of(workload("done")) == 0

    play(scene, idle_seconds=IDLE_SECONDS)


async def test_idle_view_frees_its_memory() -> None:
    # In real time: the virtual loop remembers tasks that ended. A slow machine reads within a second, too.
    stage = Stage(idle_seconds=1.0)
    await stage.start()
    while not await stage.view.wait_until_read(60.0):
        pass
    known = weakref.ref(stage.view.replica)
    await eventually(lambda: known() is None)
    assert not stage.reading
    await stage.stop()


def test_question_after_idle_time_sees_the_present_state() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        version = stage.view.version
        await asyncio.sleep(2 * IDLE_SECONDS)
        await stage.say(workload("first"))
        assert stage.view.workload(FIRST) is None
        assert await stage.view.wait_until_read(5.0)
        assert stage.view.workload(FIRST) is not None
        assert stage.view.version > version

    play(scene, idle_seconds=IDLE_SECONDS)


# What is known ----------------------------------------------------------------------------------


def test_workload_comes_with_the_decision_for_its_uid() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        first = workload("first")
        await stage.say(first, decision(first, "waiting", 1, reason="WaitingForQuota"))
        known = stage.view.workload(FIRST)
        assert known is not None
        assert known[1] is not None
        assert known[1].reason == "WaitingForQuota"
        await stage.say(workload("first", uid="another"))
        known = stage.view.workload(FIRST)
        assert known is not None
        assert known[1] is None
        await stage.say(workload("first", uid="another", phase="gone"))
        assert stage.view.workload(FIRST) is None

    play(scene)


def test_positions_follow_the_queue_order_and_skip_admitted() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        first, second = workload("first"), workload("second", priority=-1)
        await stage.say(second, first)
        await stage.start()
        assert await stage.view.wait_until_read(5.0)

        def waiting() -> list[str]:
            asked = PositionsRequest(cluster="hub", cluster_queue="cq")
            return [each.name for each in stage.view.replica.positions(asked).items]

        assert waiting() == ["job-first", "job-second"]
        given = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "usage": {"cpu": "1"}}
        await stage.say(decision(first, "admitted", 1, pod_sets=[given]))
        assert waiting() == ["job-second"]

    play(scene)


def test_deleted_objects_leave_the_view() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.say(status(pending=1))
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        assert next(iter(stage.view.queues())) == CQ
        await stage.say(stage.cluster_queue(deleted=True, object=None))
        assert stage.view.queue(CQ) == (None, None)
        assert CQ not in list(stage.view.queues())

    play(scene)


def test_undecodable_message_is_skipped() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        await stage.say(Torn(**dict(stage.local_queue("team", "torn"))), workload("first"))
        assert stage.view.workload(FIRST) is not None
        assert ("hub", "team", "torn") not in list(stage.view.queues())

    play(scene)


def test_run_time_is_recorded_once_for_each_uid() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        await stage.say(ended("done", after=60.0))
        await stage.say(ended("done", after=60.0, version="2"))
        await stage.say(ended("other", after=60.0, success=False))
        assert stage.view.history.count_of(workload("done")) == 2

    play(scene)


# What changed -----------------------------------------------------------------------------------


def test_changes_since_lists_each_object_once_latest_first() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        version = stage.view.version
        waiting = asyncio.create_task(stage.view.wait_for_change(version))
        await asyncio.sleep(60.0)
        assert not waiting.done()
        await stage.say(workload("first"))
        await waiting
        await stage.say(status(pending=1))
        await stage.say(workload("first", version="2"))
        changes = stage.view.changes_since(version)
        assert changes == [
            ViewChange(version=version + 3, what="workload", ident=FIRST),
            ViewChange(version=version + 2, what="queue", ident=CQ),
        ]
        assert stage.view.changes_since(stage.view.version) == []

    play(scene)


def test_version_of_an_earlier_reading_is_unknown() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        assert stage.view.changes_since(stage.view.version - 1) is None
        assert stage.view.changes_since(stage.view.version + 1) is None

    play(scene)


# Whether it is what the leader has --------------------------------------------------------------


def test_lasting_drift_from_the_leader_causes_a_new_reading() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.say(workload("first"), status(pending=2))
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        version = stage.view.version
        await asyncio.sleep(2 * AUDIT_SECONDS)
        assert stage.view.version == version
        await asyncio.sleep(3 * AUDIT_SECONDS)
        assert stage.view.version == version + 1
        # Where that is of no use it becomes seldom.
        await asyncio.sleep(500 * AUDIT_SECONDS)
        assert stage.view.version < version + 15

    play(scene)


def test_equal_counts_cause_no_new_reading() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.say(workload("first"), status(pending=1), status("main", "team", pending=1))
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        version = stage.view.version
        await asyncio.sleep(100 * AUDIT_SECONDS)
        assert stage.view.version == version

    play(scene)


def test_snapshot_is_a_copy() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.say(workload("first"))
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        picture = stage.view.snapshot()
        assert ("hub", "team/job-first") in picture.workloads
        picture.workloads.clear()
        picture.observed.clear()
        assert stage.view.workload(FIRST) is not None
        assert stage.view.queue(CQ)[0] is not None
        assert picture.at == START + timedelta(seconds=asyncio.get_running_loop().time())

    play(scene)
