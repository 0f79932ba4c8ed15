"""The hub's patcher writes the condition Active of spokes and MultiKueue checks."""

from functools import partial
from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.spokes import CheckCondition, SpokeState
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup

CHECK = {"controllerName": "kueue.x-k8s.io/multikueue"}


async def create(setup: Setup, kind: Kind, name: str, spec: dict[str, Any]) -> None:
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
    await setup.kube.create(kind, {**obj, "spec": spec})


async def says(setup: Setup, kind: Kind, name: str, said: SpokeState | CheckCondition) -> bool:
    status = (await setup.kube.get(kind, None, name)).get("status") or {}
    shown = [
        (one["status"], one["reason"], one["message"])
        for one in status.get("conditions") or []
        if one["type"] == "Active"
    ]
    return shown == [(str(said.active), said.reason, said.message)]


async def test_active_condition_of_cluster_and_check_is_written() -> None:
    setup = Setup()
    await setup.bus.start()
    await create(setup, kinds.MULTIKUEUE_CLUSTER, "west", {})
    await create(setup, kinds.ADMISSION_CHECK, "elsewhere", CHECK)
    await setup.start_patcher()
    try:
        spoke = SpokeState(
            cluster="hub", spoke="west", active=False, reason="BadConfig", message="why", at=NOON
        )
        for state in (spoke, spoke.model_copy(update={"active": True, "reason": "Active"})):
            await setup.bus.publish(state)
            await eventually(partial(says, setup, kinds.MULTIKUEUE_CLUSTER, "west", state))
        check = CheckCondition(
            cluster="hub", check="elsewhere", active=False, reason="NoUsableClusters",
            message="Inactive clusters: west", at=NOON,
        )  # fmt: skip
        for standing in (check, check.model_copy(update={"active": True, "reason": "Active"})):
            await setup.bus.publish(standing)
            await eventually(partial(says, setup, kinds.ADMISSION_CHECK, "elsewhere", standing))
    finally:
        await setup.kill_patcher()
        await setup.bus.stop()
