"""The demo's load on a real API server, asked over HTTPS; watcher, patcher and API server are killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from services.ctl.connect.bus import connected
from services.ctl.demo.check import judge
from services.ctl.demo.create import create_all
from services.ctl.demo.load import make_load
from services.ctl.demo.progress import ProgressTracker, track
from services.ctl.demo.results import read_results
from services.ctl.dev.app import EXAMPLE, DevOptions, Running, running
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK, Object
from shared.kube.client import HttpKube
from shared.testing.waiting import eventually
from tests.contract.kubernetes.clusters import Cluster, some_cluster, some_nats
from tests.contract.kubernetes.definitions import CUSTOM_RESOURCE_DEFINITION, definition
from tests.e2e.cluster_player import Player, playing

pytestmark = pytest.mark.cluster

RUNS, JOBS, SLOTS = 420, 80, 40
BETWEEN_SECONDS: Final = 4.0
END_SECONDS: Final = 400
VICTIMS: Final = ("watcher", "patcher", "apiserver", "patcher", "watcher", "apiserver")
SETTLE_SECONDS: Final = 5.0
"""A real API server cancels what runs on a custom kind while its definition is being taken in."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its own: it is killed."""
    with some_cluster(tmp_path_factory.mktemp("e2e")) as started:
        yield started


@pytest.fixture(scope="module")
def nats_url() -> Iterator[str | None]:
    """In Docker, where the cluster is; None starts the embedded one."""
    with some_nats() as url:
        yield url


@pytest.fixture
async def kube(server: Cluster) -> AsyncIterator[HttpKube]:
    """A client of a cluster that serves Tekton's kinds. Ours are missing: `sluice dev` brings them."""
    client = HttpKube.from_kubeconfig(str(server.kubeconfig))
    tekton = [definition(kind) for kind in (kinds.PIPELINE_RUN, kinds.TASK_RUN)]
    for one in tekton:
        await client.create(CUSTOM_RESOURCE_DEFINITION, one)
    wanted = {names(one) for one in tekton}

    async def served() -> bool:
        return wanted <= {(group, plural) for group, _, plural in await client.served()}

    await eventually(served)
    await asyncio.sleep(SETTLE_SECONDS)
    yield client
    await client.close()


def names(crd: Object) -> tuple[str, str]:
    return crd["spec"]["group"], crd["spec"]["names"]["plural"]


async def kill(system: Running, server: Cluster) -> None:
    for name in VICTIMS:
        await asyncio.sleep(BETWEEN_SECONDS)
        if name == "apiserver":
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            continue
        pid = system.supervisor.pid(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)


async def finish(tracker: ProgressTracker, player: Player) -> None:
    try:
        async with asyncio.timeout(END_SECONDS):
            while not tracker.complete:  # noqa: ASYNC110 - the board tells nobody
                await asyncio.sleep(0.5)
    except TimeoutError:
        left = [
            (tracker.submitted[uid].name, tracker.reasons.get(uid)) for uid in tracker.unfinished()
        ]
        pytest.fail(f"{len(left)} unfinished, {len(player.ended)} played: {left[:5]}")


async def test_demos_load_passes_while_watcher_patcher_and_api_server_are_killed(
    server: Cluster, nats_url: str | None, kube: HttpKube, tmp_path: Path
) -> None:
    said: list[str] = []
    load = make_load(seed=7, runs=RUNS, jobs=JOBS)
    tracker = ProgressTracker(len(load))
    options = DevOptions(
        directory=tmp_path,
        nats_url=nats_url,
        kubeconfig=server.kubeconfig,
        manifests=(EXAMPLE,),
        webhook=True,
    )
    async with running(options, said.append) as system, connected(system.nats_url) as bus:
        await shrink(kube)
        async with playing(kube) as player:
            following = asyncio.create_task(track(bus, tracker))
            killing = asyncio.create_task(kill(system, server))
            try:
                await create_all(
                    kube, load, now=lambda: datetime.now(UTC), on_submitted=tracker.submit
                )
                await killing
                await finish(tracker, player)
            finally:
                following.cancel()
                killing.cancel()
        result = await read_results(bus, tracker.submitted, tuple(tracker.refused))
        assert system.supervisor.starts("patcher") == 1 + VICTIMS.count("patcher"), said
        await whole(kube, tracker)
    for kind in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK):
        assert not (await kube.list(kind)).items, "left behind, it would let nobody create a job"
    assert not tracker.refused
    assert len(result.cases) == RUNS + JOBS
    assert not player.without_leave
    wrong = [line for verdict in judge(result, queues=False) for line in verdict.wrong]
    assert not wrong


async def shrink(kube: HttpKube) -> None:
    """Few slots, so that there is always somebody who waits."""
    path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    patch = [{"op": "replace", "path": path, "value": SLOTS}]
    await kube.patch(kinds.CLUSTER_QUEUE, None, "cluster-pipeline-queue", patch)


async def whole(kube: HttpKube, tracker: ProgressTracker) -> None:
    """The cluster says the same as the logs: one Workload for each job, and it is finished."""

    async def settled() -> bool:
        items = (await kube.list(kinds.WORKLOAD)).items
        owners = [owner["uid"] for item in items for owner in item["metadata"]["ownerReferences"]]
        return sorted(owners) == sorted(tracker.submitted) and all(map(is_finished, items))

    await eventually(settled)


def is_finished(workload: Object) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Finished" and c["status"] == "True" for c in conditions)
