"""A world with one dispatcher, and hands that play the hub's services and the spokes."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar

from services.dispatcher.app import assemble
from services.dispatcher.settings import DispatcherSettings
from shared.bus.port import CaughtUp
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState
from shared.contracts.messages.base import Message
from shared.contracts.messages.effects import CheckState, Dispatch
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.spokes import SCHEMA, Beat, CopyState, Homecoming, SpokeState
from shared.contracts.messages.workloads import OwnerReference, WorkloadState
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import CALM, EPOCH, Faults, ProcessContext, World

T = TypeVar("T")

CHECK = "multikueue"
NAMESPACE = "team-a"
MANAGED = "kueue.x-k8s.io/multikueue"
BEAT_SECONDS = 5.0


def job(name: str = "train", *, uid: str | None = None, **spec: Any) -> Object:
    """A job of the hub, waiting."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid or f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": {"sluicegate.dev/traceparent": "00-1-2-01"},
        },
        "spec": {"suspend": True, "parallelism": 2, "managedBy": MANAGED, **spec},
        "status": {},
    }


def named(name: str = "train", *, uid: str | None = None) -> str:
    """The Workload of a job."""
    return workload_name(kind="Job", group="batch", name=name, uid=uid or f"uid-{name}")


class Stage:
    """Use it as a context manager."""

    def __init__(
        self,
        *,
        spokes: Sequence[str] = ("east", "west"),
        faults: Faults = CALM,
        seed: int = 1,
        **settings: Any,
    ) -> None:
        self.settings = {"dispatcher": "all-at-once", **settings}
        self.silent: set[str] = set()
        """Spokes that say nothing for a while."""

        self.forms: dict[str, int] = {}
        """What spokes understand that are not up to date."""

        self.cut_off: set[str] = set()
        """Spokes whose patchers do not reach their API server."""

        self.identities: dict[str, str] = {}
        """Which cluster each of these really is."""

        self.kueues: set[str] = set()
        """Spokes with a Kueue of their own."""

        self.skew_seconds = 0
        """What the spokes' clocks are ahead of ours."""

        self._beats = 0
        self.world = World(seed, faults=faults)
        self.server = MemoryServer(world=self.world)
        self.spokes = tuple(spokes)
        self.bus: MemoryBus
        self._version = 0
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.server, instance=context.instance)
        dispatcher = assemble(
            settings=DispatcherSettings(cluster="hub", **self.settings),
            bus=bus,
            now=context.now,
            random=context.random,
        )
        await bus.start()
        await dispatcher.run()

    def play(self, drive: Callable[[], Coroutine[Any, Any, T]], *, configured: bool = True) -> T:
        """Run `drive` beside a dispatcher whose hub has been listed."""

        async def play() -> T:
            self.bus = MemoryBus(self.server, instance="others")
            await self.bus.start()
            if configured:
                await self.configure(self.spokes)
            for cluster in ("hub", *self.spokes):
                await self.sync(cluster)
            for spoke in self.spokes:
                self.world.outside(self.live(spoke))
            self.world.process("dispatcher", self._serve)
            return await drive()

        result = self.world.run(play)
        assert not self.world.failures, self.world.failures
        return result

    async def live(self, spoke: str) -> None:
        """Let a spoke be heard, for ever."""
        while True:
            if spoke not in self.silent:
                self._beats += 1
                beat = Beat(
                    spoke=spoke, instance=f"patcher-{spoke}", number=self._beats,
                    form=self.forms.get(spoke, SCHEMA),
                    at=self.world.now() + timedelta(seconds=self.skew_seconds),
                    api=spoke not in self.cut_off, identity=self.identities.get(spoke),
                    quota="kueue" if spoke in self.kueues else "hub",
                )  # fmt: skip
                await self.bus.publish(beat)
            await asyncio.sleep(BEAT_SECONDS)

    async def say_gone(self, spoke: str, dispatch: Dispatch) -> None:
        """The spoke's patcher confirms that nothing of an order is left."""
        await self.report(spoke, dispatch, "gone")

    async def report(
        self, spoke: str, dispatch: Dispatch, state: Any, message: str = "", **more: Any
    ) -> None:
        """The spoke's patcher says what became of an order."""
        said = CopyState(
            spoke=spoke, cluster="hub", namespace=dispatch.namespace, name=dispatch.name,
            uid=dispatch.uid, number=dispatch.number, state=state, message=message, at=self.world.now(),
            **more,
        )  # fmt: skip
        await self.bus.publish(said)

    def forge(self, said: Message, *, under: Message) -> None:
        """Somebody says this where it may only say `under`."""
        assert self.server.publish(under.subject, said.encode(), {"ce-type": said.type})

    async def sync(self, cluster: str) -> None:
        """A watcher has listed `cluster`."""
        await self.bus.publish(Synced(cluster=cluster, epoch="1", kinds=[], at=self.world.now()))

    async def configure(self, spokes: Sequence[str]) -> None:
        """The hub's MultiKueue objects."""
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
        for kind, name, spec in (
            (kinds.ADMISSION_CHECK, CHECK, check),
            (kinds.MULTIKUEUE_CONFIG, "all", {"clusters": list(spokes)}),
            *((kinds.MULTIKUEUE_CLUSTER, spoke, {}) for spoke in spokes),
        ):
            await self.see(kind, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec})

    async def see(
        self, kind: Kind, obj: Object, *, cluster: str = "hub", deleted: bool = False
    ) -> None:
        """Let the watcher of `cluster` observe `obj`."""
        self._version += 1
        metadata = obj["metadata"]
        await self.bus.publish(
            Observed(
                cluster=cluster, group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind,
                namespace=metadata.get("namespace"), name=metadata["name"], uid=metadata["uid"],
                resource_version=str(self._version), deleted=deleted, object=obj,
            )
        )  # fmt: skip

    async def submit(self, obj: Object) -> None:
        """A job is seen at the hub, and projected to a workload."""
        metadata = obj["metadata"]
        await self.see(kinds.JOB, obj)
        await self.bus.publish(
            WorkloadState(
                cluster="hub", namespace=NAMESPACE, uid=metadata["uid"],
                name=named(metadata["name"], uid=metadata["uid"]),
                phase="waiting", created_at=EPOCH,
                owner=OwnerReference(api_version="batch/v1", kind="Job", plural="jobs",
                                     name=metadata["name"], uid=metadata["uid"]),
            )
        )  # fmt: skip

    async def decide(
        self, obj: Object, state: AdmissionState, *checks: str, ahead_seconds: float = 0
    ) -> None:
        """Quota decides about the job's workload."""
        self._number += 1
        metadata = obj["metadata"]
        await self.bus.publish(
            Admission(
                cluster="hub", namespace=NAMESPACE, uid=metadata["uid"],
                name=named(metadata["name"], uid=metadata["uid"]),
                state=state, term=1, number=self._number,
                decided_at=self.world.now() + timedelta(seconds=ahead_seconds), queue="main",
                checks=list(checks or (CHECK,)),
            )
        )  # fmt: skip

    async def show_copy(
        self, spoke: str, dispatch: Dispatch, *, deleted: bool = False, **status: Any
    ) -> None:
        """The spoke's patcher made the copy, and its watcher sees it."""
        assert dispatch.job is not None
        metadata = {**dispatch.job["metadata"], "uid": f"{spoke}-{dispatch.name}"}
        obj = {**dispatch.job, "metadata": metadata, "status": status}
        await self.see(kinds.JOB, obj, cluster=spoke, deleted=deleted)

    async def show_quota(
        self, spoke: str, dispatch: Dispatch, *, reserved: bool = True, evicted: str | None = None
    ) -> None:
        """The copy's Workload on the spoke gets quota."""
        metadata = {
            "name": dispatch.name,
            "namespace": NAMESPACE,
            "uid": f"{spoke}-{dispatch.name}-wl",
        }
        conditions = [{"type": "QuotaReserved", "status": str(reserved)}]
        if evicted is not None:
            conditions.append({"type": "Evicted", "status": "True", "message": evicted})
        workload = {"metadata": metadata, "status": {"conditions": conditions}}
        await self.see(kinds.WORKLOAD, workload, cluster=spoke)

    async def dispatch(
        self, spoke: str, name: str = "train", *, uid: str | None = None
    ) -> Dispatch | None:
        """What a spoke was last told."""
        entry = self.server.latest(
            "DISPATCHES", f"sluice.dispatch.{spoke}.{NAMESPACE}.{named(name, uid=uid)}"
        )
        return Dispatch.decode(entry.data) if entry else None

    async def check(self, name: str = "train", *, uid: str | None = None) -> CheckState | None:
        """What the check says."""
        entry = self.server.latest(
            "CHECKS", f"sluice.check.hub.{NAMESPACE}.{named(name, uid=uid)}.{CHECK}"
        )
        return CheckState.decode(entry.data) if entry else None

    async def until_dispatch(
        self, spoke: str, state: str, name: str = "train", *, uid: str | None = None
    ) -> Dispatch:
        """Wait until a spoke was told `state`."""
        async with asyncio.timeout(120):
            while True:
                found = await self.dispatch(spoke, name, uid=uid)
                if found is not None and found.state == state:
                    return found
                await asyncio.sleep(0.05)

    async def until_check(self, state: str, name: str = "train", *, after: int = 0) -> CheckState:
        """Wait until the check says `state` about a reservation younger than `after`."""
        async with asyncio.timeout(120):
            while True:
                found = await self.check(name)
                if found is not None and found.state == state and found.attempt > after:
                    return found
                await asyncio.sleep(0.05)

    async def until_spoke(self, spoke: str, *, active: bool) -> SpokeState:
        """Wait until it is said how a spoke stands."""
        async with asyncio.timeout(120):
            while True:
                entry = self.server.latest("SPOKES", f"sluice.spoke.hub._.{spoke}")
                state = None if entry is None else SpokeState.decode(entry.data)
                if state is not None and state.active is active:
                    return state
                await asyncio.sleep(0.1)

    async def until_home(self, name: str = "train", *, status: Object | None = None) -> Homecoming:
        """Wait until the hub is told of a copy's status: of this one, or of any that is not empty."""
        async with asyncio.timeout(120):
            while True:
                entry = self.server.latest(
                    "DISPATCHES", f"sluice.home.hub.{NAMESPACE}.{named(name)}"
                )
                home = None if entry is None else Homecoming.decode(entry.data)
                told = None if home is None else home.status
                if home is not None and (told if status is None else told == status):
                    return home
                await asyncio.sleep(0.1)

    async def show_queues(self, *, cpu: str = "10") -> None:
        """Every spoke has the LocalQueue and quota."""
        for spoke in self.spokes:
            resources = [{"name": "cpu", "nominalQuota": cpu}]
            flavors = [{"name": "any", "resources": resources}]
            spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
            queue = {"metadata": {"name": "main", "uid": "q"}, "spec": spec}
            await self.see(kinds.CLUSTER_QUEUE, queue, cluster=spoke)
            local = {
                "metadata": {"name": "main", "namespace": NAMESPACE, "uid": "l"},
                "spec": {"clusterQueue": "main"},
            }
            await self.see(kinds.LOCAL_QUEUE, local, cluster=spoke)

    async def view(self, stream: str) -> list[str]:
        """The third token of each subject in the view: spokes, clusters."""
        tokens = []
        async for entry in self.bus.watch(stream):
            if isinstance(entry, CaughtUp):
                break
            tokens.append(entry.subject.split(".")[2])
        return tokens
