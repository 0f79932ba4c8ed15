"""Only quota's user may delete ended workloads, on a real server with users."""

from functools import partial
from pathlib import Path

from shared.bus.nats.bus import NatsBus
from shared.testing.builders import workload
from shared.testing.deployed import bus_of
from shared.testing.waiting import eventually
from tests.integration.test_permissions import WORKERS, intruder, server


async def test_quota_alone_deletes_ended_workloads_from_views_and_logs(tmp_path: Path) -> None:
    async with server(tmp_path) as (running, secured):

        def bus(user: str) -> NatsBus:
            return bus_of(user, running.url, secured.access(user))

        classifier, quota = bus("classifier"), bus("quota")
        for one in (classifier, quota):
            await one.start()
        end = await classifier.publish(workload("dead").gone())
        await classifier.publish(workload("alive"))
        subject = workload("dead").subject

        async def swept() -> bool:
            return subject in await quota.sweep("WORKLOADS", {subject: end})

        await eventually(swept)
        assert await quota.trim("WORKLOADS", subject, up_to=end) == 1
        await classifier.publish(workload("alive").requeued())
        alive = workload("alive").subject
        assert await quota.long_histories("WORKLOADS", "sluice.workload.>", most=1) == [alive]
        assert await quota.shorten("WORKLOADS", alive, keep=1) == 1
        for user in (*{*WORKERS} - {"quota"}, "viewer"):
            async with intruder(running.url, secured.access(user)) as (client, said):
                for stream in ("WORKLOADS", "WORKLOADS_NOW", "ADMISSIONS"):
                    said.clear()
                    await client.publish(f"$JS.API.STREAM.PURGE.{stream}", b"{}")
                    await client.flush()
                    await eventually(partial(bool, said), f"{user} purges {stream}")
        for one in (classifier, quota):
            await one.stop()
