"""A spoke's Integration objects decide nothing at the hub."""

import asyncio
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.unit.dispatcher.harness import Harness, job, offer


def integration(plural: str, **spec: Any) -> Object:
    """A document that says of every Job that it is active."""
    return {
        "apiVersion": kinds.INTEGRATION.api_version,
        "kind": kinds.INTEGRATION.kind,
        "metadata": {"name": plural, "uid": "i", "resourceVersion": "1"},
        "spec": {
            "kind": {"group": "batch", "version": "v1", "kind": "Job", "plural": plural},
            "active": "true",
            "podSets": [{"template": "spec.template", "count": "1"}],
            **spec,
        },
    }


@pytest.mark.parametrize(("cluster", "counts"), [("west", False), ("hub", True)])
def test_copy_on_spoke_is_read_by_integrations_of_hub_alone(cluster: str, counts: bool) -> None:
    with Harness() as harness:

        async def drive() -> None:
            await harness.observe(kinds.INTEGRATION, integration("jobs"), cluster=cluster)
            await offer(harness, job())
            await asyncio.sleep(30)
            chosen = [await harness.last_order(spoke) for spoke in ("east", "west")]
            started = [order for order in chosen if order is not None and order.state == "chosen"]
            assert bool(started) is counts, "a copy that is active has won"

        harness.run(drive)
