"""Delays and time limits on real processes and a real broker: killing quota or NATS moves none of them."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from services.ctl.connect.bus import connected
from services.ctl.dev.app import BROKER, DevOptions, Running, running
from services.quota.lifecycle.workload import backoff_seconds
from shared.bus.port import CaughtUp
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.base import Message
from shared.kube.client import HttpKube
from shared.settings.configuration import RequeuingStrategy
from shared.testing.waiting import first_value
from tests.conformance.seeds.stage import job, pool
from tests.e2e.test_kills import kill

TIMEOUT_SECONDS, BASE_SECONDS, LIMIT = 3, 4, 2
Notified = TypeVar("Notified", bound=Message)
LIMIT_SECONDS = 12
REIGN_SECONDS = 1.0
NAMESPACE = "team-a"
WAIT = {
    "timeout": f"{TIMEOUT_SECONDS}s",
    "requeuingStrategy": {"backoffLimitCount": LIMIT, "backoffBaseSeconds": BASE_SECONDS},
}


class Story:
    """One workload of a running system."""

    def __init__(self, system: Running, kube: HttpKube, prefix: str) -> None:
        self._system = system
        self._kube = kube
        self._prefix = prefix

    async def kill(self, *names: str) -> None:
        for name in names:
            await kill(self._system, name)

    async def workload(self) -> Object:
        listing = await self._kube.list(kinds.WORKLOAD, namespace=NAMESPACE)
        found = [w for w in listing.items if w["metadata"]["name"].startswith(self._prefix)]
        return found[0] if found else {}

    async def until(self, holds: Callable[[Object], bool]) -> Object:
        """The workload as it was when this held: a moment later it is another one."""

        async def found() -> Object | None:
            workload = await self.workload()
            return workload if workload and holds(workload) else None

        return await first_value(found)

    async def until_admitted(self) -> datetime:
        workload = await self.until(is_admitted)
        return datetime.fromisoformat(condition(workload, "Admitted")["lastTransitionTime"])

    async def until_backs_off(self, count: int) -> tuple[datetime, datetime]:
        """When it was evicted for its pods, and when it may queue again."""

        def backs_off(workload: Object) -> bool:
            # An evicted workload stays admitted until its pods are gone.
            found = requeue_state(workload)
            told = found.get("count") == count and "requeueAt" in found
            return told and not is_admitted(workload)

        workload = await self.until(backs_off)
        evicted = condition(workload, "Evicted")
        assert evicted["reason"] == "PodsReadyTimeout"
        times = evicted["lastTransitionTime"], requeue_state(workload)["requeueAt"]
        return datetime.fromisoformat(times[0]), datetime.fromisoformat(times[1])

    async def until_put_out(self, cause: str) -> datetime:
        def put_out(workload: Object) -> bool:
            reason = condition(workload, "Evicted").get("reason")
            is_told = reason == f"DeactivatedDueTo{cause}" and not requeue_state(workload)
            return is_told and workload["spec"].get("active") is False

        evicted = condition(await self.until(put_out), "Evicted")
        return datetime.fromisoformat(evicted["lastTransitionTime"])


def condition(workload: Object, type_: str) -> Object:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == type_), {})


def is_admitted(workload: Object) -> bool:
    return bool(condition(workload, "Admitted").get("status") == "True")


def requeue_state(workload: Object) -> Object:
    return (workload.get("status") or {}).get("requeueState") or {}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DevOptions:
    configuration = tmp_path / "controller_manager_config.yaml"
    configuration.write_text(yaml.safe_dump({"waitForPodsReady": WAIT}))
    monkeypatch.setenv("SLUICE_CONFIGURATION", str(configuration))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    manifests = tmp_path / "queues.yaml"
    manifests.write_text(
        yaml.safe_dump_all([namespace, *pool("q", {"cpu": 1}), *pool("p", {"cpu": 1})])
    )
    return DevOptions(directory=tmp_path / "dev", manifests=(manifests,), speed=60.0, seed=7)


async def logged(system: Running, subjects: str, kind: type[Notified]) -> list[Notified]:
    """Everything that the log of decisions has of a kind."""
    found = []
    async with (
        connected(system.nats_url, access=system.access) as bus,
        aclosing(bus.replay("ADMISSIONS", subjects)) as items,
    ):
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            found.append(kind.decode(item.data))
    return found


async def decisions(system: Running, prefix: str) -> list[Admission]:
    """Everything that was ever decided about a workload."""
    found = await logged(system, "sluice.admission.>", Admission)
    return [a for a in found if a.name.startswith(prefix)]


async def test_back_off_timeouts_and_execution_time_survive_kill_9_of_quota_and_nats(
    options: DevOptions,
) -> None:
    nowhere = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": str(LIMIT_SECONDS)}
    async with running(options, lambda _: None) as system:
        kube = system.kube()
        try:
            stuck, long = Story(system, kube, "job-stuck-"), Story(system, kube, "job-long-")
            await kube.create(
                kinds.JOB, job("long", "p", {"cpu": 1}, seconds=900_000, labels=limit)
            )
            long_admitted = await long.until_admitted()
            await kube.create(kinds.JOB, job("stuck", "q", {"cpu": 1}, pod=nowhere))
            admitted = await stuck.until_admitted()
            for count in range(1, LIMIT + 1):
                await stuck.kill("quota")
                evicted, requeue_at = await stuck.until_backs_off(count)
                assert (evicted - admitted).total_seconds() >= TIMEOUT_SECONDS - 1
                await stuck.kill(BROKER, "quota")
                admitted = await stuck.until_admitted()
                assert admitted >= requeue_at
            await stuck.kill(BROKER)
            await stuck.until_put_out("RequeuingLimitExceeded")
            await stuck.kill("quota")
            told = await decisions_until_confirmed(system, "job-stuck-")
            long_evicted = await long.until_put_out("MaximumExecutionTimeExceeded")
            assert (long_evicted - long_admitted).total_seconds() >= LIMIT_SECONDS - 1
        finally:
            await kube.close()
    judge(told)


async def test_time_limits_expire_although_each_leader_lives_shorter(
    options: DevOptions,
) -> None:
    """A timer in a process would begin anew with each leader, and never run down."""
    nowhere = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": str(LIMIT_SECONDS)}
    async with running(options, lambda _: None) as system:
        kube = system.kube()
        killer = asyncio.create_task(keep_killing(system))
        try:
            stuck, long = Story(system, kube, "job-stuck-"), Story(system, kube, "job-long-")
            await kube.create(
                kinds.JOB, job("long", "p", {"cpu": 1}, seconds=900_000, labels=limit)
            )
            await kube.create(kinds.JOB, job("stuck", "q", {"cpu": 1}, pod=nowhere))
            await stuck.until_put_out("RequeuingLimitExceeded")
            await long.until_put_out("MaximumExecutionTimeExceeded")
            assert not killer.done(), "leaders were killed all the while"
        finally:
            killer.cancel()
            await asyncio.gather(killer, return_exceptions=True)
            await kube.close()
        told = await decisions_until_confirmed(system, "job-stuck-")
        assert len(await terms(system)) > LIMIT, "one leader cannot have seen all of it"
    judge(told)


async def decisions_until_confirmed(system: Running, prefix: str) -> list[Admission]:
    """Everything that was decided, once the deactivation is confirmed: the leader was killed on its way."""

    async def confirmed() -> list[Admission] | None:
        found = await decisions(system, prefix)
        return found if found and not found[-1].deactivate else None

    return await first_value(confirmed, "no decision follows the deactivation")


async def keep_killing(system: Running) -> None:
    """Let each leader decide for a moment, shorter than any clock here, and kill it."""
    seen = 0
    while True:
        led = len(await terms(system))
        pid = system.supervisor.pid("quota")
        if led > seen and pid is not None:
            seen = led
            await asyncio.sleep(REIGN_SECONDS)
            with suppress(ProcessLookupError):  # It may have ended by itself.
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.1)


async def terms(system: Running) -> list[Term]:
    """The leaderships that began."""
    return await logged(system, "sluice.term.>", Term)


def judge(told: list[Admission]) -> None:
    """Over all kills each timeout was counted once, and no delay was shortened."""
    strategy = RequeuingStrategy(backoff_base_seconds=BASE_SECONDS)
    timeouts = [
        b for a, b in pairwise(told) if a.state == "admitted" and b.reason == "PodsReadyTimeout"
    ]
    assert [a.requeue_count for a in timeouts] == list(range(1, LIMIT + 1))
    for eviction in timeouts:
        assert eviction.admitted_at is not None
        assert eviction.requeue_at is not None
        ran = (eviction.decided_at - eviction.admitted_at).total_seconds()
        assert ran >= TIMEOUT_SECONDS
        delay = (eviction.requeue_at - eviction.decided_at).total_seconds()
        expected = backoff_seconds(strategy, eviction.uid, eviction.requeue_count)
        assert delay == pytest.approx(expected, abs=1e-3)
    requeue_at = None
    for decision in told:
        if decision.state == "admitted" and requeue_at is not None:
            assert decision.admitted_at is not None
            assert decision.admitted_at >= requeue_at
        requeue_at = decision.requeue_at or requeue_at
    out = [a for a in told if a.reason == "DeactivatedDueToRequeuingLimitExceeded"]
    # Confirmed with the same reason, unless its quota was back before the deactivation was seen.
    assert [a.deactivate for a in out] in ([True], [True, False])
    # What is decided until the deactivation was seen says again that it is to be deactivated.
    begins = [b for a, b in pairwise(told) if b.deactivate and not a.deactivate]
    assert begins == out[:1], "put out once"
    assert {(a.requeue_count, a.requeue_at) for a in out} == {(0, None)}
