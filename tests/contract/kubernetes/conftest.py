"""One suite, three clusters."""

from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Literal

import pytest

from services.simulator.app import Simulator
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import NAMESPACE, Kind
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig, plain
from shared.kube.port import AlreadyExistsError, Kube, WatchEvent
from shared.testing.waiting import eventually
from tests.clock import now
from tests.contract.kubernetes.clusters import Cluster, some_cluster
from tests.contract.kubernetes.definitions import (
    CUSTOM_RESOURCE_DEFINITION,
    INSTALLED,
    definition,
)
from tests.contract.kubernetes.stage import Reading, Stage

BACKENDS = ["local", "simulator", pytest.param("apiserver", marks=pytest.mark.cluster)]


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for the whole run: it takes seconds to start. Each test has a namespace of its own."""
    with some_cluster(tmp_path_factory.mktemp("envtest")) as server:
        yield server


async def install(kube: Kube) -> None:
    """Define the custom kinds, unless an earlier test did."""
    try:
        for kind in INSTALLED:
            await kube.create(CUSTOM_RESOURCE_DEFINITION, definition(kind))
    except AlreadyExistsError:
        return

    async def served() -> bool:
        wanted = {(kind.group, kind.version, kind.plural) for kind in INSTALLED}
        return wanted <= await kube.served()

    await eventually(served)


@pytest.fixture(params=BACKENDS)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """A cluster with a namespace of the test's own, for each of the clusters that there are."""
    namespace = f"t{abs(hash(request.node.name)) % 10**9}"
    backend: Literal["local", "simulator", "apiserver"] = request.param
    match backend:
        case "local":
            api = Api(now=now, random=Random(1))
            yield await staged(LocalKube(api), namespace, api.store.forget_events)
        case "simulator":
            simulator = Simulator(behaviour=False)
            await simulator.start()
            kube = HttpKube.at(simulator.url)

            def pages(items: int) -> HttpKube:
                return HttpKube(plain(simulator.url), page_items=items)

            yield await staged(kube, namespace, simulator.api.store.forget_events, pages=pages)
            await kube.close()
            await simulator.stop()
        case "apiserver":
            server: Cluster = request.getfixturevalue("real_server")
            kube = HttpKube.from_kubeconfig(str(server.kubeconfig))
            await install(kube)

            def small(items: int) -> HttpKube:
                return HttpKube(from_kubeconfig(str(server.kubeconfig)), page_items=items)

            yield await staged(kube, namespace, None, pages=small, collects=server.collects_garbage)
            await kube.close()


async def staged(
    kube: Kube,
    namespace: str,
    forget: Callable[[], None] | None,
    *,
    pages: Callable[[int], HttpKube] | None = None,
    collects: bool = True,
) -> Stage:
    try:
        await kube.create(NAMESPACE, {"metadata": {"name": namespace}})
    except AlreadyExistsError as error:
        raise AssertionError("two tests of one name") from error
    return Stage(
        kube=kube,
        namespace=namespace,
        forget=forget,
        collects_garbage=collects,
        small_pages=pages,
    )


@pytest.fixture
async def watch(stage: Stage) -> AsyncIterator[Callable[..., Reading]]:
    """``watch(KIND, version)``: a watch of the test's namespace that ends with the test."""
    readings: list[Reading] = []

    def begin(kind: Kind, version: str, labels: str | None = None) -> Reading:
        events: AsyncIterator[WatchEvent] = stage.kube.watch(
            kind, resource_version=version, namespace=stage.namespace, labels=labels
        )
        readings.append(Reading(events))
        return readings[-1]

    yield begin
    for reading in readings:
        await reading.close()
