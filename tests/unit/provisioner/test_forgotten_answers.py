"""Answers of the machines check leave the view once their run holds no quota, and hinder no later answer."""

import asyncio
from datetime import timedelta

import pytest

from shared.bus.port import CaughtUp
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.messages.checks import CheckState
from tests.unit.provisioner.test_reservations import ONE, RUN, QuotaHarness

FORGOTTEN_SECONDS = 800
"""Of virtual time: longer than an answer stays, and than the provisioner sleeps in between."""


async def view(harness: QuotaHarness) -> list[str]:
    """The workloads with an answer in the view."""
    names = []
    async for entry in harness.bus.watch("CHECKS"):
        if isinstance(entry, CaughtUp):
            break
        names.append(CheckState.decode(entry.data).name)
    return names


async def newer_answer(harness: QuotaHarness) -> None:
    """Another one is the view's last message, which always stays."""
    await harness.publish_admission("reserved", {}, name="newer", uid="newer")
    await harness.wait_for_check("Ready", name="newer")


@pytest.mark.parametrize("restarts", [False, True], ids=["in one term", "after a restart"])
def test_run_whose_answer_is_forgotten_is_answered_when_it_has_quota_again(restarts: bool) -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {})
            first = await harness.wait_for_check("Ready")
            await harness.publish_admission("waiting")
            await newer_answer(harness)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await view(harness) == ["newer"]
            if restarts:
                harness.world.crash("provisioner", down_seconds=5)
            await harness.publish_admission("reserved", {"linux-arm64": "3"})
            again = await harness.wait_for_check("Rejected")
            assert again.attempt == first.attempt + 3

        harness.run_with_check(scenario, config=ONE)


def test_answer_of_a_check_that_was_deleted_leaves_the_view() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.publish_admission("reserved", {})
            await harness.wait_for_check("Ready")
            await newer_answer(harness)
            check = {"metadata": {"name": "machines", "uid": "check"}, "spec": {}}
            await harness.observe(ADMISSION_CHECK, check, deleted=True)
            await harness.publish_admission("released")
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await view(harness) == ["newer"]

        harness.run_with_check(scenario)


def test_answer_of_an_earlier_release_to_the_check_of_another_service_stays_in_the_view() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            await harness.bus.publish(
                CheckState(
                    cluster="hub", namespace="team-a", name=RUN, uid="run-1", check="multikueue",
                    state="Ready", at=harness.world.now() - timedelta(days=1),
                )
            )  # fmt: skip
            await newer_answer(harness)
            await asyncio.sleep(FORGOTTEN_SECONDS)
            assert await view(harness) == [RUN, "newer"]

        harness.run_with_check(scenario)
