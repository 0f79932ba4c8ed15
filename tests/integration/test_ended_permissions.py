"""Who may delete what has ended, on a real server with users: ended workloads only quota's user."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.bus.nats.bus import NatsBus
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.outcomes import DeadLetter
from shared.testing.builders import NOON, workload
from shared.testing.deployed import bus_of
from shared.testing.waiting import eventually
from tests.integration.test_permissions import WORKERS, intruder, server


async def test_quota_alone_deletes_ended_workloads_from_views_and_logs(tmp_path: Path) -> None:
    async with server(tmp_path) as (running, secured):

        def bus(user: str) -> NatsBus:
            return bus_of(user, running.url, secured.access(user))

        classifier, quota = bus("classifier"), bus("quota")
        for one in (classifier, quota):
            await one.start()
        end = await classifier.publish(workload("dead").gone())
        await classifier.publish(workload("alive"))
        subject = workload("dead").subject

        async def swept() -> bool:
            return subject in await quota.sweep("WORKLOADS", {subject: end})

        await eventually(swept)
        assert await quota.trim("WORKLOADS", subject, up_to=end) == 1
        await classifier.publish(workload("alive").requeued())
        alive = workload("alive").subject
        assert await quota.long_histories("WORKLOADS", "sluice.workload.>", most=1) == [alive]
        assert await quota.shorten("WORKLOADS", alive, keep=1) == 1
        for user in (*{*WORKERS} - {"quota"}, "viewer"):
            async with intruder(running.url, secured.access(user)) as (client, said):
                for stream in ("WORKLOADS", "WORKLOADS_NOW", "ADMISSIONS"):
                    said.clear()
                    await client.publish(f"$JS.API.STREAM.PURGE.{stream}", b"{}")
                    await client.flush()
                    await eventually(partial(bool, said), f"{user} purges {stream}")
        for one in (classifier, quota):
            await one.stop()


def _answer(service: Any, name: str) -> CheckState:
    return CheckState(
        cluster="hub", namespace="team", name=name, uid=name, check="check", service=service,
        state="Ready", at=NOON,
    )  # fmt: skip


def _host(name: str) -> HostState:
    return HostState(
        cluster="hub", namespace="team", name=name, uid=name, platform="linux/arm64", state="released",
        at=NOON,
    )  # fmt: skip


def _order(name: str) -> Dispatch:
    return Dispatch(
        spoke="east", cluster="hub", namespace="team", name=name, uid=name, number=1,
        state="withdrawn", at=NOON,
    )  # fmt: skip


def _letter(name: str) -> DeadLetter:
    return DeadLetter(
        service="quota", original_subject=f"sluice.workload.hub.team.{name}", original_sequence=1,
        reason="why", body="{}", state="handled", at=NOON,
    )  # fmt: skip


SWEPT: dict[str, tuple[str, Callable[[str], Message]]] = {
    "the provisioner sweeps what it said of hosts": ("provisioner", _host),
    "the provisioner sweeps its answers": ("provisioner", partial(_answer, "provisioner")),
    "the dispatcher sweeps its answers": ("dispatcher", partial(_answer, "dispatcher")),
    "the dispatcher sweeps its orders": ("dispatcher", _order),
    "quota sweeps dead letters": ("quota", _letter),
}
"""Users, and what they write and sweep, by the name of the object."""


@pytest.mark.parametrize(("user", "message"), SWEPT.values(), ids=list(SWEPT))
async def test_service_deletes_what_has_ended_of_what_it_wrote(
    tmp_path: Path, user: str, message: Callable[[str], Message]
) -> None:
    async with server(tmp_path) as (running, secured):
        bus = bus_of(user, running.url, secured.access(user))
        await bus.start()
        ended = message("ended")
        end = await bus.publish(ended)
        await bus.publish(message("newer"))

        async def gone() -> bool:
            return ended.subject in await bus.sweep(ended.stream, {ended.subject: end})

        await eventually(gone)
        await bus.stop()
