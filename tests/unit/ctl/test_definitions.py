"""The definitions of our kinds, where `sluice dev` finds a cluster without them."""

from datetime import UTC, datetime
from random import Random

import pytest

from services.ctl.setup.definitions import (
    MANAGED_BY,
    apply_definitions,
    disable_conversion,
    enable_conversion,
)
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import CUSTOM_RESOURCE_DEFINITION, Object
from shared.contracts.kueue.definitions import ALL_DEFINITIONS, DEFINITIONS, crd
from shared.kube.port import Kube

URL = "https://127.0.0.1:1/convert"
QUEUES = "clusterqueues.kueue.x-k8s.io"


@pytest.fixture
async def kube() -> Kube:
    return LocalKube(Api(now=lambda: datetime.now(UTC), random=Random(1)))


async def found(kube: Kube) -> dict[str, Object]:
    items = (await kube.list(CUSTOM_RESOURCE_DEFINITION)).items
    return {item["metadata"]["name"]: item for item in items}


async def test_missing_definitions_are_created_once_with_our_label(kube: Kube) -> None:
    said: list[str] = []
    await apply_definitions(kube, said.append)
    first = await found(kube)
    await apply_definitions(kube, said.append)

    assert set(first) == {definition.name for definition in ALL_DEFINITIONS}
    assert all(one["metadata"]["labels"] == MANAGED_BY for one in first.values())
    assert first[QUEUES]["spec"]["conversion"] == {"strategy": "None"}
    assert said == [f"{len(ALL_DEFINITIONS)} definitions of kinds were missing: applied"]
    versions = {name: one["metadata"]["resourceVersion"] for name, one in first.items()}
    again = await found(kube)
    assert {name: one["metadata"]["resourceVersion"] for name, one in again.items()} == versions


async def test_definition_of_another_owner_stays_unchanged(kube: Kube) -> None:
    (theirs,) = [crd(one, webhook=True) for one in DEFINITIONS if one.name == QUEUES]
    await kube.create(CUSTOM_RESOURCE_DEFINITION, theirs)

    await apply_definitions(kube, lambda _: None)
    await enable_conversion(kube, url=URL, authority=b"ca")

    assert (await found(kube))[QUEUES]["spec"] == theirs["spec"]
    await disable_conversion(kube)
    assert (await found(kube))[QUEUES]["spec"] == theirs["spec"]


async def test_stopped_webhook_no_longer_converts(kube: Kube) -> None:
    await apply_definitions(kube, lambda _: None)
    before = (await found(kube))[QUEUES]["spec"]
    await enable_conversion(kube, url=URL, authority=b"ca")
    await disable_conversion(kube)
    assert (await found(kube))[QUEUES]["spec"] == before


async def test_conversion_webhook_stays_until_the_next_start(kube: Kube) -> None:
    await apply_definitions(kube, lambda _: None)
    await enable_conversion(kube, url=URL, authority=b"ca")

    spec = (await found(kube))[QUEUES]["spec"]
    assert spec["conversion"]["strategy"] == "Webhook"
    client = spec["conversion"]["webhook"]["clientConfig"]
    assert client == {"url": URL, "caBundle": "Y2E="}

    await apply_definitions(kube, lambda _: None)
    assert (await found(kube))[QUEUES]["spec"]["conversion"] == {"strategy": "None"}
