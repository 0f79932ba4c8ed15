"""Plays one world of the swarm: draws its features, disturbs it, and judges logs, views and cluster."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.errors import bad_request
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.judge import at_rest, checks
from services.simulator.judge.cluster_history import ClusterHistory, SharedQuota
from services.simulator.judge.message_logs import (
    LOGS,
    MessageLogs,
    read_logs,
    without_ghosts,
    without_void,
)
from services.simulator.judge.older_states import WrittenConditions
from services.simulator.scenarios import basic
from services.simulator.scenarios import load as basic_load
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.swarm import load
from services.simulator.scenarios.swarm.checker import check_reservations
from services.simulator.scenarios.swarm.disturbances import Disturbances
from services.simulator.scenarios.swarm.features import SERVICES, Features, drawn, focused
from services.simulator.scenarios.swarm.history import write_history
from services.simulator.scenarios.swarm.moments.handovers import Handovers
from services.simulator.scenarios.swarm.moments.revivals import FORGET_SECONDS
from services.simulator.scenarios.swarm.power_cuts import PowerCuts
from services.simulator.scenarios.swarm.releases import AddsField, Rollout
from services.simulator.scenarios.system import System
from shared.bus.follow import why_unreadable
from shared.bus.port import Entry, LogChangedError
from shared.contracts.kube import kinds, names
from shared.contracts.kube.conditions import timestamp
from shared.contracts.kube.kinds import Kind, Object
from shared.integrations import SHIPPED, TEKTON_SLOT, Integrations
from shared.settings.configuration import Configuration
from shared.testing.world.memory_streams import Dialect
from shared.testing.world.world import World

LOAD_SECONDS: Final = 60.0
END_SECONDS: Final = 900.0
SETTLE_SECONDS: Final = 70.0
"""Longer than any back-off of what was put off, so that the system is at rest."""

RUNS: Final = (2, 10)
JOBS: Final = (4, 16)
TEAMS: Final = "teams"
"""Name of the pool that the queues of the teams share."""


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    random = Random(f"swarm/{seed}")
    return play_with(seed, drawn(random, Random(f"later/{seed}")), random)


def play_focused(focus: str, seed: int) -> Verdict:
    """Run a world of `seed` in which what the focus tries is always on."""
    random = Random(f"swarm/{focus}/{seed}")
    features = focused(drawn(random, Random(f"later/{focus}/{seed}")), focus)
    return play_with(seed, features, random)


class Others(Protocol):
    """Jobs of other kinds that play along, and their users."""

    submitted: basic.Submitted
    """What was created and ends by itself."""

    deleted: set[str]
    """Uids of what users deleted."""

    integrations: Integrations
    """The kinds that wait in this world."""

    async def begin(self) -> None:
        """Wait until these kinds can wait, before anything fails."""

    async def run(self) -> None:
        """Create and disturb until the time of faults is over."""

    async def wind_up(self) -> None:
        """Stop what would run forever."""

    async def run_again(self) -> list[str]:
        """Run that once more after all else has ended, and end it; return what did not run."""

    async def left(self) -> list[str]:
        """Return what has not ended of what `submitted` leaves out."""

    def problems(self, message_logs: MessageLogs) -> list[str]:
        """Return what is wrong about what `submitted` leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraKinds:
    """What a world needs so that other kinds can play along."""

    join: Callable[[System], Others]
    configuration: Configuration
    watched: tuple[str, ...]
    pools: Mapping[str, SharedQuota]
    """LocalQueue to what its jobs draw from, besides those of the swarm."""


def play_with(
    seed: int, features: Features, random: Random, extra_kinds: ExtraKinds | None = None
) -> Verdict:
    """Run a world with these features."""
    verdict = Verdict(seed=seed)
    settings: dict[str, dict[str, Any]] = {}
    more: dict[str, Any] = {"settings": settings}
    if extra_kinds is not None:
        more["configuration"] = extra_kinds.configuration
        settings["watcher"] = {"kinds": extra_kinds.watched}
    if features.revivals:
        settings["quota"] = {"forget_seconds": FORGET_SECONDS}
    with World(seed, faults=features.faults) as world:
        system = System(world, replicated=features.replicated, **more)
        scene = _Scene(system, features, random, verdict, extra_kinds)
        world.note(f"features: {features.described()}")
        run_world(world, scene.drive, verdict)
    if features.power_cuts:  # A process that finds its log set back ends, and begins anew.
        verdict.problems = [one for one in verdict.problems if LogChangedError.__name__ not in one]
    return verdict


class _Scene:
    """A world, and what happens to it."""

    def __init__(
        self,
        system: System,
        features: Features,
        random: Random,
        verdict: Verdict,
        extra_kinds: ExtraKinds | None,
    ) -> None:
        self._system = system
        self._features = features
        self._random = random
        self._verdict = verdict
        self._submitted: basic.Submitted = []
        self._disturbances = Disturbances(system, features, random)
        self._others = None if extra_kinds is None else extra_kinds.join(system)
        self._integrations = SHIPPED if self._others is None else self._others.integrations
        self._history = ClusterHistory(
            system.api,
            now=system.world.now,
            pool_of=partial(_pool_of, {} if extra_kinds is None else extra_kinds.pools),
            pool_name=lambda queue: TEAMS if queue in load.TEAMS else queue,
            integrations=self._integrations,
        )
        self._conditions = WrittenConditions(system.api, now=system.world.now)
        self._processes: list[str] = []
        self._disturbing: list[asyncio.Task[None]] = []
        self._rollout: Rollout | None = None
        if features.upgrade or features.downgrade:
            later = Random(f"rollout/{system.world.seed}")
            self._rollout = Rollout(system, later, back=features.downgrade)
        if features.refusals:
            system.api.admission.plugins.append(_Refuser())

    async def drive(self) -> None:
        """Play the world to its end, and judge it."""
        await self._prepare()
        self._serve()
        if self._others is not None:
            await self._others.begin()
            self._disturbing.append(asyncio.create_task(self._others.run()))
        if self._random.random() < 1 / 2:
            await asyncio.sleep(3.0)
        self._system.start_faults()
        if self._features.handovers:
            random = Random(f"handovers/{self._system.world.seed}")
            Handovers(self._system, self._features.replicas).start()
        if self._rollout is not None:
            rolling = asyncio.create_task(self._rollout.run(self._processes))
            self._disturbing.append(rolling)
        if self._features.power_cuts:
            random = Random(f"power/{self._system.world.seed}")
            cuts = PowerCuts(self._system, random, as_one=self._features.set_back)
            self._disturbing.append(asyncio.create_task(cuts.run()))
        disturbing = asyncio.create_task(self._disturbances.run())
        await self._submit()
        await asyncio.gather(disturbing, *self._disturbing)
        ended = await self._until_ended()
        if ended and self._others is not None:
            self._verdict.violated(await self._others.run_again())
        if ended:
            await asyncio.sleep(SETTLE_SECONDS)
        await self._judge(ended=ended)

    async def _prepare(self) -> None:
        for kind, obj in load.queues(self._features, self._random):
            await self._system.kube.create(kind, obj)
        if self._features.checks:
            active = {
                "type": "Active",
                "status": "True",
                "reason": "Active",
                "message": "it answers",
            }
            active["lastTransitionTime"] = timestamp(self._system.world.now())
            patch = {"status": {"conditions": [active]}}
            await self._system.kube.patch(
                kinds.ADMISSION_CHECK, None, load.CHECK, patch, subresource="status"
            )
            self._system.world.process("checker", self._checker, mortal=False)
        write_history(self._system, self._features.history)

    def _serve(self) -> None:
        for service in SERVICES:
            for replica in range(1, self._features.replicas[service] + 1):
                newer = self._features.mixed_versions and self._random.random() < 1 / 2
                dialect: Callable[[], Dialect] = AddsField if newer else Dialect
                if self._rollout is not None:
                    dialect = partial(self._rollout.dialect_of, f"{service}-{replica}")
                self._processes.append(
                    self._system.serve(service, replica=replica, dialect=dialect).name
                )

    async def _checker(self, context: object) -> None:
        del context
        await check_reservations(self._system, changes_its_mind=self._features.handovers)

    async def _submit(self) -> None:
        loop, random = asyncio.get_running_loop(), self._random
        began = loop.time()
        coming = basic_load.arrivals(
            random, runs=random.randint(*RUNS), jobs=random.randint(*JOBS), seconds=LOAD_SECONDS
        )
        for number in range(self._features.backlog):
            await self._system.kube.create(kinds.JOB, load.backlog_job(number))
        for one in coming:
            await asyncio.sleep(max(0.0, began + one.at - loop.time()))
            if self._features.refusals and random.random() < 1 / 6 and one.kind == kinds.JOB:
                one.job["metadata"]["labels"][load.REFUSED] = "true"
            created = await self._system.kube.create(one.kind, one.job)
            metadata = created["metadata"]
            self._system.world.note(f"submit {one.kind.kind} {metadata['name']}")
            self._submitted.append(
                (one.kind, metadata["namespace"], metadata["name"], metadata["uid"])
            )

    async def _until_ended(self) -> bool:
        """Wait until nothing is disturbed any more and all jobs have ended; False if they do not."""
        loop, world = asyncio.get_running_loop(), self._system.world
        self._submitted += self._disturbances.created
        while not (world.calm and world.whole):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1.0)
        await self._disturbances.delete_refused()
        if self._others is not None:
            self._submitted += self._others.submitted
            await self._others.wind_up()
        while loop.time() < END_SECONDS:
            await self._disturbances.activate_all()
            if not await self._left():
                return True
            await asyncio.sleep(2.0)
        return False

    async def _left(self) -> list[str]:
        """Return what has not ended."""
        unended = basic.unended(self._system, self._submitted, self._integrations)
        more = [] if self._others is None else await self._others.left()
        return [name async for name in unended] + more

    # Judging

    async def _judge(self, *, ended: bool) -> None:
        verdict, message_logs = self._verdict, self._message_logs()
        verdict.violated(self._history.problems)
        for check in _checks_for(self._features):
            verdict.violated(check(message_logs))
        if not self._features.power_cuts:
            verdict.violated(self._conditions.problems(message_logs))
            crowded = self._disturbances.crowded
            verdict.violated(checks.none_admitted_without_room(message_logs, crowded))
        server = self._system.server
        for log in LOGS:
            if f"{log}_NOW" in server.streams:
                verdict.violated(at_rest.views_complete(server.streams[log], server.view(log)))
        jobs = [
            job
            for integration in self._integrations
            if self._is_served(integration.kind)
            for job in (await self._system.kube.list(integration.kind)).items
        ]
        workloads = (await self._system.kube.list(kinds.WORKLOAD)).items
        verdict.violated(
            at_rest.decisions_carried_out(message_logs, jobs, workloads, self._integrations)
        )
        deleted = set(self._disturbances.deleted)
        if self._others is not None:
            deleted |= self._others.deleted
            verdict.violated(self._others.problems(message_logs))
        alive = {
            uid: f"{namespace}/{name}"
            for _, namespace, name, uid in self._submitted
            if uid not in deleted
        }
        verdict.violated(checks.none_lost(message_logs, alive, finished=ended))
        if ended:
            verdict.violated(checks.quota_given_back(message_logs))
        else:
            left = ", ".join(await self._left())
            verdict.problems.append(f"after {END_SECONDS:g} s these have not ended: {left}")

    def _is_served(self, kind: Kind) -> bool:
        return self._system.api.kinds.find(kind.group, kind.version, kind.plural) is not None

    def _message_logs(self) -> MessageLogs:
        """All messages that can be read, with those that a log has lost."""
        entries: list[Entry] = []
        for log in LOGS:
            stream = self._system.server.streams[log]
            lost = self._disturbances.lost.get(log, [])
            stored = {one.sequence: one for one in (*lost, *stream.trimmed)} | stream.messages
            entries += [self._system.newest.read(stored[one].entry()) for one in sorted(stored)]
        message_logs = read_logs(entry for entry in entries if _is_readable(entry))
        message_logs.replicated = self._system.server.replicated
        message_logs.lost_at = self._disturbances.lost_at
        if self._features.revivals:
            message_logs = without_ghosts(message_logs)
        return without_void(message_logs) if self._features.replicated else message_logs


def _checks_for(features: Features) -> list[Callable[[MessageLogs], list[str]]]:
    """The checks that hold with these features."""
    if features.power_cuts:
        # The logs do not tell any more what was decided; the history of the cluster tells what was done.
        return [] if features.garbage else [checks.nothing_dead]
    unsafe = list(checks.ALWAYS)
    if features.garbage:
        unsafe.remove(checks.nothing_dead)
    if features.preemption or features.garbage or features.upgrade or features.downgrade:
        # Who is held back because of a message that nobody, or no older release, can read waits longer
        # than its priority says.
        # A preemptor of before a change of leaders is served first, and preempted at once where needed.
        unsafe.remove(checks.priorities_respected)
    return unsafe


def _is_readable(entry: Entry) -> bool:
    return why_unreadable(entry, lambda one: read_logs([one])) is None


def _pool_of(pools: Mapping[str, SharedQuota], job: Object) -> SharedQuota:
    """The pool from which a job's queue draws."""
    queue = job["metadata"]["labels"][names.QUEUE]
    if queue in pools:
        return pools[queue]
    if queue == "pipelines-queue":
        return SharedQuota("pipelines", TEKTON_SLOT)
    return SharedQuota(load.BACKLOG_QUEUE if queue == load.BACKLOG_QUEUE else TEAMS, "cpu")


class _Refuser:
    """An admission controller of somebody else that refuses to start some jobs."""

    name = "zz-refuser"

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        return request.obj

    async def validate(self, request: AdmissionRequest) -> None:
        obj = request.obj
        if obj is None or request.operation != "UPDATE" or request.subresource:
            return
        labels = obj["metadata"].get("labels") or {}
        if load.REFUSED in labels and not obj["spec"].get("suspend", True):
            raise bad_request("this job is not to start")
