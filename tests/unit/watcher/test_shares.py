"""A namespace has a share of a crowded view: above it, objects are published without their contents."""

import asyncio

import pytest

from shared.contracts.kube.kinds import JOB, NAMESPACE
from shared.contracts.kube.names import TRUNCATED
from shared.testing.world.memory_streams import MemoryStream
from tests.unit.watcher.harness import Harness, job, run_harness

SHARE = 100_000
LARGE = "x" * 30_000
"""Three of them fit into a share."""


@pytest.fixture
def fullness(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How full streams are, by name: of others nobody asks."""
    found = {"OBSERVED_NOW": 0.51}
    monkeypatch.setattr("services.watcher.shares.SHARE_BYTES", SHARE)
    monkeypatch.setattr(MemoryStream, "fullness", property(lambda stream: found[stream.name]))
    return found


async def create(harness: Harness, namespace: str, *names: str, filler: str = LARGE) -> None:
    """Make jobs in a namespace."""
    for name in names:
        made = job(name, filler=filler)
        made["metadata"]["namespace"] = namespace
        await harness.kube.create(JOB, made)
    await asyncio.sleep(5)


def short(harness: Harness) -> dict[str, bool]:
    """Each job by its last message: whether it lacks its contents."""
    jobs = {one.name: one for one in harness.published(JOB) if not one.deleted}
    return {
        name: TRUNCATED in one.object["metadata"].get("annotations", {})
        for name, one in jobs.items()
        if one.object is not None
    }


@pytest.mark.parametrize("full", [0.51, 0.5])
def test_namespace_that_has_its_share_of_a_crowded_view_adds_no_contents(
    fullness: dict[str, float], full: float
) -> None:
    fullness["OBSERVED_NOW"] = full

    async def drive(harness: Harness) -> None:
        await harness.kube.create(NAMESPACE, {"metadata": {"name": "other"}})
        await harness.start()
        await create(harness, "default", "a", "b", "c", "d", "e")
        await create(harness, "default", "small", filler="x")
        await create(harness, "other", "f")
        crowded = full > 0.5
        whole = dict.fromkeys(("a", "b", "c", "small", "f"), False)
        assert short(harness) == whole | dict.fromkeys(("d", "e"), crowded)
        sizes = [len(entry.data) for entry in harness.log() if ".default." in entry.subject]
        assert sum(sizes) < SHARE + 10_000 or not crowded

    run_harness(drive)


def test_objects_that_come_at_once_have_one_share_together(fullness: dict[str, float]) -> None:
    async def drive(harness: Harness) -> None:
        await create(harness, "default", *(f"j{n}" for n in range(20)))
        await harness.start()
        await asyncio.sleep(5)
        assert sum(short(harness).values()) == 17

    run_harness(drive)


def test_next_watcher_knows_what_each_namespace_has(fullness: dict[str, float]) -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await create(harness, "default", "a", "b", "c")
        await harness.kill()
        await harness.start()
        await create(harness, "default", "d")
        assert short(harness) == {"a": False, "b": False, "c": False, "d": True}

    run_harness(drive)


@pytest.mark.parametrize("restarted", [True, False])
def test_object_is_published_whole_at_the_next_list_once_there_is_room(
    fullness: dict[str, float], restarted: bool
) -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await create(harness, "default", "a", "b", "c", "d")
        assert short(harness)["d"]
        await harness.delete("a")
        await asyncio.sleep(5)
        if restarted:
            await harness.kill()
            await harness.start()
        else:
            harness.break_watches()
            await harness.kube.create(NAMESPACE, {"metadata": {"name": "other"}})
            harness.api.store.forget_events()
        await asyncio.sleep(60)
        assert not short(harness)["d"]

    run_harness(drive)


def test_object_without_contents_that_the_bus_refused_is_published_whole_at_the_next_list(
    fullness: dict[str, float],
) -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await create(harness, "default", "a", "b", "c")
        harness.server.stream("OBSERVED").full = True
        await create(harness, "default", "d")
        harness.server.stream("OBSERVED").full = False
        await asyncio.sleep(10)
        assert short(harness)["d"]
        await harness.delete("a")
        await asyncio.sleep(5)
        harness.break_watches()
        await harness.kube.create(NAMESPACE, {"metadata": {"name": "other"}})
        harness.api.store.forget_events()
        await asyncio.sleep(60)
        assert not short(harness)["d"]

    run_harness(drive)


def test_object_that_shrinks_is_published_whole(fullness: dict[str, float]) -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        await create(harness, "default", "a", "b", "c", "d")
        patch = {"metadata": {"annotations": {"filler": None}}}
        await harness.kube.patch(JOB, "default", "d", patch)
        await asyncio.sleep(5)
        assert not short(harness)["d"]

    run_harness(drive)
