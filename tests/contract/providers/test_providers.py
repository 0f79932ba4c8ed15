"""What every provider promises, whoever's machines they are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.provisioner.providers.port import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    VmState,
)
from tests.contract.providers.stage import STAGES, Stage


@pytest.fixture(params=STAGES)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with STAGES[request.param](tmp_path) as stage:
        yield stage


async def test_a_machine_comes_up_with_an_address_and_goes(stage: Stage) -> None:
    order = stage.order()
    assert await stage.provider.find(order.name) is None

    await stage.provider.launch(order)
    vm = await stage.until(order.name, VmState.RUNNING, address=True)
    assert vm is not None
    assert (vm.name, vm.launched_at is not None) == (order.name, True)

    await stage.provider.terminate(order.name)
    await stage.until(order.name, VmState.GONE)
    assert await stage.provider.list_owned("hub") == []


async def test_whoever_orders_a_name_twice_gets_one_machine(stage: Stage) -> None:
    order = stage.order()
    await stage.provider.launch(order)
    await stage.again().launch(order)
    await stage.provider.launch(order)

    assert [vm.name for vm in await stage.provider.list_owned("hub")] == [order.name]


async def test_the_list_shows_ours_and_nobody_elses(stage: Stage) -> None:
    ours = [stage.order(uid) for uid in ("t-1", "t-2")]
    theirs = stage.order("t-3", owner="another-cluster")
    for order in (*ours, theirs):
        await stage.provider.launch(order)

    listed = await stage.provider.list_owned("hub")
    assert sorted(vm.name for vm in listed) == sorted(order.name for order in ours)
    listed = await stage.provider.list_owned("another-cluster")
    assert [vm.name for vm in listed] == [theirs.name]


async def test_ending_what_is_gone_or_never_was_does_nothing(stage: Stage) -> None:
    order = stage.order()
    await stage.provider.terminate(order.name)
    await stage.provider.launch(order)
    await stage.provider.terminate(order.name)
    await stage.provider.terminate(order.name)
    await stage.until(order.name, VmState.GONE)
    await stage.provider.terminate(order.name)


async def test_a_machine_can_be_ended_before_it_is_up(stage: Stage) -> None:
    order = stage.order()
    await stage.provider.launch(order)
    await stage.again().terminate(order.name)
    await stage.until(order.name, VmState.GONE)


@pytest.mark.parametrize("kind", [ProviderBusyError, ProviderRefusedError, ProviderError])
async def test_not_now_never_and_nobody_knows_are_told_apart(
    stage: Stage, kind: type[ProviderError]
) -> None:
    if stage.refuse is None:
        pytest.skip("this cloud has a test of its own for it")
    stage.refuse(kind)
    with pytest.raises(ProviderError) as caught:
        await stage.provider.launch(stage.order())
    assert type(caught.value) is kind

    await stage.provider.launch(stage.order())
    assert len(await stage.provider.list_owned("hub")) == 1


async def test_an_order_whose_answer_was_lost_is_there_when_it_is_repeated(stage: Stage) -> None:
    if stage.lose_answer is None:
        pytest.skip("this cloud loses no answers")
    stage.lose_answer()
    with pytest.raises(ProviderError):
        await stage.provider.launch(stage.order())

    await stage.provider.launch(stage.order())
    assert len(await stage.provider.list_owned("hub")) == 1


async def test_a_parameter_that_is_missing_is_named(stage: Stage) -> None:
    if not stage.missing:
        pytest.skip("it needs none")
    with pytest.raises(ProviderRefusedError, match=rf"\.{stage.missing} is missing"):
        await stage.provider.launch(stage.order(**{stage.missing: ""}))
