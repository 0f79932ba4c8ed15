"""Subscribes the patcher to the bus, and hands each message to the part that carries it out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.jobs.controller import JobController
from services.patcher.machines.secrets import MachineSecrets
from services.patcher.multikueue.copies import CopyReconciler
from services.patcher.multikueue.hub_status import HubStatusWriter
from services.patcher.multikueue.orders import OrderCheck, OrderRefusal
from services.patcher.unreadable_decisions import answer_unreadable
from services.patcher.workloads.reconciler import WorkloadReconciler
from shared.bus.follow import why_unreadable
from shared.bus.nats.work.dead_letters import Retried, RetryHandler
from shared.bus.port import Bus, Entry, NeverError
from shared.contracts import subjects
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.spokes import CheckCondition, HubStatus, SpokeState

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """One handler for each type of message."""

    cluster: str
    cache: ObjectCache
    workloads: WorkloadReconciler
    jobs: JobController
    machines: MachineSecrets
    copies: CopyReconciler
    orders: OrderCheck
    hub_status: HubStatusWriter
    now: Callable[[], datetime]
    own_kueue: bool = False
    """A Kueue of this cluster admits its workloads; the patcher only creates and removes copies."""

    def register(self, bus: Bus) -> None:
        """Subscribe each handler. Two messages about one object are never handled at the same time."""
        token = subjects.encode(self.cluster)
        own = (
            ("workload", self.on_workload, _object_key),
            ("admission", self.on_admission, _object_key),
        )
        handled: dict[str, Retried] = {}
        for what, handler, key in (
            *(() if self.own_kueue else own),
            ("host", self.on_host, None),
            ("dispatch", self.on_dispatch, _object_key),
            ("home", self.on_home, None),
            ("spoke", self.on_spoke, None),
            ("standing", self.on_standing, None),
        ):
            stream = subjects.STREAM_OF[what]
            filters = (subjects.subject_filter(what, self.cluster),)
            bus.work(stream, f"patcher-{token}-{what}", handler, filters=filters, key=key)
            handled[what] = Retried(stream=stream, handler=handler, key=key)
        if (admission := handled.get("admission")) is not None:
            handled["admission"] = replace(admission, handler=self.on_retried_admission)
        retry = RetryHandler(bus=bus, now=self.now, handled=handled)
        retry.register("patcher", self.cluster, f"patcher-{token}-retry")

    async def on_workload(self, entry: Entry) -> None:
        """Create and update the Workload object; suspend a job that the webhook did not see."""
        state = self.cache.apply_workload(entry)
        await self.workloads.reconcile(state.namespace, state.name)

    async def on_admission(self, entry: Entry) -> None:
        """Write the decision into the Workload's status, then release or stop the job.

        One that cannot be read becomes a dead letter, with an outcome by which quota lets go of it.
        """
        if (why := why_unreadable(entry, self.cache.apply_admission)) is not None:
            await answer_unreadable(self.jobs, entry, why)
            raise NeverError(why)
        admission = self.cache.apply_admission(entry)
        await self.workloads.reconcile(admission.namespace, admission.name, decided=True)

    async def on_retried_admission(self, entry: Entry) -> None:
        """As `on_admission`, for the decision of a dead letter: tells quota that it can be read now.

        Quota is told first, because the last outcome about a workload is the one that counts.
        """
        if why_unreadable(entry, self.cache.apply_admission) is None:
            await self.jobs.outcomes.report_readable(self.cache.apply_admission(entry))
        await self.on_admission(entry)

    async def on_host(self, entry: Entry) -> None:
        """Create or delete the secret of a TaskRun's machine."""
        await self.machines.apply(entry.read(HostState))

    async def on_dispatch(self, entry: Entry) -> None:
        """Create or remove the copy of a job of the hub, if the hub may ask for that.

        An order that cannot be read becomes a dead letter; the dispatcher is told, so that it chooses another
        spoke.
        """
        if (why := why_unreadable(entry, lambda one: one.read(Dispatch))) is not None:
            await self.copies.report_unreadable(entry, why)
            raise NeverError(why)
        dispatch = entry.read(Dispatch)
        if (refusal := await self.orders.refusal_of(dispatch)) is not None:
            await self._refuse_order(dispatch, refusal)
            return
        await self.copies.apply(dispatch)
        if dispatch.state == "chosen" and not self.own_kueue:
            # If the copy is admitted already, no other message starts it now.
            await self.workloads.reconcile(dispatch.namespace, dispatch.name, decided=True)

    async def _refuse_order(self, dispatch: Dispatch, refusal: OrderRefusal) -> None:
        """Tell the hub, so that it sends the workload elsewhere. No correct hub gives a forged order."""
        if refusal.tells_hub:
            await self.copies.refuse(dispatch, refusal.text)
        refusal.rule.count()
        if not refusal.by_setup:
            raise NeverError(f"order for {dispatch.ref.path}: {refusal.text}")
        log.warning("an order is refused", workload=dispatch.ref.path, error=refusal.text)

    async def on_home(self, entry: Entry) -> None:
        """Write at the hub where a workload runs and the status of its copy."""
        await self.hub_status.write_workload(entry.read(HubStatus))

    async def on_spoke(self, entry: Entry) -> None:
        """Write at the hub whether a spoke is active."""
        await self.hub_status.write_spoke(entry.read(SpokeState))

    async def on_standing(self, entry: Entry) -> None:
        """Write at the hub whether a MultiKueue check is active."""
        await self.hub_status.write_check(entry.read(CheckCondition))


def _object_key(entry: Entry) -> str:
    """The same key for state, admission and order of one workload: `<cluster>.<namespace>.<name>`."""
    return ".".join(entry.subject.split(".")[2:])
