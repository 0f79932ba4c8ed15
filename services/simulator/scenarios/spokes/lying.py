"""A spoke whose agent is in an attacker's hands: it publishes what its user may, and none of it is so."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.system import CLUSTER
from services.watcher.observe import observed, tombstone
from shared.bus import headers as wire_headers
from shared.bus.headers import TYPE
from shared.bus.port import BusError
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.moments import UNIX_EPOCH
from shared.contracts.messages.base import Message
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.spokes import SCHEMA, CopyState, Heartbeat
from shared.contracts.refs import WorkloadRef
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext

FLOOD: Final = 40
"""Messages of one flood."""

EVERY_SECONDS: Final = 1.0
_HUGE: Final = 2**62
_AMOUNTS: Final = ("0", "-5", "1000000", "9223372036854775807", "much")
_TIMES: Final = (UNIX_EPOCH, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
_STATUSES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"conditions": "Complete"},
    {"conditions": [None, {"type": 1}], "active": "many", "succeeded": -1},
    {"completionTime": "9999-12-31T23:59:59Z", "conditions": [{"type": "Complete"}]},
)
"""What no API server writes."""

SUCCESS: Final[dict[str, Any]] = {
    "succeeded": 1,
    "conditions": [
        {"type": "Complete", "status": "True", "reason": "CompletionsReached"},
        {"type": "Succeeded", "status": "True", "reason": "Succeeded"},
    ],
}


class LyingSpoke:
    """Lies about the work of all spokes, under its own name: other subjects its user may not write."""

    def __init__(self, system: MultiClusterSystem, spoke: str, *, until_seconds: float) -> None:
        self.spoke = spoke
        self._system = system
        self._until_seconds = until_seconds
        self._random = Random(f"liar/{system.world.seed}")
        self._lies: tuple[Callable[[MemoryBus, Dispatch], Awaitable[None]], ...] = (
            self._report_copy,
            self._show_job,
            self._show_workload,
            self._report_outcome,
            self._beat,
            self._flood,
            self._speak_for_another,
            self._show_queue,
            self._show_configuration,
            self._claim_to_have_listed,
        )

    def start(self) -> None:
        """Begin to lie, beside the spoke's own services."""
        self._system.world.process(f"liar-{self.spoke}", self._run, mortal=False)

    def orders(self) -> list[Dispatch]:
        """Return all orders on the log."""
        stored = self._system.hub.server.streams[Dispatch.stream].messages.values()
        return [
            Dispatch.decode(one.data, one.headers)
            for one in stored
            if one.headers[TYPE] == Dispatch.type
        ]

    def own_work(self) -> set[WorkloadRef]:
        """Return the workloads that were ordered from this spoke: about these it may lie."""
        return {order.ref for order in self.orders() if order.spoke == self.spoke}

    async def _run(self, context: ProcessContext) -> None:
        bus = MemoryBus(self._system.hub.server, instance=context.instance, random=self._random)
        await bus.start()
        loop = asyncio.get_running_loop()
        while loop.time() < self._until_seconds:
            await asyncio.sleep(self._random.expovariate(1 / EVERY_SECONDS))
            orders = self.orders()
            if orders:
                await self._random.choice(self._lies)(bus, self._random.choice(orders))
        await asyncio.Event().wait()

    async def _report_copy(self, bus: MemoryBus, order: Dispatch) -> None:
        lie = CopyState(
            spoke=self.spoke,
            cluster=order.cluster,
            namespace=order.namespace,
            name=order.name,
            uid=order.uid,
            number=order.number + self._random.choice((0, 0, 1, 99, -1, _HUGE)),
            state=self._random.choice(("gone", "taken", "refused")),
            ended=self._random.choice((None, SUCCESS, SUCCESS, *_STATUSES)),
            message=self._random.choice(("so it is", "", "x" * 5000)),
            at=self._some_time(),
        )
        await bus.publish(lie)

    async def _show_job(self, bus: MemoryBus, order: Dispatch) -> None:
        """Show a copy that has succeeded, or one that is gone."""
        if order.job is None or order.target is None:
            return
        copied = order.job["metadata"]
        metadata = {
            "name": order.target.name,
            "labels": copied.get("labels") or {},
            "annotations": copied.get("annotations") or {},
        }
        status = self._random.choice((SUCCESS, SUCCESS, *_STATUSES))
        await self._show(bus, order.target.as_kind(), order.namespace, metadata, status=status)

    async def _show_workload(self, bus: MemoryBus, order: Dispatch) -> None:
        conditions = [
            {"type": type_, "status": "True", "reason": "Lie", "message": ""}
            for type_ in ("QuotaReserved", "Admitted", self._random.choice(("Finished", "Evicted")))
        ]
        check = {"name": CHECK, "state": self._random.choice(("Ready", "Retry", "Rejected"))}
        status = {"conditions": conditions, "admissionChecks": [check]}
        await self._show(bus, kinds.WORKLOAD, order.namespace, {"name": order.name}, status=status)

    async def _show(
        self,
        bus: MemoryBus,
        kind: Kind,
        namespace: str | None,
        metadata: Object,
        *,
        spec: Object | None = None,
        status: Object | None = None,
    ) -> None:
        body = self._body(kind, namespace, metadata, spec=spec, status=status)
        is_gone = self._random.random() < 1 / 4
        await bus.publish((tombstone if is_gone else observed)(self.spoke, kind, body))

    def _body(
        self,
        kind: Kind,
        namespace: str | None,
        metadata: Object,
        *,
        spec: Object | None = None,
        status: Object | None = None,
    ) -> Body:
        number = self._random.getrandbits(30)
        stamped = {
            **metadata,
            **({} if namespace is None else {"namespace": namespace}),
            "uid": f"lie-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        return as_body(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": stamped,
                "spec": spec or {},
                "status": status or {},
            }
        )

    async def _report_outcome(self, bus: MemoryBus, order: Dispatch) -> None:
        lie = Outcome(
            cluster=self.spoke,
            namespace=order.namespace,
            name=order.name,
            uid=order.uid,
            result=self._random.choice(("applied", "refused", "gone")),
            action=self._random.choice(("release", "suspend", "hold")),
            term=self._random.choice((0, 1, _HUGE)),
            number=self._random.choice((order.attempt, order.attempt, 0, _HUGE)),
            version=self._random.choice(("", str(_HUGE))),
            at=self._some_time(),
        )
        await bus.publish(lie)

    async def _beat(self, bus: MemoryBus, _order: Dispatch) -> None:
        """Claim to be another cluster, or to have a Kueue."""
        space = await self._system.kubes[self._random.choice((CLUSTER, *self._system.spokes))].get(
            kinds.NAMESPACE, None, "kube-system"
        )
        lie = Heartbeat(
            spoke=self.spoke,
            instance=self._random.choice(("liar", f"patcher-{self.spoke}.1")),
            number=self._random.choice((1, 10**6, _HUGE)),
            form=self._random.choice((SCHEMA, SCHEMA, SCHEMA + 1)),
            quota=self._random.choice(("hub", "kueue")),
            api=self._random.random() < 1 / 2,
            identity=space["metadata"]["uid"],
            at=self._some_time(),
        )
        await bus.publish(lie)

    async def _flood(self, bus: MemoryBus, order: Dispatch) -> None:
        for number in range(FLOOD):
            name = {"name": f"flood-{number}"}
            await self._show(bus, kinds.JOB, order.namespace, name, status=SUCCESS)

    async def _speak_for_another(self, _bus: MemoryBus, order: Dispatch) -> None:
        """Write, where its user may write, what only another spoke or the hub may say."""
        other = self._random.choice((CLUSTER, *self._system.spokes))
        at = self._some_time()
        about = {"namespace": order.namespace, "name": order.name, "uid": order.uid, "at": at}
        target = kinds.JOB if order.target is None else order.target.as_kind()
        metadata = {"name": order.name if order.target is None else order.target.name}
        body = self._body(target, order.namespace, metadata, status=SUCCESS)
        show = self._random.choice((observed, tombstone))
        which = self._random.randrange(5)
        messages: list[Message] = []
        for name in (self.spoke, other):
            copy = CopyState(
                spoke=name,
                cluster=order.cluster,
                number=order.number,
                state="gone",
                ended=SUCCESS,
                **about,
            )
            outcome = Outcome(
                cluster=name,
                result="gone",
                action="release",
                term=1,
                number=order.attempt,
                **about,
            )
            beat = Heartbeat(spoke=name, instance="liar", number=_HUGE, api=False, at=at)
            listed = Synced(cluster=name, epoch="lie", kinds=[], at=at)
            messages.append((copy, outcome, beat, listed, show(name, target, body))[which])
        mine, lie = messages
        self._write(mine.subject, lie)

    async def _show_queue(self, bus: MemoryBus, order: Dispatch) -> None:
        """Claim to have any amount of quota, or none."""
        amount = self._random.choice(_AMOUNTS)
        resources = [{"name": "cpu", "nominalQuota": amount, "borrowingLimit": amount}]
        flavors = [{"name": "any", "resources": resources}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        await self._show(bus, kinds.CLUSTER_QUEUE, None, {"name": "main"}, spec=spec)
        name = self._random.choice(("main", "nowhere"))
        local = {"clusterQueue": name}
        await self._show(bus, kinds.LOCAL_QUEUE, order.namespace, {"name": "main"}, spec=local)

    async def _show_configuration(self, bus: MemoryBus, order: Dispatch) -> None:
        """Show what configures a hub, as an object of its own cluster."""
        kind = self._random.choice(
            (
                kinds.INTEGRATION,
                kinds.MULTIKUEUE_CLUSTER,
                kinds.MULTIKUEUE_CONFIG,
                kinds.ADMISSION_CHECK,
                kinds.NAMESPACE,
                kinds.WORKLOAD_PRIORITY_CLASS,
            )
        )
        names = (CHECK, "jobs.batch", order.namespace, *self._system.spokes)
        spec = self._random.choice(({}, {"clusters": [self.spoke]}, {"kind": {"plural": "jobs"}}))
        await self._show(bus, kind, None, {"name": self._random.choice(names)}, spec=spec)

    async def _claim_to_have_listed(self, bus: MemoryBus, _order: Dispatch) -> None:
        """Say that it has listed everything again, and that it has kinds or none."""
        listed = self._random.choice(([], ["jobs_batch"], ["pods_", "nothing_at_all"]))
        epoch = f"lie-{self._random.getrandbits(30)}"
        await bus.publish(
            Synced(cluster=self.spoke, epoch=epoch, kinds=listed, at=self._some_time())
        )

    def _some_time(self) -> datetime:
        now = self._system.world.now()
        return self._random.choice((now, now, *_TIMES))

    def _write(self, subject: str, message: Message) -> None:
        """Put a message under a subject that is not its own."""
        server = self._system.hub.server
        headers = wire_headers.build(
            message,
            message_id=f"lie-{self._random.getrandbits(60)}",
            source=f"liar-{self.spoke}",
            now=self._system.world.now(),
        )
        if not server.up:
            return
        with suppress(BusError):  # It is full, or nobody leads it.
            server.publish(subject, message.encode(), headers)
