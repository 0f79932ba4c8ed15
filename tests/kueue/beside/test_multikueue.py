"""MultiKueue with a real Kueue on one side, and Sluicegate on the other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.names import SPOKE_QUOTA
from shared.kube.client import HttpKube
from shared.testing.waiting import eventually
from tests.kueue.beside.clusters import Cluster, cluster, given_assets
from tests.kueue.beside.manager import SYSTEM_NAMESPACE, Kueue
from tests.kueue.beside.objects import (
    CHECK,
    MULTIKUEUE,
    NAMESPACE,
    conditions_of,
    embedded,
    get,
    is_complete,
    is_usable,
    job,
    listed,
    name_spoke,
    named,
    queues,
    usage,
    workload_of,
)
from tests.kueue.beside.sluicegate import Sluicegate

pytestmark = [pytest.mark.kueue, pytest.mark.timeout(3600)]

SPOKE = "west"
LONG = 63 * "x"
"""A Job's name. The name of its Workload is too long for a label."""

until = partial(eventually, seconds=300.0, look_seconds=0.5)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A hub that sends work to one spoke."""

    hub: Cluster
    spoke: Cluster
    kueue: Kueue
    sluicegate: Sluicegate


@asynccontextmanager
async def stock_hub(folder: Path, *, cpu: str) -> AsyncIterator[Site]:
    """Kueue at the hub, Sluicegate on the spoke."""
    assets = given_assets()
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(cluster(assets, folder, "hub"))
        spoke = await stack.enter_async_context(cluster(assets, folder, SPOKE))
        kueue, sluicegate = Kueue(assets, hub), Sluicegate(spoke)
        await kueue.install()
        stack.enter_context(kueue.process())
        stack.enter_context(sluicegate.process())
        await kueue.ready()
        await sluicegate.ready()
        await queues(spoke.kube, cpu=cpu)
        await queues(hub.kube, cpu="8", check=CHECK)
        secret = named(kinds.SECRET, SPOKE, namespace=SYSTEM_NAMESPACE)
        data = {"kubeconfig": embedded(spoke.kubeconfig)}
        await hub.kube.create(kinds.SECRET, {**secret, "stringData": data})
        await name_spoke(hub.kube, SPOKE)
        await until(lambda: is_usable(hub.kube), kueue.log)
        yield Site(hub=hub, spoke=spoke, kueue=kueue, sluicegate=sluicegate)


@asynccontextmanager
async def stock_spoke(folder: Path, *, cpu: str) -> AsyncIterator[Site]:
    """Sluicegate at the hub, Kueue on the spoke."""
    assets = given_assets()
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(cluster(assets, folder, "hub"))
        spoke = await stack.enter_async_context(cluster(assets, folder, SPOKE))
        kueue, sluicegate = Kueue(assets, spoke), Sluicegate(hub)
        await kueue.install()
        stack.enter_context(kueue.process())
        stack.enter_context(sluicegate.process())
        await kueue.ready()
        await sluicegate.ready()
        await queues(spoke.kube, cpu=cpu)
        await queues(hub.kube, cpu="8", check=CHECK)
        sluicegate.give_kubeconfig(SPOKE, embedded(spoke.kubeconfig))
        await name_spoke(hub.kube, SPOKE, **{SPOKE_QUOTA: "kueue"})
        await until(lambda: is_usable(hub.kube), sluicegate.log)
        yield Site(hub=hub, spoke=spoke, kueue=kueue, sluicegate=sluicegate)


SITES = [
    pytest.param(stock_hub, id="a hub with Kueue"),
    pytest.param(stock_spoke, id="a spoke with Kueue"),
]


async def nothing_left(kube: HttpKube) -> bool:
    """No job, no Workload and no pod, and no quota is held."""
    kinds_left = (kinds.JOB, kinds.WORKLOAD, kinds.POD)
    left = [one for kind in kinds_left for one in await listed(kube, kind)]
    return not left and await usage(kube) == (0, "0")


@pytest.mark.parametrize("site", SITES)
async def test_jobs_run_on_the_spoke_and_leave_nothing(tmp_path: Path, site: Any) -> None:
    names = ("one", "two", LONG)
    async with site(tmp_path, cpu="2") as at:
        for name in names:
            await at.hub.kube.create(kinds.JOB, job(name, seconds=5))
        for name in names:
            await until(partial(is_complete, at.hub.kube, name), at.sluicegate.log)
        assert sorted(at.spoke.pods.started) == sorted((NAMESPACE, name) for name in names)
        assert at.hub.pods.started == []
        for name in names:
            await until(partial(is_finished, at.hub.kube, name))
        await until(lambda: nothing_left(at.spoke.kube), at.sluicegate.log)


@pytest.mark.parametrize("site", SITES)
async def test_what_happens_to_a_job_at_the_hub_happens_to_its_copy(
    tmp_path: Path, site: Any
) -> None:
    async with site(tmp_path, cpu="1") as at:
        hub, spoke = at.hub.kube, at.spoke.kube
        for name in ("gone", "stopped", "urgent"):
            await hub.create(kinds.JOB, job(name, seconds=None))
            await until(partial(workload_of, hub, name))
        await until(partial(runs, at, "gone"), at.sluicegate.log)
        found = await get(hub, kinds.JOB, "gone")
        assert found is not None
        assert found["spec"]["managedBy"] == MULTIKUEUE
        # A job of higher priority is next, though it came last.
        label = {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}
        await hub.patch(kinds.JOB, NAMESPACE, "urgent", label)
        await until(partial(has_priority, spoke, hub, "urgent", 1000), at.sluicegate.log)
        await hub.delete(kinds.JOB, NAMESPACE, "gone")
        await until(partial(is_gone, spoke, "gone"), at.sluicegate.log)
        await until(partial(runs, at, "urgent"), at.sluicegate.log)
        assert ("team-a", "stopped") not in at.spoke.pods.started
        # Its owner takes it back for good: the copy goes, and the next one runs.
        workload = await workload_of(hub, "urgent")
        assert workload is not None
        name = workload["metadata"]["name"]
        await hub.patch(kinds.WORKLOAD, NAMESPACE, name, {"spec": {"active": False}})
        await until(partial(is_gone, spoke, "urgent"), at.sluicegate.log)
        await until(partial(runs, at, "stopped"), at.sluicegate.log)
        assert await usage(spoke) == (1, "1")
        await hub.delete(kinds.JOB, NAMESPACE, "stopped")
        await until(lambda: nothing_left(spoke), at.sluicegate.log)
        assert sorted(name for _, name in at.spoke.pods.started) == ["gone", "stopped", "urgent"]


@pytest.mark.parametrize("site", SITES)
async def test_job_that_its_spoke_evicts_waits_at_the_hub_and_runs_again(
    tmp_path: Path, site: Any
) -> None:
    async with site(tmp_path, cpu="1") as at:
        hub, spoke = at.hub.kube, at.spoke.kube
        await hub.create(kinds.JOB, job("far", seconds=None))
        await until(partial(runs, at, "far"), at.sluicegate.log)
        await spoke.create(kinds.JOB, job("local", seconds=5, priority="high"))
        await until(partial(is_complete, spoke, "local"), at.sluicegate.log)
        await until(partial(runs, at, "far", times=2), at.sluicegate.log)
        await until(partial(is_admitted, hub, "far"), at.sluicegate.log)
        names = [name for _, name in at.spoke.pods.started]
        assert names == ["far", "local", "far"]


async def runs(at: Site, name: str, *, times: int = 1) -> bool:
    """Whether pods of the job began to run so often on the spoke."""
    return at.spoke.pods.started.count((NAMESPACE, name)) >= times


async def is_gone(kube: HttpKube, name: str) -> bool:
    return await get(kube, kinds.JOB, name) is None


async def is_admitted(kube: HttpKube, name: str) -> bool:
    return conditions_of(await workload_of(kube, name)).get("Admitted") == "True"


async def has_priority(spoke: HttpKube, hub: HttpKube, name: str, wanted: int) -> bool:
    """Whether the Workload of the hub's job has this priority on the spoke, where it is."""
    of_hub = await workload_of(hub, name)
    assert of_hub is not None
    found = await get(spoke, kinds.WORKLOAD, of_hub["metadata"]["name"])
    return found is not None and found["spec"].get("priority") == wanted


async def is_finished(kube: HttpKube, name: str) -> bool:
    return conditions_of(await workload_of(kube, name)).get("Finished") == "True"
