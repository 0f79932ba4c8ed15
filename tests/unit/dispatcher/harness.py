"""One dispatcher in virtual time; methods publish what the hub's services and the spokes would publish."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar

from services.dispatcher.app import assemble
from services.dispatcher.settings import DispatcherSettings
from shared.bus.port import CaughtUp
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.spokes import SCHEMA, CopyState, Heartbeat, HubStatus, SpokeState
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.testing.builders import observed_object
from shared.testing.waiting import first_value
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import CALM, EPOCH, Faults, ProcessContext, World

T = TypeVar("T")

CHECK = "multikueue"
NAMESPACE = "team-a"
BEAT_SECONDS = 5.0

LOST: dict[str, Any] = {
    "worker_lost_timeout_seconds": 60.0,
    "silent_seconds": 15.0,
    "spokes_seconds": 1.0,
}
"""Settings with which a silent spoke is lost after a minute."""


def job(name: str = "train", *, uid: str | None = None, **spec: Any) -> Object:
    """A suspended job of the hub."""
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
        "spec": {"suspend": True, "parallelism": 2, "managedBy": MULTIKUEUE, **spec},
        "status": {},
    }


def workload_of(name: str = "train", *, uid: str | None = None) -> str:
    """The name of a job's Workload."""
    return workload_name(kind="Job", group="batch", name=name, uid=uid or f"uid-{name}")


class Harness:
    """The world of one test: use it as a context manager."""

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
        """Spokes that send no heartbeats at the moment."""

        self.forms: dict[str, int] = {}
        """Spoke to the version of its messages, if that is not the current one."""

        self.cut_off: set[str] = set()
        """Spokes whose patchers do not reach their API server."""

        self.identities: dict[str, str] = {}
        """Spoke to the uid of its cluster."""

        self.kueues: set[str] = set()
        """Spokes with their own Kueue."""

        self.skew_seconds = 0
        """How far the spokes' clocks are ahead of the hub's."""

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

    def run(
        self,
        drive: Callable[[], Coroutine[Any, Any, T]],
        *,
        configured: bool = True,
        listed: bool = True,
    ) -> T:
        """Run `drive` beside a dispatcher whose hub has been listed, unless `listed` is False."""

        async def prepare_and_drive() -> T:
            self.bus = MemoryBus(self.server, instance="others")
            await self.bus.start()
            if configured:
                await self.configure(self.spokes)
            for cluster in (*(["hub"] if listed else []), *self.spokes):
                await self.sync(cluster)
            for spoke in self.spokes:
                self.world.outside(self.send_heartbeats(spoke))
            self.world.process("dispatcher", self._serve)
            return await drive()

        result = self.world.run(prepare_and_drive)
        assert not self.world.failures, self.world.failures
        return result

    async def send_heartbeats(self, spoke: str) -> None:
        """Send heartbeats of a spoke until the world ends."""
        while True:
            if spoke not in self.silent:
                self._beats += 1
                beat = Heartbeat(
                    spoke=spoke, instance=f"patcher-{spoke}", number=self._beats,
                    form=self.forms.get(spoke, SCHEMA),
                    at=self.world.now() + timedelta(seconds=self.skew_seconds),
                    api=spoke not in self.cut_off, identity=self.identities.get(spoke),
                    quota="kueue" if spoke in self.kueues else "hub",
                )  # fmt: skip
                await self.bus.publish(beat)
            await asyncio.sleep(BEAT_SECONDS)

    async def report_gone(self, spoke: str, dispatch: Dispatch) -> None:
        """Report that nothing of an order's copy is left."""
        await self.report(spoke, dispatch, "gone")

    async def report(
        self, spoke: str, dispatch: Dispatch, state: Any, message: str = "", **more: Any
    ) -> None:
        """Report about an order, as the spoke's patcher does."""
        report = CopyState(
            spoke=spoke, cluster="hub", namespace=dispatch.namespace, name=dispatch.name,
            uid=dispatch.uid, number=dispatch.number, state=state, message=message, at=self.world.now(),
            **more,
        )  # fmt: skip
        await self.bus.publish(report)

    def forge(self, message: Message, *, under: Message) -> None:
        """Publish a message under the subject of another one."""
        assert self.server.publish(under.subject, message.encode(), {"ce-type": message.type})

    async def sync(self, cluster: str) -> None:
        """Publish that a watcher has listed `cluster`."""
        await self.bus.publish(Synced(cluster=cluster, epoch="1", kinds=[], at=self.world.now()))

    async def configure(self, spokes: Sequence[str]) -> None:
        """Publish the hub's MultiKueue objects."""
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
        for kind, name, spec in (
            (kinds.ADMISSION_CHECK, CHECK, check),
            (kinds.MULTIKUEUE_CONFIG, "all", {"clusters": list(spokes)}),
            *((kinds.MULTIKUEUE_CLUSTER, spoke, {}) for spoke in spokes),
        ):
            await self.observe(
                kind, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}
            )

    async def observe(
        self, kind: Kind, obj: Object, *, cluster: str = "hub", deleted: bool = False
    ) -> None:
        """Publish an object, as the watcher of `cluster` does."""
        self._version += 1
        await self.bus.publish(
            observed_object(kind, obj, cluster=cluster, version=self._version, deleted=deleted)
        )

    async def submit(self, obj: Object) -> None:
        """Publish a job of the hub and its workload state."""
        metadata = obj["metadata"]
        await self.observe(kinds.JOB, obj)
        await self.bus.publish(
            WorkloadState(
                cluster="hub", namespace=NAMESPACE, uid=metadata["uid"],
                name=workload_of(metadata["name"], uid=metadata["uid"]),
                phase="waiting", created_at=EPOCH,
                owner=JobRef(api_version="batch/v1", kind="Job", plural="jobs",
                                     name=metadata["name"], uid=metadata["uid"]),
            )
        )  # fmt: skip

    async def decide(
        self,
        obj: Object,
        state: AdmissionState,
        *checks: str,
        ahead_seconds: float = 0,
        traceparent: str | None = None,
    ) -> None:
        """Publish a decision of quota about the job's workload."""
        self._number += 1
        metadata = obj["metadata"]
        await self.bus.publish(
            Admission(
                cluster="hub", namespace=NAMESPACE, uid=metadata["uid"],
                name=workload_of(metadata["name"], uid=metadata["uid"]),
                state=state, term=1, number=self._number,
                decided_at=self.world.now() + timedelta(seconds=ahead_seconds), queue="main",
                checks=list(checks or (CHECK,)), traceparent=traceparent,
            )
        )  # fmt: skip

    async def observe_copy(
        self, spoke: str, dispatch: Dispatch, *, deleted: bool = False, **status: Any
    ) -> None:
        """Publish the copy of an order, as the spoke's watcher does."""
        assert dispatch.job is not None
        metadata = {**dispatch.job["metadata"], "uid": f"{spoke}-{dispatch.name}"}
        obj = {**dispatch.job, "metadata": metadata, "status": status}
        await self.observe(kinds.JOB, obj, cluster=spoke, deleted=deleted)

    async def observe_remote_workload(
        self, spoke: str, dispatch: Dispatch, *, reserved: bool = True, evicted: str | None = None
    ) -> None:
        """Publish the Workload of a copy, with its conditions."""
        metadata = {
            "name": dispatch.name,
            "namespace": NAMESPACE,
            "uid": f"{spoke}-{dispatch.name}-wl",
        }
        conditions = [{"type": "QuotaReserved", "status": str(reserved)}]
        if evicted is not None:
            conditions.append({"type": "Evicted", "status": "True", "message": evicted})
        workload = {"metadata": metadata, "status": {"conditions": conditions}}
        await self.observe(kinds.WORKLOAD, workload, cluster=spoke)

    async def last_order(
        self, spoke: str, name: str = "train", *, uid: str | None = None
    ) -> Dispatch | None:
        """The last order to a spoke; None if there is none."""
        entry = self.server.latest(
            "DISPATCHES", f"sluice.dispatch.{spoke}.{NAMESPACE}.{workload_of(name, uid=uid)}"
        )
        return Dispatch.decode(entry.data) if entry else None

    async def last_check(self, name: str = "train", *, uid: str | None = None) -> CheckState | None:
        """The last state of the MultiKueue check; None if there is none."""
        entry = self.server.latest(
            "CHECKS",
            f"sluice.check.hub.{NAMESPACE}.{workload_of(name, uid=uid)}.{CHECK}.dispatcher",
        )
        return CheckState.decode(entry.data) if entry else None

    async def until_order(
        self, spoke: str, state: str, name: str = "train", *, uid: str | None = None
    ) -> Dispatch:
        """Wait for an order of that state."""

        async def fetch() -> Dispatch | None:
            found = await self.last_order(spoke, name, uid=uid)
            return found if found is not None and found.state == state else None

        return await first_value(fetch, f"{state} to {spoke}", seconds=120, look_seconds=0.05)

    async def until_check(self, state: str, name: str = "train", *, after: int = 0) -> CheckState:
        """Wait for a check state about a reservation with a number greater than `after`."""

        async def fetch() -> CheckState | None:
            found = await self.last_check(name)
            matches = found is not None and found.state == state and found.attempt > after
            return found if matches else None

        return await first_value(fetch, f"check {state}", seconds=120, look_seconds=0.05)

    async def until_spoke(self, spoke: str, *, active: bool) -> SpokeState:
        """Wait until the condition `Active` of a spoke is as expected."""

        async def fetch() -> SpokeState | None:
            entry = self.server.latest("SPOKES", f"sluice.spoke.hub._.{spoke}")
            state = None if entry is None else SpokeState.decode(entry.data)
            return state if state is not None and state.active is active else None

        return await first_value(fetch, f"{spoke}: {active}", seconds=120, look_seconds=0.1)

    async def until_hub_status(
        self, name: str = "train", *, status: Object | None = None
    ) -> HubStatus:
        """Wait for a status for the hub: for this one, or for any that is not empty (None)."""
        subject = f"sluice.home.hub.{NAMESPACE}.{workload_of(name)}"

        async def fetch() -> HubStatus | None:
            entry = self.server.latest("DISPATCHES", subject)
            home = None if entry is None else HubStatus.decode(entry.data)
            published = None if home is None else home.status
            matches = bool(published) if status is None else published == status
            return home if matches else None

        return await first_value(fetch, f"status {status}", seconds=120, look_seconds=0.1)

    async def observe_queues(self, *, cpu: str = "10") -> None:
        """Publish a ClusterQueue with `cpu` and its LocalQueue on every spoke."""
        for spoke in self.spokes:
            resources = [{"name": "cpu", "nominalQuota": cpu}]
            flavors = [{"name": "any", "resources": resources}]
            spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
            queue = {"metadata": {"name": "main", "uid": "q"}, "spec": spec}
            await self.observe(kinds.CLUSTER_QUEUE, queue, cluster=spoke)
            local = {
                "metadata": {"name": "main", "namespace": NAMESPACE, "uid": "l"},
                "spec": {"clusterQueue": "main"},
            }
            await self.observe(kinds.LOCAL_QUEUE, local, cluster=spoke)

    async def view(self, stream: str) -> list[str]:
        """The third token of each subject in a view: spokes or clusters."""
        tokens = []
        async for entry in self.bus.watch(stream):
            if isinstance(entry, CaughtUp):
                break
            tokens.append(entry.subject.split(".")[2])
        return tokens


async def offer(harness: Harness, obj: Object) -> tuple[Dispatch, Dispatch]:
    """Submit and reserve a job, and let both spokes make their copies; return both orders."""
    name = obj["metadata"]["name"]
    await harness.submit(obj)
    await harness.decide(obj, "reserved")
    east = await harness.until_order("east", "offered", name)
    west = await harness.until_order("west", "offered", name)
    await harness.observe_copy("east", east)
    await harness.observe_copy("west", west)
    return east, west


async def start_on_west(harness: Harness, obj: kinds.Object) -> Dispatch:
    """Submit a job and run it on west; return west's first order."""
    await harness.submit(obj)
    await harness.decide(obj, "reserved")
    west = await harness.until_order("west", "offered")
    await harness.observe_copy("west", west)
    await harness.observe_remote_workload("west", west)
    await harness.until_order("west", "chosen")
    await harness.decide(obj, "admitted")
    await harness.observe_copy("west", west, active=1)
    return west
