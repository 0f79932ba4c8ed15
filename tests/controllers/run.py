"""One run: starts what the chosen scenarios need, one part after the other, and collects their verdicts."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.ctl.dev.supervisor import Supervisor
from tests.controllers.place import CLASSES, FLAVOR, Kill, Place, Tools
from tests.controllers.programs import Programs
from tests.controllers.scenario import Scenario, Verdict, judged
from tests.controllers.scenarios import (
    job_ends,
    job_lives,
    jobs,
    kinds,
    load,
    moves,
    run_lives,
    runs,
    whole,
)
from tests.controllers.servers.client import Client
from tests.controllers.servers.cluster import SERVICES, TENANT, USERS, Cluster, cluster
from tests.controllers.servers.kueue import kueue
from tests.controllers.servers.system import System, install, services
from tests.controllers.servers.tekton import tekton

SIDE_BY_SIDE: Final = 6
AGAIN_SECONDS: Final = 1.0
API_SERVER: Final = "the API server"
OF_JOBS: Final = (*jobs.SCENARIOS, *job_ends.SCENARIOS, *job_lives.SCENARIOS)
OF_RUNS: Final = (*runs.SCENARIOS, *run_lives.SCENARIOS)
ALL: Final[tuple[type[Scenario], ...]] = (
    *OF_JOBS, *kinds.SCENARIOS, *OF_RUNS, *load.SCENARIOS, whole.WholeRun, moves.OverAndBack,
)  # fmt: skip


def chosen(pattern: str) -> list[type[Scenario]]:
    """The scenarios with a row or a namespace in which the regular expression is found."""
    return [
        one
        for one in ALL
        if any(re.search(pattern, text) for text in (one.namespace(), *one.rows()))
    ]


@dataclass(slots=True)
class Run:
    """Plays scenarios on one cluster."""

    programs: Programs
    folder: Path
    scenarios: list[type[Scenario]]
    report: Callable[[Verdict], None]
    say: Callable[[str], None]
    restarts: int = 0
    """How often the API server was killed."""

    _is_furnished: bool = False
    _places: dict[str, Place] = field(default_factory=dict)
    """By namespace, of the scenarios that were played under us."""

    async def play(self) -> None:
        """Play all of them. Raises what a part that does not start raises."""
        async with cluster(self.programs, self.folder) as started:
            self.say("the cluster is up")
            await install(started)
            tenant = await started.user(USERS, TENANT)
            under_us = [one for one in self.scenarios if one is not moves.OverAndBack]
            if under_us:
                async with self._ours(started) as system:
                    await self._under_us(started, tenant, system)
            if moves.OverAndBack in self.scenarios:
                await self._move(started, tenant)

    async def _under_us(self, started: Cluster, tenant: Client, system: System) -> None:
        tools = Tools(
            requests=started.requests,
            surprises=system.surprises,
            doctor=lambda: self._doctor(started, system),
            say=self.say,
        )
        await self._phase(started, tenant, tools, OF_JOBS)
        if self._some(kinds.SCENARIOS):
            await started.apply(kinds.definitions())
            started.watch(kinds.SAMPLES)
            await self._phase(started, tenant, tools, kinds.SCENARIOS)
        if self._some((*OF_RUNS, *load.SCENARIOS)):
            async with tekton(self.programs, started) as supervisor:
                self.say("Tekton is up")
                await self._phase(started, tenant, tools, OF_RUNS)
                tools.victims = lambda: self._victims(started, system, supervisor)
                for one in load.SCENARIOS:  # Each breaks what the others need.
                    await self._phase(started, tenant, tools, (one,))
        whole.WholeRun.places = {
            namespace: place.amounts for namespace, place in self._places.items()
        }
        await self._phase(started, tenant, tools, (whole.WholeRun,))

    async def _move(self, started: Cluster, tenant: Client) -> None:
        moves.OverAndBack.ours = lambda: self._ours(started)
        moves.OverAndBack.kueue = lambda: kueue(self.programs, started)
        await self._phase(started, tenant, Tools(say=self.say), (moves.OverAndBack,))

    def _some(self, of: Iterable[type[Scenario]]) -> list[type[Scenario]]:
        return [one for one in of if one in self.scenarios]

    async def _phase(
        self, started: Cluster, tenant: Client, tools: Tools, of: Iterable[type[Scenario]]
    ) -> None:
        """Play the chosen ones of some, several side by side."""
        slots = asyncio.Semaphore(SIDE_BY_SIDE)

        async def play(scenario: type[Scenario]) -> None:
            place = Place(
                namespace=scenario.namespace(),
                tenant=tenant,
                admin=started.admin,
                history=started.history,
                node=started.node,
                tools=tools,
            )
            async with slots:
                self._places[place.namespace] = place
                for verdict in await judged(scenario, place):
                    self.report(verdict)

        async with asyncio.TaskGroup() as group:
            for scenario in self._some(of):
                group.create_task(play(scenario))

    @asynccontextmanager
    async def _ours(self, started: Cluster) -> AsyncIterator[System]:
        async with services(started, self.folder / "ours") as system:
            self.say("our services are up")
            if not self._is_furnished:
                self._is_furnished = True
                await started.admin.create("ResourceFlavor", {"metadata": {"name": FLAVOR}})
                for name, value in CLASSES.items():
                    obj = {"metadata": {"name": name}, "value": value}
                    await started.admin.create("WorkloadPriorityClass", obj)
            yield system

    def _victims(self, started: Cluster, system: System, supervisor: Supervisor) -> dict[str, Kill]:
        """Every process of ours, Tekton's, and the API server."""

        def of_ours(name: str) -> Kill:
            async def kill() -> bool:
                return system.kill(name)

            return kill

        def of_tekton(name: str) -> Kill:
            async def kill() -> bool:
                pid = supervisor.pid(name)
                if pid is not None:
                    os.kill(pid, 9)
                return pid is not None

            return kill

        async def restart() -> bool:
            self.restarts += 1
            await started.restart()
            return True

        return {
            **{name: of_ours(name) for name in system.kills},
            **{name: of_tekton(name) for name in supervisor.names},
            API_SERVER: restart,
        }

    async def _doctor(self, started: Cluster, system: System) -> list[str]:
        """What `sluice doctor` finds wrong."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.ctl.main", "doctor", "--output", "json"),
            *("--kubeconfig", str(started.kubeconfig), "--service-namespace", SERVICES),
            *("--nats-url", system.running.nats_url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        try:
            findings = json.loads(out)
        except ValueError:
            return [err.decode()[-500:]]
        return [f"{one['where']}: {one['problem']}" for one in findings if one["wrong"]]
