"""What users, disks and the schedulers of processes do in a world of the swarm."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Final

from services.simulator.scenarios import basic
from services.simulator.scenarios.swarm import load
from services.simulator.scenarios.swarm.features import FAULT_SECONDS, Features
from services.simulator.scenarios.swarm.moments.late_decisions import LateDecisions
from services.simulator.scenarios.swarm.moments.late_observations import LateObservations
from services.simulator.scenarios.swarm.moments.late_refusals import LateRefusals
from services.simulator.scenarios.swarm.moments.late_releases import LateReleases
from services.simulator.scenarios.swarm.moments.revivals import Revivals
from services.simulator.scenarios.swarm.moments.stale_reads import StaleReads
from services.simulator.scenarios.swarm.moments.two_leaders import TwoLeaders
from services.simulator.scenarios.system import System
from shared.bus.port import StreamFullError
from shared.bus.streams import view_of
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Metadata
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import PROJECTION_LEASE, Stream
from shared.integrations import queue_of
from shared.kube.port import AlreadyExistsError, ConflictError, NotFoundError
from shared.testing.world.memory_streams import NoLeaderError, Stored

LEASES: Final = ("quota", "quota", "quota", PROJECTION_LEASE, "watcher-hub")
"""Whose holder is paused: most often the one that decides."""

PAUSE_SECONDS: Final = (8.0, 50.0)
FULL_SECONDS: Final = (2.0, 50.0)
FILLED: Final = (
    Stream.ADMISSIONS,
    Stream.WORKLOADS,
    Stream.OUTCOMES,
    Stream.OBSERVED,
    Stream.CHECKS,
)
TRUNCATED: Final = (
    Stream.OBSERVED,
    Stream.WORKLOADS,
    Stream.OUTCOMES,
    Stream.CHECKS,
    Stream.ADMISSIONS,
)
HELD_SECONDS: Final = (4.5, 12.0)
"""How long the requests of a leader are on their way: about as long as its lease, or longer."""

LAGGING: Final = (
    Stream.OBSERVED,
    Stream.ADMISSIONS,
    Stream.WORKLOADS,
    Stream.CHECKS,
    Stream.OUTCOMES,
)
LAG_SECONDS: Final = (0.3, 6.0)
LAGGING_SECONDS: Final = (3.0, 12.0)
ELECTION_SECONDS: Final = (0.3, 12.0)
"""Servers notice after four seconds or more that a leader is gone, and at once that it steps down."""


DECIDED_SECONDS: Final = (0.0005, 0.005)
"""After which a decision about what has just ended is on its way."""

BURST: Final = (4, 12)
BURST_SECONDS: Final = 5.0
"""Acts of users while the requests of a leader are held: it goes on deciding about them."""

KEPT: Final = 5
"""Newest messages of a log that a truncation leaves."""

GARBAGE: Final = (
    *(
        Stream.OUTCOMES,
        Stream.CHECKS,
        Stream.DISPATCHES,
        Stream.HOSTS,
        Stream.WORKLOADS,
        Stream.QUEUES,
        Stream.ADMISSIONS,
    ),
    Stream.OBSERVED,
)


class Disturbances:
    """Everything that happens to a world besides the faults that it injects itself."""

    def __init__(self, system: System, features: Features, random: Random) -> None:
        self.deleted: set[str] = set()
        """Uids of the jobs that users deleted."""

        self.created: list[tuple[Kind, str, str, str]] = []
        """Kind, namespace, name and uid of the jobs that users created again."""

        self.lost: dict[str, list[Stored]] = {}
        """Log to the messages that it lost, for the judge."""

        self.lost_at: dict[int, datetime] = {}
        """Sequence of each of `OBSERVED` to when it was lost."""

        self.crowded: list[tuple[str, datetime, datetime]] = []
        """Each time in which a log had only the room for ends: log, begin, end."""

        self._burst = 0
        """Number of jobs that were created in bursts."""

        self._system = system
        self._world = system.world
        self._features = features
        self._random = random
        self._foreign = Random(f"foreign/{system.world.seed}")

    async def run(self) -> None:
        """Disturb until the time of faults is over."""
        features = self._features
        patience = self._random.choice((4.0, 12.0, 1000.0))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(patience, self._act_as_user))
            if features.leader_pauses:
                group.create_task(self._repeat(20.0, self._pause_a_leader))
            if features.leader_holds:
                group.create_task(self._repeat(18.0, self._hold_a_leader))
            if features.slow_views:
                group.create_task(self._repeat(15.0, self._slow_views))
            if features.full_disks:
                group.create_task(self._repeat(15.0, self._fill_a_log))
            if features.elections:
                group.create_task(self._repeat(8.0, self._elect))
            if features.stale_reads:
                stale = StaleReads(self._system, features.replicas, self._activate)
                group.create_task(self._repeat(14.0, stale.cut_off_a_server))
                stale.start()
                group.create_task(stale.evict_what_is_admitted())
            if features.late_releases:
                LateReleases(self._system, features.replicas["patcher"], self._activate).start()
            if features.late_refusals:
                LateRefusals(self._system, features.replicas["patcher"]).start()
            if features.late_observations:
                late = LateObservations(self._system, self.delete_job)
                group.create_task(self._repeat(6.0, late.depose_a_watcher))
            if features.late_decisions:
                decisions = LateDecisions(self._system, self._create)
                group.create_task(self._repeat(16.0, decisions.begin_meanwhile))
            if features.two_leaders:
                leaders = TwoLeaders(self._system)
                group.create_task(self._repeat(12.0, leaders.forget_the_lease))
            if features.revivals:
                killed = Revivals(self._system)
                group.create_task(self._repeat(25.0, killed.kill_the_server))
            if features.truncation:
                group.create_task(self._repeat(12.0, self._truncate_a_log))
            if features.garbage:
                group.create_task(self._repeat(15.0, self._write_garbage))
            if features.foreign_decisions:
                self._system.server.listen(WorkloadState.stream, self._on_workload)

    async def _repeat(self, mean_seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            at = loop.time() + self._random.expovariate(1 / mean_seconds)
            if at >= FAULT_SECONDS:
                return
            await asyncio.sleep(at - loop.time())
            await act()

    # Users

    async def _act_as_user(self) -> None:
        acts = [self._delete, self._resize]
        if self._features.recreation:
            acts += [self._recreate, self._recreate]
        if self._features.deactivation:
            acts += [self._deactivate]
        await self._random.choice(acts)()

    async def _delete(self) -> None:
        self.deleted |= await basic.delete_one(self._system, self._random)

    async def delete_job(self, metadata: Metadata) -> None:
        """Delete a Job, and none that was created under its name since."""
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self._world.note(f"delete Job {namespace}/{name}")
        self.deleted.add(uid)
        with suppress(NotFoundError, ConflictError):
            await self._system.kube.delete(kinds.JOB, namespace, name, uid=uid)

    async def _resize(self) -> None:
        await basic.resize_one(self._system, self._random)

    async def _recreate(self) -> None:
        """Delete a job of a user and create another one of its name."""
        jobs = [
            job
            for job in (await self._system.kube.list(kinds.JOB)).items
            if queue_of(job) not in {"", load.BACKLOG_QUEUE}
            and not job["metadata"].get("ownerReferences")
        ]
        if not jobs:
            return
        job = self._random.choice(jobs)
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        self._world.note(f"create Job {namespace}/{name} again")
        await self.delete_job(job["metadata"])
        try:
            made = await self._system.kube.create(kinds.JOB, load.again(job, self._random))
        except AlreadyExistsError:
            return  # Something keeps the first one for a while.
        self.created.append((kinds.JOB, namespace, name, made["metadata"]["uid"]))

    async def _deactivate(self) -> None:
        """Deactivate a workload, or reactivate it."""
        workloads = (await self._system.kube.list(kinds.WORKLOAD)).items
        if workloads:
            workload = self._random.choice(workloads)
            active = not workload["spec"].get("active", True)
            await self._activate(workload["metadata"], active=active)

    async def activate_all(self) -> None:
        """Reactivate every workload, so that its job can end."""
        for workload in (await self._system.kube.list(kinds.WORKLOAD)).items:
            if not workload["spec"].get("active", True):
                await self._activate(workload["metadata"], active=True)

    async def _activate(self, metadata: Metadata, *, active: bool) -> None:
        self._world.note(f"{metadata['name']}: active {active}")
        try:
            await self._system.kube.patch(
                kinds.WORKLOAD,
                metadata["namespace"],
                metadata["name"],
                {"spec": {"active": active}},
            )
        except (ConflictError, NotFoundError):
            return

    async def delete_refused(self) -> None:
        """Delete the jobs that the cluster never starts, and those that only wait."""
        for job in (await self._system.kube.list(kinds.JOB)).items:
            metadata = job["metadata"]
            labels = metadata.get("labels") or {}
            if load.REFUSED in labels or labels.get(names.QUEUE) == load.BACKLOG_QUEUE:
                await self.delete_job(metadata)

    # Processes and disks

    async def _pause_a_leader(self) -> None:
        holder = self._system.server.holder(self._random.choice(LEASES))
        process = "" if holder is None else holder.partition(".")[0]
        if process in self._world.processes:
            self._world.pause(process, seconds=self._world.between(PAUSE_SECONDS))

    async def _hold_a_leader(self) -> None:
        """Let what the leader of quota sends arrive late, and give it much to decide until then.

        It reads on, and another one leads before what it decided is refused, or stored.
        """
        holder = self._system.server.holder("quota")
        if holder is None:
            return
        seconds = self._world.between(HELD_SECONDS)
        process = holder.partition(".")[0]
        self._world.links.hold(process, "bus", ways=("request",), seconds=seconds)
        for _ in range(self._random.randint(*BURST)):
            act = self._random.choice((self._resize, self._submit, self._submit, self._delete))
            await act()
            await asyncio.sleep(self._random.uniform(0, 2 * BURST_SECONDS / BURST[1]))
        if self._features.slow_views:
            await self._slow_views()  # The next leader begins behind them.

    async def _slow_views(self) -> None:
        """Let some views be behind their logs: servers elect, and consumers of sources are made anew."""
        for log in LAGGING:
            if self._random.random() < 1 / 2 and not self._world.calm:
                most = self._world.between(LAG_SECONDS)
                self._world.note(f"view of {log} is up to {most:.3f} s late")
                self._system.server.lags[log] = most
                self._world.later(self._world.between(LAGGING_SECONDS), self._end_lag, log)

    async def _elect(self) -> None:
        """Let the leader of some streams go: those that one server led."""
        for name in (*FILLED, *map(view_of, FILLED)):
            if self._random.random() < 1 / 3:
                seconds = self._world.between(ELECTION_SECONDS)
                self._world.note(f"nobody leads {name} for {seconds:.3f} s")
                self._system.server.elect(name, seconds=seconds)

    def _end_lag(self, log: str) -> None:
        self._world.note(f"view of {log} is late no more")
        self._system.server.lags.pop(log, None)

    async def _submit(self) -> None:
        """Create one more job of a team."""
        self._burst += 1
        await self._create(load.burst_job(self._burst, self._random))

    async def _create(self, job: Object) -> None:
        made = await self._system.kube.create(kinds.JOB, job)
        metadata = made["metadata"]
        self._world.note(f"submit Job {metadata['name']}")
        self.created.append((kinds.JOB, metadata["namespace"], metadata["name"], metadata["uid"]))

    async def _fill_a_log(self) -> None:
        stream = self._system.server.streams[self._random.choice(FILLED)]
        field = self._random.choice(("full", "crowded", "crowded"))
        self._world.note(f"{stream.name} is {field}")
        seconds = self._world.between(FULL_SECONDS)
        if not stream.full and not stream.crowded:
            now = self._world.now()
            self.crowded.append((stream.name, now, now + timedelta(seconds=seconds)))
        setattr(stream, field, True)
        self._world.later(seconds, self._empty_a_log, stream.name, field)

    def _empty_a_log(self, name: str, field: str) -> None:
        self._world.note(f"{name} is {field} no more")
        setattr(self._system.server.streams[name], field, False)
        now = self._world.now()  # What was filled twice is empty sooner than it was to be.
        self.crowded = [
            (log, since, min(until, now) if log == name else until)
            for log, since, until in self.crowded
        ]

    async def _truncate_a_log(self) -> None:
        stream = self._system.server.streams[self._random.choice(TRUNCATED)]
        # What is lost is old: a view that is late has it.
        behind = stream.last - self._system.server.view(stream.name).sourced
        lost = stream.truncate(KEPT + behind)
        self._world.note(f"{stream.name} loses its oldest {len(lost)} messages")
        self.lost.setdefault(stream.name, []).extend(lost)
        if stream.name == Observed.stream:
            now = self._world.now()
            self.lost_at |= {one.sequence: now for one in lost}

    def _on_workload(self, _subjects: tuple[str, ...]) -> bool:
        """Send a foreign message that takes the place of the decision to which an end leads."""
        if self._world.calm or self._world.closing:
            return False
        messages = self._system.server.stream(WorkloadState.stream).messages
        stored = next(reversed(messages.values()), None)
        if stored is not None and b'"finished"' in stored.data and self._foreign.random() < 1 / 2:
            subject = stored.subject.replace(".workload.", ".admission.")
            delay = self._foreign.uniform(*DECIDED_SECONDS)
            self._world.later(delay, self._publish_foreign, subject, b"{")
        return True

    async def _write_garbage(self) -> None:
        stream = self._system.server.streams[self._random.choice(GARBAGE)]
        subjects = sorted({stored.subject for stored in stream.messages.values()})
        if subjects and not stream.full:
            subject = self._random.choice(subjects)
            self._publish_foreign(subject, b'{"what": "ever"')

    def _publish_foreign(self, subject: str, data: bytes) -> None:
        with suppress(StreamFullError, NoLeaderError):  # Nobody waits for the answer.
            self._system.server.publish(subject, data, {})
