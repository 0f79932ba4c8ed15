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
    NAMESPACE,
    conditions_of,
    embedded,
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
        secret = named(kinds.SECRET, SPOKE, namespace=SYSTEM_NAMESPACE)
        data = {"kubeconfig": embedded(spoke.kubeconfig)}
        await hub.kube.create(kinds.SECRET, {**secret, "stringData": data})
        await name_spoke(hub.kube, SPOKE)
        await until(lambda: is_usable(hub.kube), kueue.log)
        await queues(hub.kube, cpu="8", check=CHECK)
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
        sluicegate.give_kubeconfig(SPOKE, embedded(spoke.kubeconfig))
        await name_spoke(hub.kube, SPOKE, **{SPOKE_QUOTA: "kueue"})
        await until(lambda: is_usable(hub.kube), sluicegate.log)
        await queues(hub.kube, cpu="8", check=CHECK)
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


async def is_finished(kube: HttpKube, name: str) -> bool:
    return conditions_of(await workload_of(kube, name)).get("Finished") == "True"
