"""NATS is lost and restored from a backup that is older than the cluster (docs/how-to/backup.md)."""

from pathlib import Path
from typing import Final

import pytest

from shared.bus.embedded import EmbeddedServer
from shared.contracts.kube import kinds
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.conformance.seeds.stage import job
from tests.e2e.operations.site import QUEUE, SLUICE, TEAM, Site, site, told

pytestmark = pytest.mark.cluster

QUOTA: Final = 5
STILL_RUNNING: Final = ("before-1", "before-5", "after-0", "after-1")
"""Jobs that run when the backup is restored, and long after that: it knows one of them as running."""


async def bus(server: EmbeddedServer, *arguments: str) -> str:
    """Output of `sluice bus` on a server."""
    status, said = await told((*SLUICE, "bus", *arguments, "--nats-url", server.url))
    assert status == 0, said
    return said


async def suspended_job(place: Site, name: str) -> None:
    """Made while nobody answers the webhook: its user made it wait, as Kueue's users do."""
    made = job(name, QUEUE, {"cpu": 1})
    made["spec"]["suspend"] = True
    await place.kube.create(kinds.JOB, made)


async def until_settled(place: Site, *running: str) -> None:
    """Return once these run, and the queue says that they and nobody else have its quota."""
    await place.until_runs(*running)

    async def told_so() -> bool:
        return await place.reserved() == (str(len(running)), len(running))

    await eventually(told_so, look_seconds=0.2)


async def test_what_runs_runs_on_and_holds_its_quota_once_after_an_old_backup(
    tmp_path: Path,
) -> None:
    target = tmp_path / "backup"
    async with site(tmp_path) as place:
        async with nats_server() as old, place.services(old.url):
            await change_before_and_after_backup(place, old, target)
        # No service runs, and there is no NATS.
        await place.end("before-2")
        await place.kube.delete(kinds.JOB, TEAM, "after-2")
        await suspended_job(place, "late-0")
        pods = {name: place.history.pods_of(name) for name in STILL_RUNNING}

        async with nats_server(streams=False) as new:
            await bus(new, "restore", str(target))
            said = await bus(new, "apply")
            assert "LEASES: created" in said
            async with place.services(new.url):
                await until_settled(place, *pods, "after-3")
                await place.until_workload("late-0", "QuotaReserved", status="False")
                await place.end("before-1")
                await until_settled(place, "before-5", "after-0", "after-1", "after-3", "late-0")
                await place.create_jobs("late-1")
                await place.until_workload("late-1", "QuotaReserved", status="False")
                await place.end("after-0", "after-3")
                await until_settled(place, "before-5", "after-1", "late-0", "late-1")
    assert place.history.stops() == []
    assert {name: place.history.pods_of(name) for name in pods} == pods, "no pod was replaced"
    assert max(len(names) for names in place.history.running()) == QUOTA
    assert place.history.gaps == 0


async def change_before_and_after_backup(place: Site, server: EmbeddedServer, target: Path) -> None:
    """In the backup five run and one waits. Three end: that one runs then, and two that it does not know."""
    await place.create_queue(QUOTA)
    before = [f"before-{number}" for number in range(QUOTA)]
    await place.create_jobs(*before)
    await until_settled(place, *before)
    await place.create_jobs("before-5")
    await place.until_workload("before-5", "QuotaReserved", status="False")
    await bus(server, "backup", str(target))
    for name, ends, *runs in (
        ("after-0", "before-0", *before[1:], "before-5"),
        ("after-1", "before-3", "before-1", "before-2", "before-4", "before-5", "after-0"),
        ("after-2", "before-4", "before-1", "before-2", "before-5", "after-0", "after-1"),
    ):
        await place.create_jobs(name)
        await place.until_workload(name, "QuotaReserved", status="False")
        await place.end(ends)
        await until_settled(place, *runs)
    await place.create_jobs("after-3")
    for name in ("after-2", "after-3"):
        await place.until_workload(name, "QuotaReserved", status="False")
