"""An order of the hub makes and ends its copy, and nothing else; `tests/attacks` has what is refused."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from services.patcher.cluster.writer import get_or_none
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.testing.waiting import eventually, first_value
from tests.attacks.forgery import TENANT, Forgery, forgery
from tests.attacks.orders import LABELS, job, order, target

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Forgery]:
    async with forgery() as found:
        yield found


async def test_order_of_the_hub_is_carried_out(stage: Forgery) -> None:
    await stage.bus.publish(order())
    made = await first_value(partial(get_or_none, stage.spoke.kube, kinds.JOB, TENANT, "train"))
    assert made["spec"]["suspend"]
    assert made["metadata"]["labels"] == LABELS


async def test_order_changes_no_job_that_it_did_not_make(stage: Forgery) -> None:
    """The last field of the second order shows when the first was handled: they have one key."""
    spec = job()["spec"]
    mine = await stage.spoke.make(kinds.JOB, "mine", namespace=TENANT, spec=spec)
    wish = {"suspend": False, "activeDeadlineSeconds": 5}
    chosen = {"state": "chosen", "job": None, "wish": wish}
    await stage.bus.publish(order(target=target(name="mine"), **chosen))
    await stage.bus.publish(order())
    await first_value(partial(get_or_none, stage.spoke.kube, kinds.JOB, TENANT, "train"))
    assert await stage.spoke.kube.get(kinds.JOB, TENANT, "mine") == mine


CHANGES: dict[str, Object] = {
    "it starts": {"suspend": False},
    "its pods run something else": {"template": {"spec": {"containers": []}}},
    "it has more pods": {"parallelism": 100},
    "somebody else runs it": {"managedBy": "example.com/evil"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_order_changes_its_copy_only_so_that_it_ends(stage: Forgery, change: Object) -> None:
    await stage.bus.publish(order())
    before = await first_value(partial(get_or_none, stage.spoke.kube, kinds.JOB, TENANT, "train"))
    seconds = before["spec"].get("activeDeadlineSeconds", 1_000) - 1
    wish = {**change, "activeDeadlineSeconds": seconds}
    await stage.bus.publish(order(state="chosen", job=None, target=target(), wish=wish))

    async def shortened() -> bool:
        found = await stage.spoke.kube.get(kinds.JOB, TENANT, "train")
        return bool(found["spec"].get("activeDeadlineSeconds") == seconds)

    await eventually(shortened)
    after = await stage.spoke.kube.get(kinds.JOB, TENANT, "train")
    assert {**after["spec"], "activeDeadlineSeconds": 0} == {
        **before["spec"],
        "activeDeadlineSeconds": 0,
    }
