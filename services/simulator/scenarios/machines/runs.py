"""Runs whose queue asks for machines before they start; the scenario decides in place of quota."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from services.simulator.scenarios.system import CLUSTER, System
from shared.bus.port import BusError
from shared.contracts import subjects
from shared.contracts.controllers import MACHINES
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import SUCCEEDED, has_status
from shared.contracts.kube.names import slot_resource, workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.checks import CheckState
from shared.contracts.multi_platform import PLATFORM_PARAMETER
from shared.contracts.simulation import DURATION
from shared.contracts.subjects import Stream
from shared.testing.world.memory_bus import MemoryBus

CHECK: Final = "machines"
NAMESPACE: Final = "team-a"
PLATFORMS: Final = ("linux/arm64", "linux/s390x", "linux/ppc64le")
RUNS_MAX: Final = 6
ANSWER_SECONDS: Final = 1200.0
"""A check without an answer by then counts as lost."""

RETRY_SECONDS: Final = 0.5


class Runs:
    """A few runs, one after the other or at once."""

    def __init__(
        self, system: System, random: Random, *, until_seconds: float, note: Callable[[str], None]
    ) -> None:
        """`note` is called with a sentence for each problem."""
        self._system = system
        self._random = Random(f"runs/{random.random()}")
        self._until = until_seconds
        self._accuse = note
        self._bus = MemoryBus(system.server, instance="quota-hand")
        self._number = 0

    async def play(self) -> None:
        """Return when all runs have ended."""
        await self._bus.start()
        check = {"metadata": {"name": CHECK}, "spec": {"controllerName": MACHINES}}
        await self._system.kube.create(kinds.ADMISSION_CHECK, check)
        count = self._random.randint(0, RUNS_MAX)
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._run(number, self._random.uniform(0, self._until / 2)))
        await self._bus.stop()

    async def _run(self, number: int, begin: float) -> None:
        dice = Random(f"run/{self._system.world.seed}/{number}")
        await asyncio.sleep(begin)
        platforms = dice.sample(PLATFORMS, dice.randint(1, 2))
        name, uid = await self._create(number)
        usage = {slot_resource(platform): "1" for platform in platforms}
        for _ in range(dice.randint(1, 3)):
            asked = await self._decide("reserved", name, uid, usage)
            if dice.random() < 1 / 3:
                await asyncio.sleep(dice.uniform(0, 10))
                answer: str | None = "somebody more important came"
            else:
                answer = await self._answered(name, asked)
            if answer == "Ready":
                await self._decide("admitted", name, uid, usage)
                await self._build(
                    number, uid, [p for p in platforms if dice.random() < 3 / 4], dice
                )
                break
            if answer is None:
                self._accuse(f"run {number} was never told whether its machines are there")
                break
            await self._decide("evicted", name, uid, usage)
            await asyncio.sleep(dice.uniform(0, 20))
            await self._decide("waiting", name, uid, {})
        await self._decide("released", name, uid, {})

    async def _create(self, number: int) -> tuple[str, str]:
        """Create the PipelineRun without a controller: the scenario creates its TaskRuns."""
        body = {
            "apiVersion": kinds.PIPELINE_RUN.api_version,
            "kind": kinds.PIPELINE_RUN.kind,
            "metadata": {"name": f"run-{number}", "namespace": NAMESPACE},
            "spec": {"managedBy": "example.com/nobody", "pipelineRef": {"name": "build"}},
        }
        uid = str((await self._system.kube.create(kinds.PIPELINE_RUN, body))["metadata"]["uid"])
        kind = kinds.PIPELINE_RUN
        return workload_name(kind=kind.kind, group=kind.group, name=f"run-{number}", uid=uid), uid

    async def _decide(
        self, state: AdmissionState, name: str, uid: str, usage: dict[str, str]
    ) -> int:
        self._number += 1
        number = self._number
        pod_set = PodSetAssignment(name="pod-set-1", count=1, flavors={}, usage=usage)
        admission = Admission(
            cluster=CLUSTER, namespace=NAMESPACE, name=name, uid=uid, state=state, term=1,
            number=number, decided_at=self._system.world.now(), checks=[CHECK],
            pod_sets=[pod_set] if usage else [],
        )  # fmt: skip
        self._system.world.note(f"run {name} is {state}")
        while True:
            try:
                await self._bus.publish(admission)
            except BusError:
                await asyncio.sleep(RETRY_SECONDS)  # As quota does.
            else:
                return number

    async def _answered(self, name: str, asked: int) -> str | None:
        """Return the state of the check: `Ready`, `Retry` or `Rejected`; None without one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        while loop.time() < deadline:
            subject = subjects.join("check", CLUSTER, NAMESPACE, name, CHECK, detail="provisioner")
            stored = self._system.server.latest(Stream.CHECKS, subject)
            answer = CheckState.decode(stored.data) if stored is not None else None
            if answer is not None and answer.attempt >= asked and answer.state != "Pending":
                return answer.state
            await asyncio.sleep(RETRY_SECONDS)
        return None

    async def _list(self, number: int, names: list[str]) -> None:
        """Write into the run's status which TaskRuns it made, as Tekton does."""
        api_version, kind = kinds.TASK_RUN.api_version, kinds.TASK_RUN.kind
        made = [{"apiVersion": api_version, "kind": kind, "name": name} for name in names]
        status = {"status": {"childReferences": made}}
        await self._system.kube.patch(
            kinds.PIPELINE_RUN, NAMESPACE, f"run-{number}", status, subresource="status"
        )

    async def _build(self, number: int, uid: str, platforms: list[str], dice: Random) -> None:
        """Create TaskRuns on some of its platforms; return when they have ended."""
        names = []
        for index, platform in enumerate(platforms):
            owner = {
                "apiVersion": kinds.PIPELINE_RUN.api_version, "kind": kinds.PIPELINE_RUN.kind,
                "name": f"run-{number}", "uid": uid, "controller": True,
            }  # fmt: skip
            body: dict[str, Any] = {
                "apiVersion": kinds.TASK_RUN.api_version,
                "kind": kinds.TASK_RUN.kind,
                "metadata": {
                    "name": f"run-{number}-{index}",
                    "namespace": NAMESPACE,
                    "ownerReferences": [owner],
                    "annotations": {DURATION: f"{dice.randint(5, 40)}s"},
                },
                "spec": {
                    "params": [{"name": PLATFORM_PARAMETER, "value": platform}],
                    "taskSpec": {"steps": [{"name": "build", "image": "builder"}]},
                },
            }
            names.append((await self._system.kube.create(kinds.TASK_RUN, body))["metadata"]["name"])
        await self._list(number, names)
        while names:
            there = {
                one["metadata"]["name"]: one
                for one in (await self._system.kube.list(kinds.TASK_RUN, namespace=NAMESPACE)).items
            }
            names = [
                name
                for name in names
                if name in there and not has_status(there[name], SUCCEEDED, "True", "False")
            ]
            await asyncio.sleep(RETRY_SECONDS)
