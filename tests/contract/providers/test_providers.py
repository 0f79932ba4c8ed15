"""The contract that every provider keeps."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.provisioner.providers.port import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    VmState,
)
from tests.contract.providers.harness import HARNESSES, ProviderHarness


@pytest.fixture(params=HARNESSES)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProviderHarness]:
    async with HARNESSES[request.param](tmp_path) as harness:
        yield harness


async def test_machine_gets_address_and_is_terminated(harness: ProviderHarness) -> None:
    order = harness.order()
    assert await harness.provider.find(order.name) is None

    await harness.provider.launch(order)
    vm = await harness.wait_for(order.name, VmState.RUNNING, address=True)
    assert vm is not None
    assert (vm.name, vm.launched_at is not None) == (order.name, True)

    await harness.provider.terminate(order.name)
    await harness.wait_for(order.name, VmState.GONE)
    assert await harness.provider.list_owned("hub") == []


async def test_ordering_a_name_twice_gives_one_machine(harness: ProviderHarness) -> None:
    order = harness.order()
    await harness.provider.launch(order)
    await harness.again().launch(order)
    await harness.provider.launch(order)

    assert [vm.name for vm in await harness.provider.list_owned("hub")] == [order.name]


async def test_list_shows_machines_of_owner_only(harness: ProviderHarness) -> None:
    ours = [harness.order(uid) for uid in ("t-1", "t-2")]
    theirs = harness.order("t-3", owner="another-cluster")
    for order in (*ours, theirs):
        await harness.provider.launch(order)

    listed = await harness.provider.list_owned("hub")
    assert sorted(vm.name for vm in listed) == sorted(order.name for order in ours)
    listed = await harness.provider.list_owned("another-cluster")
    assert [vm.name for vm in listed] == [theirs.name]


async def test_terminating_missing_machine_does_nothing(harness: ProviderHarness) -> None:
    order = harness.order()
    await harness.provider.terminate(order.name)
    await harness.provider.launch(order)
    await harness.provider.terminate(order.name)
    await harness.provider.terminate(order.name)
    await harness.wait_for(order.name, VmState.GONE)
    await harness.provider.terminate(order.name)


async def test_starting_machine_can_be_terminated(harness: ProviderHarness) -> None:
    order = harness.order()
    await harness.provider.launch(order)
    await harness.again().terminate(order.name)
    await harness.wait_for(order.name, VmState.GONE)


@pytest.mark.parametrize("kind", [ProviderBusyError, ProviderRefusedError, ProviderError])
async def test_busy_refused_and_unknown_errors_are_distinguished(
    harness: ProviderHarness, kind: type[ProviderError]
) -> None:
    if harness.refuse is None:
        pytest.skip("this cloud has a test of its own for it")
    harness.refuse(kind)
    with pytest.raises(ProviderError) as caught:
        await harness.provider.launch(harness.order())
    assert type(caught.value) is kind

    await harness.provider.launch(harness.order())
    assert len(await harness.provider.list_owned("hub")) == 1


async def test_repeated_order_after_lost_response_gives_one_machine(
    harness: ProviderHarness,
) -> None:
    if harness.lose_answer is None:
        pytest.skip("this cloud loses no answers")
    harness.lose_answer()
    with pytest.raises(ProviderError):
        await harness.provider.launch(harness.order())

    await harness.provider.launch(harness.order())
    assert len(await harness.provider.list_owned("hub")) == 1


async def test_missing_parameter_is_named(harness: ProviderHarness) -> None:
    if not harness.missing:
        pytest.skip("it needs none")
    with pytest.raises(ProviderRefusedError, match=rf"\.{harness.missing}: required"):
        await harness.provider.launch(harness.order(**{harness.missing: ""}))
