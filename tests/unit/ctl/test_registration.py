"""The webhook of `sluice dev` in somebody's cluster: there while it runs, gone afterwards."""

from datetime import UTC, datetime
from random import Random

import pytest

from services.ctl.setup.registration import register, unregister
from services.ctl.setup.webhook import validating_manifest, webhook_manifest
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK, Kind
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK as NAME
from shared.contracts.webhook import KIND_UPDATES
from shared.integrations import INTEGRATIONS, WHERE_SERVED
from shared.kube.port import Kube
from shared.runtime.command import CommandError

URL = "https://127.0.0.1:1"
MANIFESTS = (
    webhook_manifest(url=f"{URL}/mutate", authority=b"ca"),
    validating_manifest(url=f"{URL}/validate", authority=b"ca"),
)
KINDS = (MUTATING_WEBHOOK, VALIDATING_WEBHOOK)


ASKED = {
    "classifier.sluicegate.dev": ("CREATE", {one.kind for one in INTEGRATIONS}),
    "updates.classifier.sluicegate.dev": (
        "UPDATE",
        {one.kind for one in INTEGRATIONS} - WHERE_SERVED,
    ),
    KIND_UPDATES: ("UPDATE", WHERE_SERVED),
}


@pytest.mark.parametrize(("name", "asked"), ASKED.items(), ids=ASKED)
def test_webhook_is_asked_about_each_kind_that_can_wait(
    name: str, asked: tuple[str, set[Kind]]
) -> None:
    """A change of a kind that a cluster may not serve is asked about apart: it has other conditions."""
    [hook] = [one for one in MANIFESTS[0].object["webhooks"] if one["name"] == name]
    rules = {
        (*rule["apiGroups"], *rule["apiVersions"], *rule["resources"], *rule["operations"])
        for rule in hook["rules"]
    }
    operation, found = asked
    assert rules == {(one.group, one.version, one.plural, operation) for one in found}
    assert all(found for _, found in ASKED.values())


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
