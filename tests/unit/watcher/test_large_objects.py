"""Objects that are too large for a message: truncated on the log, whole for readers of the bus."""

import asyncio
from contextlib import aclosing

from shared.bus.port import CaughtUp
from shared.contracts.kube.kinds import JOB
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION, TRUNCATED
from shared.contracts.messages.observed import Observed
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.watcher.harness import Harness, run_harness

LIMIT = 64 << 10
FILLER = "x" * 100_000


async def read(harness: Harness) -> dict[str, Observed]:
    """Each job as a service sees it that reads the view through the bus."""
    bus = MemoryBus(harness.server, instance="reader")
    await bus.start()
    found: dict[str, Observed] = {}
    async with aclosing(bus.watch("OBSERVED", "sluice.observed.*.*.*.jobs_batch")) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            messages = Observed.decode(item.data, item.headers)
            found[messages.name] = messages
    await bus.stop()
    return found


def test_reader_gets_whole_object_and_log_has_truncated_one() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        whole = await harness.job("big", filler=FILLER)
        await harness.job("small")
        await asyncio.sleep(5)

        messages = {one.name: one for one in harness.published(JOB)}
        assert messages["small"].object_ref is None
        assert messages["big"].object_ref is not None
        short = messages["big"].object
        assert short is not None
        assert TRUNCATED in short["metadata"]["annotations"]
        assert short["spec"]["suspend"] is True
        assert "template" not in short["spec"]

        seen = (await read(harness))["big"].object
        assert seen is not None
        assert seen["spec"] == whole["spec"]
        assert seen["metadata"]["annotations"] == {"filler": FILLER}

    run_harness(drive, max_payload=LIMIT)


def test_at_most_one_body_per_object_and_none_after_deletion() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("big", filler=FILLER)
        for number in range(20):
            await harness.touch("big", str(number))
            await asyncio.sleep(1)
        assert len(harness.server.bodies) == 1
        assert (await read(harness))["big"].object is not None

        await harness.delete("big")
        await asyncio.sleep(5)

        end = harness.published(JOB)[-1]
        assert (end.deleted, end.object_ref) == (True, None)
        assert len(harness.server.bodies) == 0

    run_harness(drive, max_payload=LIMIT)


def test_object_that_fits_leaves_a_small_tombstone_behind() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("big", filler=FILLER)
        await asyncio.sleep(5)
        await harness.delete("big")
        await asyncio.sleep(5)
        sizes = [len(entry.data) for entry in harness.log() if entry.subject.endswith("jobs_batch")]
        assert sizes[0] > len(FILLER) > 1_000 > sizes[-1]

    run_harness(drive)


def test_object_with_an_invalid_trace_context_is_published() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("traced", **{TRACEPARENT_ANNOTATION: FILLER})
        await asyncio.sleep(5)
        await harness.delete("traced")
        await asyncio.sleep(5)
        assert [one.deleted for one in harness.published(JOB)] == [False, True]

    run_harness(drive)


def test_object_with_too_much_metadata_for_a_message_is_published() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("many", **{f"a{n}": "x" * 1000 for n in range(100)})
        await asyncio.sleep(5)
        [many] = harness.published(JOB)
        assert many.object is not None
        assert many.object["spec"]["suspend"] is True

    run_harness(drive, max_payload=LIMIT)


def test_body_of_shrunk_object_is_deleted() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("big", filler=FILLER)
        await asyncio.sleep(5)
        patch = {"metadata": {"annotations": {"filler": None}}}
        await harness.kube.patch(JOB, "default", "big", patch)
        await asyncio.sleep(5)
        assert harness.published(JOB)[-1].object_ref is None
        assert len(harness.server.bodies) == 0

    run_harness(drive, max_payload=LIMIT)


def test_next_watcher_keeps_used_bodies_and_deletes_others() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await harness.job("big", filler=FILLER)
        await asyncio.sleep(5)
        bus = MemoryBus(harness.server, instance="dying")
        await bus.start()
        for cluster in ("hub", "other"):
            name = f"sluice.observed.{cluster}.default.lost.jobs_batch/1"
            await bus.put_body(name, b"never published")
        await bus.stop()
        await asyncio.sleep(7200)
        assert len(harness.server.bodies) == 3
        await harness.kill()

        await harness.start()
        await asyncio.sleep(60)
        assert len(harness.server.bodies) == 2, "what belongs to another cluster is not ours"
        assert (await read(harness))["big"].object_ref is None, "the whole"
        before = len(harness.published())

        await harness.touch("big", "1")
        await asyncio.sleep(5)
        assert len(harness.published()) == before + 1
        assert len(harness.server.bodies) == 2

    run_harness(drive, max_payload=LIMIT)


def test_full_bucket_publishes_truncated_object_alone() -> None:
    async def drive(harness: Harness) -> None:
        harness.server.stream("OBJ_objects").full = True
        await harness.start()
        await harness.job("big", filler=FILLER)
        await asyncio.sleep(5)
        big = (await read(harness))["big"].object
        assert big is not None
        assert "object of 101" in big["metadata"]["annotations"][TRUNCATED]

    run_harness(drive, max_payload=LIMIT)


def test_large_object_is_published_after_bus_comes_back() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await asyncio.sleep(5)
        harness.server.restart(down_seconds=20)
        await harness.job("big", filler=FILLER)
        await asyncio.sleep(90)
        assert (await read(harness))["big"].object is not None
        assert len(harness.server.bodies) == 1

    run_harness(drive, max_payload=LIMIT)
