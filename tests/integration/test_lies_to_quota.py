"""Whoever holds the key of one service answers no checks of another, and speaks of no decision to come.

Real server, deployed users: what NATS lets pass, quota compares with what it knows.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from services.ctl.dev.secure import secure
from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.follow import read
from shared.bus.headers import TYPE
from shared.bus.nats.bus import NatsBus
from shared.contracts.controllers import MACHINES, MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.testing.builders import cluster_queue_spec, observed, workload
from shared.testing.deployed import bus_of
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.clock import now

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUBJECT = "sluice.admission.hub.team.x"
LATER = "sluice.admission.hub.team.later"


class Stage:
    """Quota with its user, and a workload that waits for a spoke and for machines."""

    def __init__(self, url: str, keys: Any, stack: AsyncExitStack) -> None:
        self._url, self._keys, self._stack = url, keys, stack
        self.buses: dict[str, NatsBus] = {}

    async def start(self) -> None:
        for user in ("quota", "watcher", "classifier", "dispatcher", "provisioner", "patcher"):
            bus = bus_of(user, self._url, self._keys.access(user))
            self.buses[user] = bus
            if user != "quota":
                await self._open(bus)
        await self._furnish()
        quota = self.buses["quota"]
        service = assemble(settings=QuotaSettings(reason_delay_seconds=0), bus=quota, now=now)
        await self._open(quota)
        task = asyncio.create_task(service.run())
        self._stack.callback(task.cancel)

    async def _open(self, bus: NatsBus) -> None:
        await bus.start()
        self._stack.push_async_callback(bus.stop)

    async def _furnish(self) -> None:
        checks = [{"name": "elsewhere"}, {"name": "machines"}]
        queue = cluster_queue_spec(1, admissionChecksStrategy={"admissionChecks": checks})
        await self.say(
            "watcher",
            observed(kinds.NAMESPACE, "team"),
            observed(kinds.RESOURCE_FLAVOR, "default"),
            observed(kinds.ADMISSION_CHECK, "elsewhere", {"controllerName": MULTIKUEUE}),
            observed(kinds.ADMISSION_CHECK, "machines", {"controllerName": MACHINES}),
            observed(kinds.ADMISSION_CHECK, "theirs", {"controllerName": "example.com/scanner"}),
            observed(kinds.CLUSTER_QUEUE, "cq", queue),
            observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, "team"),
            Synced(cluster="hub", epoch="1", kinds=[], at=now()),
        )
        await self.say("classifier", workload("x", created_at=now()))

    async def say(self, user: str, *messages: Message) -> None:
        for message in messages:
            await self.buses[user].publish(message)

    async def last(self) -> Admission | None:
        return read(await self.buses["quota"].latest("ADMISSIONS", SUBJECT), Admission)

    async def became(self, state: str) -> Admission:
        async def yes() -> Admission | None:
            found = await self.last()
            return found if found is not None and found.state == state else None

        return await first_value(yes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("lies")
    keys = secure(folder / "users", (), now())
    server = await EmbeddedServer(folder, config=keys.config).start()
    try:
        assert (await apply_at(server.url, cluster="hub", access=keys.access("bus"))).ok
        async with AsyncExitStack() as stack:
            found = Stage(server.url, keys, stack)
            await found.start()
            yield found
    finally:
        await server.kill()


def refused(message: str, reason: str) -> float:
    labels = {"message": message, "reason": reason}
    return REGISTRY.get_sample_value("sluicegate_refused_messages_total", labels) or 0.0


def answer(to: Admission, check: str, service: Any, **more: Any) -> CheckState:
    return CheckState.answer(to, check, "Ready", "", service=service, now=now(), **more)


def outcome(of: Admission, **more: Any) -> Outcome:
    usual = {"action": "suspend", "result": "applied", "version": "0", "number": of.number}
    return Outcome(
        cluster="hub", namespace="team", name="x", uid=of.uid, at=now(), **{"term": of.term, **usual, **more}
    )  # fmt: skip


LIES: dict[str, tuple[str, Any, tuple[str, str]]] = {
    "provisioner lets a job pass that the dispatcher is to send to a spoke": (
        "provisioner", lambda held: answer(held, "elsewhere", "provisioner"), ("check", "answerer")),
    "dispatcher lets a job pass that needs machines": (
        "dispatcher", lambda held: answer(held, "machines", "dispatcher"), ("check", "answerer")),
    "provisioner sends a job to a spoke": (
        "provisioner", lambda held: answer(held, "machines", "provisioner", spoke="evil"),
        ("check", "spoke")),
    "provisioner answers in the place of somebody's scanner": (
        "provisioner", lambda held: answer(held, "theirs", "provisioner"), ("check", "answerer")),
    "patcher reports about the decision after the next": (
        "patcher", lambda held: outcome(held, number=held.number + 2), ("outcome", "unknown-decision")),
    "patcher reports about a term to come": (
        "patcher", lambda held: outcome(held, term=held.term + 1, number=1), ("outcome", "unknown-decision")),
    "patcher names no decision": (
        "patcher", lambda held: outcome(held, term=0, number=0), ("outcome", "no-decision")),
}  # fmt: skip


@pytest.mark.parametrize(("user", "lie", "counted"), LIES.values(), ids=LIES)
async def test_lie_is_counted_and_changes_no_decision(
    stage: Stage, user: str, lie: Any, counted: tuple[str, str]
) -> None:
    held = await stage.became("reserved")
    before = refused(*counted)
    await stage.say(user, lie(held))
    await eventually(lambda: refused(*counted) == before + 1)
    assert await stage.last() == held


TIMES: Final = (
    *("9999-12-31T23:59:59.999999+00:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59"),
    *("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00", "1600-01-01T00:00:00Z"),
)


async def test_times_that_no_clock_shows_do_not_end_quota(stage: Stage) -> None:
    held = await stage.became("reserved")
    connection = stage.buses["patcher"].connection.nc
    for number, time in enumerate(TIMES):
        lie = outcome(held).replace(name=f"ghost-{number}")
        body = lie.model_dump(mode="json") | {"at": time}
        headers = {TYPE: lie.type, "ce-time": time}
        data = json.dumps(body).encode()
        await connection.request(lie.subject, data, timeout=PATIENCE_SECONDS, headers=headers)
    # Nor does a queue that has no queue's shape.
    await stage.say("watcher", observed(kinds.CLUSTER_QUEUE, "odd", {"resourceGroups": True}))
    await stage.say("classifier", workload("later", created_at=now()))

    async def is_decided() -> bool:
        return await stage.buses["quota"].latest("ADMISSIONS", LATER) is not None

    await eventually(is_decided, "quota decides no more")


async def test_own_answers_admit(stage: Stage) -> None:
    held = await stage.became("reserved")
    await stage.say("dispatcher", answer(held, "elsewhere", "dispatcher", spoke="west"))
    await stage.say("provisioner", answer(held, "machines", "provisioner"))
    assert (await stage.became("admitted")).spoke == "west"
