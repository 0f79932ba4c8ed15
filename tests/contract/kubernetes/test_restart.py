"""A real API server that is killed while much changes: no gap, nothing twice."""

import asyncio
from random import Random

import pytest

from shared.contracts.kube.kinds import NAMESPACE, WORKLOAD
from shared.kube.client import HttpKube
from shared.kube.port import AlreadyExistsError, KubeError, NotFoundError
from shared.testing.waiting import eventually
from tests.contract.kubernetes.clusters import Cluster
from tests.contract.kubernetes.conftest import install
from tests.contract.kubernetes.follower import Follower, uid_of
from tests.contract.kubernetes.stage import workload

KILLS = 2
CHANGES = 120


@pytest.mark.cluster
@pytest.mark.usefixtures("impatient")
async def test_reflector_sees_everything_over_kills_of_the_server(
    real_server: Cluster,
) -> None:
    writer = HttpKube.from_kubeconfig(str(real_server.kubeconfig))
    await install(writer)
    await writer.create(NAMESPACE, {"metadata": {"name": "restart"}})
    kube = HttpKube.from_kubeconfig(str(real_server.kubeconfig))
    follower = Follower(kube, WORKLOAD, "restart")
    writing = asyncio.create_task(change(writer, Random(1)))
    for _ in range(KILLS):
        await asyncio.sleep(0.5)
        real_server.kill()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(real_server.start)
    await writing

    async def agree() -> bool:
        items = (await writer.list(WORKLOAD, namespace="restart")).items
        return follower.view == {item["metadata"]["name"]: uid_of(item) for item in items}

    await eventually(agree)
    await follower.close()
    await writer.close()
    assert set(follower.told.values()) == {1}
    assert follower.unserved == []
    assert follower.lists <= 1 + KILLS


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.reflector.MOST_WAIT_SECONDS", 1.0)


async def change(kube: HttpKube, chance: Random) -> None:
    for number in range(CHANGES):
        name = f"w{chance.randrange(10)}"
        while True:
            try:
                await one_change(kube, name, number, chance.random())
            except KubeError:
                await asyncio.sleep(0.1)  # It is down, or was done although nobody said so.
            else:
                break
        await asyncio.sleep(0.02)


async def one_change(kube: HttpKube, name: str, number: int, what: float) -> None:
    try:
        if what < 0.4:
            await kube.create(WORKLOAD, workload("restart", name))
        elif what < 0.8:
            patch = {"metadata": {"labels": {"number": str(number)}}}
            await kube.patch(WORKLOAD, "restart", name, patch)
        else:
            await kube.delete(WORKLOAD, "restart", name)
    except (AlreadyExistsError, NotFoundError):
        return
