"""What a deposed watcher publishes behind what its successor has listed does not stay on the log."""

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from services.simulator.local import LocalKube
from services.watcher import stale_objects
from shared.contracts.kube.kinds import DEPARTURE, JOB, RESOURCE_FLAVOR, Kind
from shared.contracts.messages.observed import Observed
from shared.kube.port import Listing, UnavailableError
from shared.telemetry import probes
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.watcher.harness import Harness, run_harness
from tests.unit.watcher.test_departures_below import end_pod, furnish, next_job
from tests.unit.watcher.test_watcher import Delayed

AFTER_THE_FIRST_LOOK = stale_objects.FIRST_SECONDS + 5
"""Virtual seconds from the begin of a term."""


def late(kind: Kind, name: str, uid: str, version: str = "1") -> Observed:
    namespace = "default" if kind.namespaced else None
    return Observed(
        cluster="hub", group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind,
        namespace=namespace, name=name, uid=uid, resource_version=version,
    )  # fmt: skip


async def publish(harness: Harness, message: Observed) -> None:
    """Publish as a watcher does that was deposed: as the first message of the subject."""
    bus = MemoryBus(harness.server, instance="deposed")
    await bus.start()
    await bus.publish(message, expect_subject=0)
    await bus.stop()


@pytest.mark.parametrize("kind", [JOB, RESOURCE_FLAVOR], ids=["in a namespace", "of the cluster"])
@pytest.mark.parametrize("seconds", [5, 60, 200], ids=["early", "later", "late"])
def test_object_that_is_gone_gets_a_tombstone(kind: Kind, seconds: int) -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("other")
        await asyncio.sleep(seconds)
        await publish(harness, late(kind, "gone", "u-1"))
        await asyncio.sleep(3 * seconds + AFTER_THE_FIRST_LOOK)
        found = [one for one in harness.published(kind) if one.name == "gone"]
        assert [(one.uid, one.deleted) for one in found] == [("u-1", False), ("u-1", True)]

    run_harness(drive)


def test_object_that_a_watcher_has_not_seen_yet_is_not_said_to_be_gone() -> None:
    """The deposed one was ahead: its watch was answered by another API server."""

    async def drive(harness: Harness) -> None:
        await harness.start(kube=Delayed(harness.api, seconds=2 * AFTER_THE_FIRST_LOOK))
        await asyncio.sleep(5)
        made = await harness.job("j")
        metadata = made["metadata"]
        await publish(harness, late(JOB, "j", metadata["uid"], metadata["resourceVersion"]))
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        assert [one.deleted for one in harness.published(JOB)] == [False]

    run_harness(drive)


class Counting(LocalKube):
    """It counts how often it is asked for all Jobs of a namespace."""

    lists = 0

    @override
    async def list(self, kind: Kind, **options: Any) -> Listing:
        self.lists += kind == JOB
        return await super().list(kind, **options)


class Away(LocalKube):
    """An API server that is away for a while."""

    is_away = False

    @override
    async def list(self, kind: Kind, **options: Any) -> Listing:
        if self.is_away:
            raise UnavailableError("away", status=503)
        return await super().list(kind, **options)


def test_look_that_fails_is_repeated_soon() -> None:
    async def drive(harness: Harness) -> None:
        kube = Away(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await publish(harness, late(JOB, "gone", "u-1"))
        kube.is_away = True
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        kube.is_away = False
        assert [one.deleted for one in harness.published(JOB)] == [False]
        await asyncio.sleep(stale_objects.FIRST_SECONDS)
        assert [one.deleted for one in harness.published(JOB)] == [False, True]

    run_harness(drive)


def test_namespace_is_listed_once_for_all_its_unknown_objects() -> None:
    async def drive(harness: Harness) -> None:
        kube = Counting(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        for number in range(5):
            await publish(harness, late(JOB, f"gone-{number}", f"u-{number}"))
        before = kube.lists
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        assert kube.lists == before + 1
        assert sum(one.deleted for one in harness.published(JOB)) == 5

    run_harness(drive)


def test_object_that_exists_is_left_alone() -> None:
    async def drive(harness: Harness) -> None:
        before = probes.STALE_ENDED.fired
        await harness.start()
        for number in range(5):
            await harness.job(f"j{number}")
        await asyncio.sleep(5)
        await harness.delete("j3")
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        assert [one.name for one in harness.published(JOB) if one.deleted] == ["j3"]
        assert probes.STALE_ENDED.fired == before

    run_harness(drive)


def test_end_that_waits_for_the_log_is_not_told_by_an_older_state() -> None:
    async def drive(harness: Harness) -> None:
        before = probes.STALE_ENDED.fired
        await harness.start()
        await harness.job("j")
        await asyncio.sleep(5)
        log = harness.server.streams["OBSERVED"]
        log.full = True
        changed = await harness.kube.patch(
            JOB, "default", "j", {"metadata": {"labels": {"a": "b"}}}
        )
        await asyncio.sleep(1)
        await harness.delete("j")
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        log.full = False
        await asyncio.sleep(5)
        last = harness.published(JOB)[-1]
        assert (last.deleted, probes.STALE_ENDED.fired) == (True, before)
        assert int(last.resource_version) >= int(changed["metadata"]["resourceVersion"])

    run_harness(drive)


def test_job_that_is_created_under_the_name_of_a_late_message_is_published() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await asyncio.sleep(5)
        await publish(harness, late(JOB, "j", "u-1"))
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        made = await harness.job("j")
        await asyncio.sleep(5)
        assert harness.published(JOB)[-1].uid == made["metadata"]["uid"]

    run_harness(drive)


@pytest.mark.parametrize(
    "arrives", ["while nobody watches", "while its name is held back", "when it has ended"]
)
def test_departure_that_a_deposed_watcher_told_ends_with_its_pods(arrives: str) -> None:
    """The watcher stops between the two messages, or the network holds the first of them."""

    async def drive(harness: Harness) -> None:
        await furnish(harness)
        await harness.start()
        await asyncio.sleep(5)
        first = harness.published(JOB)[-1]
        apart = first.apart()
        assert apart is not None
        await harness.kill()
        await harness.delete("j")
        second = await next_job(harness)
        if arrives == "while nobody watches":
            await publish(harness, apart)
        await harness.start()
        await asyncio.sleep(5)
        if arrives == "while its name is held back":
            await publish(harness, apart)
        await asyncio.sleep(AFTER_THE_FIRST_LOOK)
        if arrives == "when it has ended":
            await end_pod(harness)
            await publish(harness, apart)
            await asyncio.sleep(300)
        else:
            assert [one.deleted for one in harness.published(DEPARTURE)] == [False]
            assert harness.published(JOB)[-1].uid == second, "it runs beside the first"
            await end_pod(harness)
        assert [one.deleted for one in harness.published(DEPARTURE)] == [False, True]
        await harness.touch("j", "1")
        await asyncio.sleep(5)
        truth = await harness.truth(JOB)
        assert harness.view().items() >= truth.items()
        assert [uid for uid, _ in truth.values()] == [second]

    run_harness(drive)
