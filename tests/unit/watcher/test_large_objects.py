"""Objects that no message holds: said in short, whole for whoever reads the bus, and cleaned up."""

import asyncio
from contextlib import aclosing

from shared.bus.port import CaughtUp
from shared.contracts.kube.kinds import JOB
from shared.contracts.kube.names import TRUNCATED
from shared.contracts.messages.observed import Observed
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.watcher.site import Site, play

LIMIT = 64 << 10
FILLER = "x" * 100_000


async def read(site: Site) -> dict[str, Observed]:
    """Each job as a service sees it that reads the view through the bus."""
    bus = MemoryBus(site.server, instance="reader")
    await bus.start()
    found: dict[str, Observed] = {}
    async with aclosing(bus.watch("OBSERVED", "sluice.observed.*.*.*.jobs_batch")) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            said = Observed.decode(item.data, item.headers)
            found[said.name] = said
    await bus.stop()
    return found


def test_whoever_reads_sees_the_whole_object_and_the_log_a_short_form() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        whole = await site.job("big", filler=FILLER)
        await site.job("small")
        await asyncio.sleep(5)

        said = {one.name: one for one in site.said(JOB)}
        assert said["small"].object_ref is None
        assert said["big"].object_ref is not None
        short = said["big"].object
        assert short is not None
        assert TRUNCATED in short["metadata"]["annotations"]
        assert short["spec"]["suspend"] is True
        assert "template" not in short["spec"]

        seen = (await read(site))["big"].object
        assert seen is not None
        assert seen["spec"] == whole["spec"]
        assert seen["metadata"]["annotations"] == {"filler": FILLER}

    play(scene, max_payload=LIMIT)


def test_of_each_object_at_most_one_body_is_kept_and_none_of_what_is_gone() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await site.job("big", filler=FILLER)
        for number in range(20):
            await site.touch("big", str(number))
            await asyncio.sleep(1)
        assert len(site.server.bodies) == 1
        assert (await read(site))["big"].object is not None

        await site.delete("big")
        await asyncio.sleep(5)

        end = site.said(JOB)[-1]
        assert (end.deleted, end.object_ref) == (True, None)
        assert len(site.server.bodies) == 0

    play(scene, max_payload=LIMIT)


def test_an_object_that_shrinks_needs_no_body_any_more() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await site.job("big", filler=FILLER)
        await asyncio.sleep(5)
        patch = {"metadata": {"annotations": {"filler": None}}}
        await site.kube.patch(JOB, "default", "big", patch)
        await asyncio.sleep(5)
        assert site.said(JOB)[-1].object_ref is None
        assert len(site.server.bodies) == 0

    play(scene, max_payload=LIMIT)


def test_the_next_watcher_knows_which_bodies_are_in_use_and_sweeps_the_others() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await site.job("big", filler=FILLER)
        await asyncio.sleep(5)
        bus = MemoryBus(site.server, instance="dying")
        await bus.start()
        for cluster in ("hub", "other"):
            name = f"sluice.observed.{cluster}.default.lost.jobs_batch/1"
            await bus.put_body(name, b"never said")
        await bus.stop()
        await asyncio.sleep(7200)
        assert len(site.server.bodies) == 3
        await site.kill()

        await site.start()
        await asyncio.sleep(60)
        assert len(site.server.bodies) == 2, "what belongs to another cluster is not ours"
        assert (await read(site))["big"].object_ref is None, "the whole"
        before = len(site.said())

        await site.touch("big", "1")
        await asyncio.sleep(5)
        assert len(site.said()) == before + 1
        assert len(site.server.bodies) == 2

    play(scene, max_payload=LIMIT)


def test_with_no_room_for_bodies_the_short_form_is_said_alone() -> None:
    async def scene(site: Site) -> None:
        site.server.stream("OBJ_objects").full = True
        await site.start()
        await site.job("big", filler=FILLER)
        await asyncio.sleep(5)
        big = (await read(site))["big"].object
        assert big is not None
        assert "object of 101" in big["metadata"]["annotations"][TRUNCATED]

    play(scene, max_payload=LIMIT)


def test_while_the_bus_is_away_the_large_ones_wait_like_all_others() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await asyncio.sleep(5)
        site.server.restart(down_seconds=20)
        await site.job("big", filler=FILLER)
        await asyncio.sleep(90)
        assert (await read(site))["big"].object is not None
        assert len(site.server.bodies) == 1

    play(scene, max_payload=LIMIT)
