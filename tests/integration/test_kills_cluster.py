"""Watcher, patcher and API server die at any moment of a load: nothing is lost, nothing admitted twice."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from services.classifier import app as classifier
from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.quota import app as quota
from services.quota.bench import Kind, Load
from services.quota.engine.facts import Preemption
from services.quota.settings import QuotaSettings
from services.simulator.bench.generator import NAMESPACE_NAME
from services.simulator.bench.runner import Runner
from services.simulator.bench.writer import Writer
from services.simulator.judge import checks
from services.simulator.judge.message_logs import LOGS, MessageLogs, read_logs
from services.watcher import app as watcher
from services.watcher.settings import WatcherSettings
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus, CaughtUp, Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body
from shared.contracts.simulation import DURATION
from shared.kube.client import HttpKube
from shared.kube.port import AlreadyExistsError, UnavailableError
from shared.settings.ports import reserve_port
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.clock import now

CLUSTER = "hub"
LOAD = Load(
    cohorts=1,
    per_cohort=2,
    nominal=10,
    borrowing_limit=10,
    preemption=Preemption(within="LowerPriority", reclaim="Any"),
    kinds=(
        Kind(name="small", count=150, every=100, runs=200, priority=50, cpu=1),
        Kind(name="large", count=30, every=500, runs=400, priority=200, cpu=5),
    ),
)
JOBS = 140
WORKLOADS = JOBS + LOAD.cohorts * LOAD.per_cohort * sum(kind.count for kind in LOAD.kinds)
KILLS = 9
END_SECONDS = 600.0
START_SECONDS = PATIENCE_SECONDS

Build = Callable[[Bus], Any]


class Mortal:
    """A service as a process that can be killed: what it had not said yet is never said."""

    def __init__(self, name: str, url: str, build: Build) -> None:
        self.name = name
        self._url = url
        self._build = build
        self._lives = 0
        self._bus: NatsBus | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._lives += 1
        self._bus = NatsBus(url=self._url, instance=f"{self.name}-{self._lives}", now=now)
        service = self._build(self._bus)
        await self._bus.start()
        self._task = asyncio.create_task(service.run())

    async def kill(self) -> None:
        assert self._bus is not None
        assert self._task is not None
        assert not self._task.done(), f"{self.name} ended by itself"
        await self._bus._publisher.stop()  # What is not acknowledged is lost.
        await self._bus._worker.stop(seconds=0)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._bus.stop()


class Server:
    """The simulated API server with its controllers, as a process that SIGKILL ends."""

    def __init__(self, folder: Path) -> None:
        self._journal = folder / "cluster.jsonl"
        self._port = reserve_port()
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.simulator", "--port", str(self._port)),
            *("--speed", "300", "--seed", "3", "--journal", str(self._journal)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            while b"serving" not in (line := await self._process.stdout.readline()):
                assert line, "it ended"

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()


class Stage:
    """A broker, an API server with its controllers, and the services that a workload meets."""

    def __init__(self, server: EmbeddedServer, cluster: Server) -> None:
        self.cluster = cluster
        self._kubes: list[HttpKube] = []
        self._url = server.url
        self.services = {
            name: Mortal(name, server.url, build)
            for name, build in {
                "quota": lambda bus: quota.assemble(settings=QuotaSettings(), bus=bus, now=now),
                "classifier": lambda bus: classifier.assemble(bus=bus, cluster="hub"),
                "watcher": self._watcher,
                "patcher": self._patcher,
            }.items()
        }

    def kube(self) -> HttpKube:
        made = HttpKube.at(self.cluster.url)
        self._kubes.append(made)
        return made

    def _watcher(self, bus: Bus) -> Any:
        return watcher.assemble(
            settings=WatcherSettings(cluster=CLUSTER), bus=bus, kube=self.kube(), now=now,
            random=Random(1),
        )  # fmt: skip

    def _patcher(self, bus: Bus) -> Any:
        return patcher.assemble(
            settings=PatcherSettings(cluster=CLUSTER), bus=bus, kube=self.kube(), now=now
        )

    async def stop(self) -> None:
        for service in self.services.values():
            await service.kill()
        for kube in self._kubes:
            await kube.close()

    async def message_logs(self) -> MessageLogs:
        bus = NatsBus(url=self._url, instance="judge", now=now)
        await bus.start()
        entries: list[Entry] = []
        for log in LOGS:
            async with aclosing(bus.replay(log)) as items:
                async for item in items:
                    if isinstance(item, CaughtUp):
                        break
                    entries.append(item)
        await bus.stop()
        return read_logs(entries)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with nats_server() as server:
        cluster = Server(tmp_path)
        await cluster.start()
        subject = Stage(server, cluster)
        for service in subject.services.values():
            await service.start()
        yield subject
        await subject.stop()
        await cluster.kill()


async def disturb(stage: Stage, random: Random) -> None:
    """Kill one after the other, in an order and at moments that the seed draws."""
    victims = ["watcher", "patcher", "api server"] * (KILLS // 3)
    random.shuffle(victims)
    for victim in victims:
        await asyncio.sleep(random.uniform(0.2, 2.0))
        one = stage.cluster if victim == "api server" else stage.services[victim]
        await one.kill()
        await one.start()


def job(number: int, queue: str) -> kinds.Object:
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {
            "name": f"job-{number}",
            "namespace": NAMESPACE_NAME,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
            "annotations": {DURATION: "60s"},
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
        },
    }


async def created(kube: HttpKube, obj: dict[str, Any]) -> Body:
    """Create a Job. An API server that is killed may have made it, and not have answered."""

    async def stored() -> Body | None:
        with suppress(UnavailableError):
            try:
                return await kube.create(kinds.JOB, obj)
            except AlreadyExistsError:
                return await kube.get(kinds.JOB, NAMESPACE_NAME, obj["metadata"]["name"])
        return None

    return await first_value(stored, seconds=END_SECONDS, look_seconds=0.2)


async def create_jobs(kube: HttpKube) -> dict[str, str]:
    """Uid to name."""
    made = {}
    for number in range(JOBS):
        stored = await created(kube, job(number, f"cohort-0-cq-{number % 2}"))
        made[stored["metadata"]["uid"]] = f"{NAMESPACE_NAME}/job-{number}"
        await asyncio.sleep(0.05)
    return made


async def test_killing_watcher_patcher_or_api_server_neither_loses_nor_repeats_admissions(
    stage: Stage,
) -> None:
    kube = stage.kube()
    runner = Runner(kube=kube, load=LOAD, scale=1.0, writer=Writer(kube=kube, now=now))
    await runner.prepare()
    async with asyncio.timeout(END_SECONDS):
        disturbing = asyncio.create_task(disturb(stage, Random(5)))
        creating = asyncio.create_task(create_jobs(kube))
        await runner.run()
        await disturbing
        submitted = await creating
        wrong: object = None

        async def logs_without_fault() -> MessageLogs | None:
            nonlocal wrong
            logs = await stage.message_logs()
            wrong = wrong_now(logs, submitted)
            return None if wrong else logs

        message_logs = await first_value(
            logs_without_fault, lambda: str(wrong), seconds=END_SECONDS, look_seconds=0.5
        )
    assert len(runner.timeline.waits()) == len(LOAD.kinds)
    for check in (
        checks.decided_in_order,
        checks.none_admitted_twice,
        checks.quotas_respected,
        checks.none_started_twice,
        checks.none_runs_without_leave,
        checks.nothing_dead,
    ):
        assert check(message_logs) == []
    left: list[str] = ["all"]

    async def all_are_finished() -> bool:
        """The patcher writes it down a moment after it was decided."""
        workloads = (await kube.list(kinds.WORKLOAD)).items
        assert len(workloads) == WORKLOADS == 500
        left[:] = [item["metadata"]["name"] for item in workloads if not is_finished(item)]
        return not left

    await eventually(all_are_finished, lambda: left)


def is_finished(workload: Body) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Finished" and c["status"] == "True" for c in conditions)


def wrong_now(message_logs: MessageLogs, submitted: dict[str, str]) -> list[str]:
    lost = checks.none_lost(message_logs, submitted, finished=True)
    return [*lost, *checks.quota_given_back(message_logs)]
