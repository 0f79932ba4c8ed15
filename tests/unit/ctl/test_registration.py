"""The webhook of `sluice dev` in somebody's cluster: there while it runs, gone afterwards."""

from datetime import UTC, datetime
from random import Random

import pytest

from services.ctl.setup.registration import register, unregister
from services.ctl.setup.webhook import validating_manifest, webhook_manifest
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK as NAME
from shared.kube.port import Kube
from shared.runtime.command import CommandError

URL = "https://127.0.0.1:1"
MANIFESTS = (
    webhook_manifest(url=f"{URL}/mutate", authority=b"ca"),
    validating_manifest(url=f"{URL}/validate", authority=b"ca"),
)
KINDS = (MUTATING_WEBHOOK, VALIDATING_WEBHOOK)


@pytest.fixture
async def kube() -> Kube:
    return LocalKube(Api(now=lambda: datetime.now(UTC), random=Random(1)))


async def names(kube: Kube) -> list[str]:
    return [one["metadata"]["name"] for kind in KINDS for one in (await kube.list(kind)).items]


async def test_registered_webhook_is_deleted_and_can_be_registered_again(kube: Kube) -> None:
    for _ in range(2):
        await register(kube, MANIFESTS)
        assert await names(kube) == [NAME, NAME]
        assert await unregister(kube)
        assert await names(kube) == []
    assert not await unregister(kube)


async def test_webhook_of_a_deployment_is_neither_changed_nor_deleted(kube: Kube) -> None:
    theirs = await kube.create(MUTATING_WEBHOOK, MANIFESTS[0].object)
    with pytest.raises(CommandError, match="of somebody else"):
        await register(kube, MANIFESTS)
    assert not await unregister(kube)
    assert await kube.get(MUTATING_WEBHOOK, None, NAME) == theirs
