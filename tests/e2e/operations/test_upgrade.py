"""All services are exchanged while jobs arrive, run and wait (docs/how-to/upgrade.md)."""

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Final

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.conditions import is_true
from shared.contracts.kube.kinds import Object
from shared.kube.client import HttpKube
from shared.kube.port import KubeError
from shared.testing.waiting import eventually
from tests.conformance.seeds.stage import job
from tests.e2e.operations.rollout import Rollout, Service, lead_webhooks_to
from tests.e2e.operations.site import QUEUE, SERVICES, SLUICE, Site, manifests, site, told
from tests.kueue.beside.pods import SECONDS

pytestmark = pytest.mark.cluster

QUOTA: Final = 4
RUN_SECONDS: Final = "2"
BETWEEN_SECONDS: Final = 1.0
COLUMNS: Final = "additionalPrinterColumns"
CUSTOM: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE, kinds.RESOURCE_FLAVOR, kinds.WORKLOAD)


class Arrivals:
    """Somebody who creates Jobs, one after the other, and never tries twice."""

    def __init__(self, kube: HttpKube) -> None:
        self._kube = kube
        self.created: list[str] = []
        self.refused: list[str] = []

    async def come(self) -> None:
        """Until cancelled."""
        while True:
            made = job(f"load-{len(self.created)}", QUEUE, {"cpu": 1})
            made["spec"]["template"]["metadata"]["annotations"][SECONDS] = RUN_SECONDS
            try:
                await self._kube.create(kinds.JOB, made)
            except KubeError as error:
                self.refused.append(str(error))
            else:
                self.created.append(made["metadata"]["name"])
            await asyncio.sleep(BETWEEN_SECONDS)


def definitions_of_before() -> list[Object]:
    """Our definitions as another release had them: what it shows in tables is different."""
    found = [
        deepcopy(one)
        for one in manifests(webhooks=False)
        if one["kind"] == kinds.CUSTOM_RESOURCE_DEFINITION.kind
    ]
    for one in found:
        one["spec"]["versions"] = [
            {key: value for key, value in version.items() if key != COLUMNS}
            for version in one["spec"]["versions"]
        ]
    return found


async def custom_objects(place: Site) -> dict[str, Object]:
    """The specs of objects of our kinds, by uid."""
    return {
        one["metadata"]["uid"]: spec_of(one)
        for kind in CUSTOM
        for one in (await place.kube.list(kind)).items
    }


async def upgrade(place: Site, rollout: Rollout, nats_url: str) -> None:
    """The steps of the page, in its order."""
    before = await custom_objects(place)
    await place.kubectl(
        "-n", SERVICES, "delete", "job", "bus-apply", "--ignore-not-found", "--timeout=60s"
    )
    await place.apply(manifests(webhooks=False))
    status, said = await told((*SLUICE, "bus", "apply", "--nats-url", nats_url))
    assert status == 0, said
    after = await custom_objects(place)
    assert {uid: after.get(uid) for uid in before} == before
    queues = await place.kube.get(
        kinds.CUSTOM_RESOURCE_DEFINITION, None, "clusterqueues.kueue.x-k8s.io"
    )
    assert all(COLUMNS in version for version in queues["spec"]["versions"])
    await rollout.replace_all()


async def test_exchange_of_all_services_loses_nothing_and_runs_no_more_than_quota(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as place:
        await place.apply(definitions_of_before())
        webhook = Service()
        async with webhook.listening() as port, place.services() as system:
            rollout = Rollout(system.supervisor, webhook)
            await rollout.scale()
            await lead_webhooks_to(place.kube, port)
            await place.create_queue(QUOTA)
            await place.create_jobs("stays")
            await place.until_runs("stays")
            arrivals = Arrivals(place.kube)
            coming = asyncio.create_task(arrivals.come())
            try:
                await upgrade(place, rollout, system.nats_url)
            finally:
                coming.cancel()
            assert arrivals.refused == []

            async def all_complete() -> bool:
                jobs = [await place.job(name) for name in arrivals.created]
                return all(is_true(one, "Complete") for one in jobs)

            await eventually(all_complete, look_seconds=1.0)

            async def told_so() -> bool:
                return await place.reserved() == ("1", 1)

            await eventually(told_so, place.reserved, look_seconds=0.2)
            for name in arrivals.created:
                assert is_true(await place.workload(name), "Finished")
        running = [len(names) for names in place.history.running()]
    assert max(running) == QUOTA
    assert place.history.stops() == []
    assert [len(place.history.pods_of(name)) for name in ("stays", *arrivals.created)] == [
        1 for _ in ("stays", *arrivals.created)
    ]
    assert place.history.gaps == 0
