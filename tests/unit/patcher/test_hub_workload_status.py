"""The hub's patcher writes clusterName and nominatedClusterNames as Kueue's webhook accepts them."""

from functools import partial
from typing import Any

import pytest

from services.classifier.validation import validate
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.spokes import HubStatus
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.kube.port import Patch, RefusedError
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup


class Guarded(LocalKube):
    """A cluster whose webhook looks at each status that is written to a Workload."""

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Patch, *, subresource: str | None = None
    ) -> Object:  # fmt: skip
        if kind == kinds.WORKLOAD and subresource == "status" and isinstance(patch, list):
            old = await self.get(kind, namespace, name)
            problems = validate({**old, "status": patch[-1]["value"]}, old)
            if problems:
                raise RefusedError("; ".join(map(str, problems)), status=422)
        return await super().patch(kind, namespace, name, patch, subresource=subresource)


def home(state: WorkloadState, **more: Any) -> HubStatus:
    target = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid=state.uid)
    return HubStatus(
        cluster="hub", namespace="default", name=state.name, uid=state.uid, target=target,
        **{"nominated": [], "at": NOON, **more},
    )  # fmt: skip


async def shows(setup: Setup, state: WorkloadState, expected: Object) -> bool:
    status = (await setup.workload(state) or {}).get("status") or {}
    shown = {key: status.get(key) for key in ("clusterName", "nominatedClusterNames")}
    return bool({key: value for key, value in shown.items() if value} == expected)


WAYS: dict[str, list[tuple[dict[str, Any], Object]]] = {
    "nominated, then chosen": [
        ({"nominated": ["east", "west"]}, {"nominatedClusterNames": ["east", "west"]}),
        ({"spoke": "west"}, {"clusterName": "west"}),
    ],
    "chosen, and the nomination was never seen": [({"spoke": "west"}, {"clusterName": "west"})],
    "chosen again, elsewhere, and what was between was never seen": [
        ({"spoke": "west"}, {"clusterName": "west"}),
        ({"spoke": "east"}, {"clusterName": "east"}),
        ({"nominated": ["west"]}, {"nominatedClusterNames": ["west"]}),
        ({}, {}),
    ],
    "others nominate": [
        ({"nominated": None, "spoke": "west"}, {"clusterName": "west"}),
        ({"nominated": None}, {}),
    ],
}


@pytest.mark.parametrize("steps", WAYS.values(), ids=list(WAYS))
async def test_cluster_name_is_written_in_the_order_that_kueues_webhook_accepts(
    steps: list[tuple[dict[str, Any], Object]],
) -> None:
    setup = Setup()
    setup.patchers_kube = Guarded(setup.api)
    await setup.bus.start()
    await setup.start_patcher()
    try:
        state = await setup.submit()
        await setup.decide(state, "reserved", checks=["multikueue"])
        await eventually(partial(setup.workload, state))
        for said, expected in steps:
            await setup.bus.publish(home(state, **said))
            await eventually(partial(shows, setup, state, expected))
    finally:
        await setup.kill_patcher()
