"""The worst moment for a change of leaders: a job was let go, nobody has seen it run, and it is evicted.

1. A job was evicted, stopped and admitted again. A patcher lets it go.
2. Nobody hears of that: the outcome is on its way, and the watchers' events too.
3. The job is evicted once more. Nobody carries that out yet.
4. The leader dies. The next one knows of a suspended job, of its eviction, and of an outcome of the first.
"""

from typing import Final

from services.simulator.cluster.storage.stored import Event
from services.simulator.scenarios.system import CLUSTER, System
from shared.bus.follow import read
from shared.bus.headers import TYPE
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.testing.world.links import BOTH_WAYS

UNSEEN_SECONDS: Final = (6.0, 12.0)
"""How long nobody sees the job: longer than a change of leaders."""

SILENT_SECONDS: Final = (7.0, 15.0)
"""How long the patchers neither say what they did, nor hear of the eviction."""

DOWN_SECONDS: Final = (0.1, 2.0)


class Handovers:
    """Follows the decisions of a world, and acts at such moments."""

    def __init__(self, system: System, replicas: dict[str, int]) -> None:
        self._system = system
        self._world = system.world
        self._replicas = replicas
        self._evicted: set[str] = set()
        """Uids of jobs that were evicted before."""

        self._to_hide: set[str] = set()
        """Uids of those that were admitted again, and do not run yet."""

        self._unseen: dict[str, float] = {}
        """Uids of jobs that run unseen, and until when."""

    def start(self) -> None:
        """Begin to follow the decisions, and the jobs."""
        self._system.server.listen(Admission.stream, self._on_stored)
        api = self._system.api
        jobs = api.kinds.find(kinds.JOB.group, kinds.JOB.version, kinds.JOB.plural)
        assert jobs is not None
        api.store.subscribe(jobs, self._on_job)

    def _on_stored(self, _subjects: tuple[str, ...]) -> bool:
        stored = next(
            reversed(self._system.server.stream(Admission.stream).messages.values()), None
        )
        if self._world.calm or self._world.closing:
            return False
        if stored is None or stored.headers.get(TYPE) != Admission.type:
            return True
        admission = read(self._system.newest.read(stored).entry(), Admission)
        if admission is not None:
            self._on_decision(admission)
        return True

    def _on_decision(self, admission: Admission) -> None:
        uid = admission.uid
        self._to_hide.discard(uid)
        if admission.state == "admitted" and uid in self._evicted:
            self._to_hide.add(uid)
        elif admission.state == "evicted":
            self._evicted.add(uid)
            if self._unseen.pop(uid, 0.0) > self._world.loop.time():
                self._kill_the_leader()

    def _on_job(self, event: Event) -> None:
        job = event.stored.obj
        uid = job["metadata"]["uid"]
        if uid in self._to_hide and not job["spec"].get("suspend", False):
            self._to_hide.discard(uid)
            now = self._world.loop.time()
            if max(self._unseen.values(), default=0.0) <= now:
                self._unseen[uid] = now + self._hide()

    def _hide(self) -> float:
        """Let nobody hear of what runs by now; return for how many seconds, at least."""
        self._world.note("nobody hears of what runs by now")
        events = self._world.between(UNSEEN_SECONDS)
        for watcher in self._processes("watcher"):
            self._world.links.hold(watcher, CLUSTER, ways=("answer",), seconds=events)
        shortest = events
        for patcher in self._processes("patcher"):
            seconds = self._world.between(SILENT_SECONDS)
            shortest = min(shortest, seconds)
            self._world.links.hold(patcher, "bus", ways=BOTH_WAYS, seconds=seconds)
        return shortest

    def _kill_the_leader(self) -> None:
        self._world.note("who evicted what nobody has seen run dies")
        holder = self._system.server.holder("quota")
        if holder is not None:
            self._world.crash(
                holder.partition(".")[0], down_seconds=self._world.between(DOWN_SECONDS)
            )

    def _processes(self, service: str) -> list[str]:
        return [f"{service}-{number}" for number in range(1, self._replicas[service] + 1)]
