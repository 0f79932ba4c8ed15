"""Many Jobs and PipelineRuns at once, while every process is killed, one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final

from tests.controllers.judge.ledger import (
    NEVER,
    first,
    lives,
    peak,
    releases,
    runs,
    start_times,
)
from tests.controllers.place import CLASSES, SLOTS, condition, ended, task
from tests.controllers.scenario import Scenario, row
from tests.controllers.servers.client import Json, RequestError

SIDE_BY_SIDE: Final = 8
AGAIN_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.2
REFUSALS: Final = frozenset({400, 403, 422})
"""Answers that the same request gets again."""

ORDER: Final = tuple(CLASSES)


class Load(Scenario):
    """Objects of three classes; whenever some more have come or ended, a process is killed."""

    kind: ClassVar[str]
    COUNT: ClassVar[int]
    QUOTA: ClassVar[int]

    async def play(self) -> None:
        """All wait first in a queue that is stopped."""
        at = self.at
        self.refused: list[str] = []
        await at.queue(self._amounts())
        queue = ("ClusterQueue", None, at.cluster_queue())
        await at.admin.patch(*queue, {"spec": {"stopPolicy": "Hold"}})
        killing = asyncio.create_task(self._kill_all())
        try:
            slots = asyncio.Semaphore(SIDE_BY_SIDE)
            await asyncio.gather(*(self._create(number, slots) for number in range(self.COUNT)))
            await at.until(lambda: self._workloads() >= self.COUNT)
            await self._persist(lambda: at.admin.patch(*queue, {"spec": {"stopPolicy": "None"}}))
            await at.until(lambda: self._ended() >= self.COUNT)
            await killing
            await at.until(at.is_free)
        finally:
            killing.cancel()

    def _amounts(self) -> dict[str, int]:
        raise NotImplementedError

    async def _make(self, name: str, priority: str) -> Json:
        raise NotImplementedError

    async def _create(self, number: int, slots: asyncio.Semaphore) -> None:
        async with slots:
            name = self._name(number)
            await self._persist(lambda: self._make(name, self._class(number)))

    async def _persist(self, request: Callable[[], Awaitable[Json]]) -> None:
        """Repeat a request until it is taken. What is refused for good is noted."""
        while True:
            try:
                await request()
            except RequestError as error:
                if error.status in REFUSALS:
                    self.refused.append(str(error))
                if error.status == 409 or error.status in REFUSALS:
                    return  # 409: it had been taken, and the answer was lost.
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    async def _kill_all(self) -> None:
        """A third while objects come, the others while they end."""
        victims = self.at.tools.victims()
        for number, (name, kill) in enumerate(victims.items()):
            share = number / len(victims)
            await self.at.until(partial(self._has_progressed, share))
            while not await kill():  # noqa: ASYNC110 - it is on its way up
                await asyncio.sleep(PAUSE_SECONDS)
            self.at.tools.say(f"killed {name}")

    def _has_progressed(self, share: float) -> bool:
        """Whether so much has been done, from 0 to 1: creation is a third of it."""
        return (self._workloads() + 2 * self._ended()) / 3 >= share * self.COUNT

    def _name(self, number: int) -> str:
        return f"x{number:03}"

    def _class(self, number: int) -> str:
        return ORDER[number % len(ORDER)]

    def _objects(self) -> list[Json]:
        return list(self.at.history.all_now(self.kind, self.at.namespace))

    def _workloads(self) -> int:
        return sum(1 for _ in self.at.history.all_now("Workload", self.at.namespace))

    def _ended(self) -> int:
        return sum(map(ended, self._objects()))

    @row
    def everything_ends_well_although_every_process_is_killed(self) -> Iterator[str]:
        good = "Complete" if self.kind == "Job" else "Succeeded"
        bad = [one for one in self._objects() if condition(one, good) != "True"]
        for obj in bad[:5]:
            yield f"{obj['metadata']['name']}: {(obj.get('status') or {}).get('conditions')}"
        if len(self._objects()) != self.COUNT:
            yield f"there are {len(self._objects())}, and {self.COUNT} were created"

    @row
    def the_quota_is_never_exceeded_although_every_process_is_killed(self) -> Iterator[str]:
        if (most := self._peak()) > self.QUOTA:
            yield f"{most} ran at once"

    def _peak(self) -> int:
        raise NotImplementedError

    @row
    def all_of_the_quota_is_used_under_load(self) -> Iterator[str]:
        if (most := self._peak()) < self.QUOTA:
            yield f"{most} ran at once, and {self.QUOTA} could"

    @row
    def nothing_is_let_go_twice_under_load(self) -> Iterator[str]:
        for number in range(self.COUNT):
            name = self._name(number)
            if (count := len(releases(self.at.changes(self.kind, name)))) != 1:
                yield f"{name} was let go {count} times"

    @row
    def nobody_is_refused_for_good_while_processes_are_killed(self) -> Iterator[str]:
        yield from self.refused[:5]

    @row
    def nobody_passes_a_higher_class_under_load(self) -> Iterator[str]:
        begins = {
            number: (releases(self.at.changes(self.kind, self._name(number))) or [NEVER])[0]
            for number in range(self.COUNT)
        }
        for number, begin in begins.items():
            above = [
                other
                for other, later in begins.items()
                if later > begin and CLASSES[self._class(other)] > CLASSES[self._class(number)]
            ]
            if (
                len(above) >= self.QUOTA
            ):  # So many may be decided at once, and written in any order.
                yield f"{self._name(number)} was let go before {len(above)} of a higher class"


class ManyJobs(Load):
    """Sixty Jobs, and six fit."""

    kind, variant, COUNT, QUOTA = "Job", "Jobs", 60, 6

    def _amounts(self) -> dict[str, int]:
        return {"cpu": self.QUOTA}

    async def _make(self, name: str, priority: str) -> Json:
        return await self.at.job(name, "sleep=2", priority=priority, backoffLimit=0)

    def _peak(self) -> int:
        return peak(lives(self.at.history, self.at.namespace))


class ManyRuns(Load):
    """Three hundred PipelineRuns, and twenty fit."""

    kind, variant, COUNT, QUOTA = "PipelineRun", "PipelineRuns", 300, 20

    def _amounts(self) -> dict[str, int]:
        return {SLOTS: self.QUOTA}

    async def _make(self, name: str, priority: str) -> Json:
        return await self.at.run(name, task("a", "sleep=2"), priority=priority)

    def _peak(self) -> int:
        return peak(runs(self.at.history, self.at.namespace))

    @row
    def a_run_begins_once(self) -> Iterator[str]:
        for number in range(self.COUNT):
            changes = self.at.changes(self.kind, self._name(number))
            starts = start_times(changes)
            if len(starts) > 1:
                yield f"{self._name(number)} began at {sorted(starts)}"


class ServerRestart(Scenario):
    """The API server is killed while Jobs run and wait."""

    async def play(self) -> None:
        """It comes back with what it had."""
        at = self.at
        await at.queue({"cpu": 4})
        await at.job("runs", "hold", pods=4)
        await at.job_runs("runs", 4)
        await at.job("waits", "sleep=1", pods=4)
        await at.waits("Job", "waits")
        await at.tools.victims()["the API server"]()
        with suppress(RequestError):
            await at.job("later", "sleep=1", pods=4, priority="low")
        at.node.end(at.namespace, "runs")
        for name in ("runs", "waits"):
            await at.job_ends(name)
        await at.until(at.is_free)

    @row
    def a_restart_of_the_api_server_stops_nothing(self) -> Iterator[str]:
        for name in ("runs", "waits"):
            if condition(self.at.job_now(name), "Complete") != "True":
                yield f"{name} is not complete"
            if (count := len(releases(self.at.changes("Job", name)))) != 1:
                yield f"{name} was let go {count} times"
        done = first(
            self.at.changes("Job", "runs"), lambda job: condition(job, "Complete") == "True"
        )
        if releases(self.at.changes("Job", "waits"))[0] < done:
            yield "the one that waited was let go before"


SCENARIOS = (ManyJobs, ManyRuns, ServerRestart)
