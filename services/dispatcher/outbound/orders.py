"""What the dispatcher says: the check's state, orders to spokes, what is written at home.

The answer is recorded by compare-and-set before any spoke is told, so a restart, or a second
dispatcher, goes by it. Somebody else's order of ours is a reason to read everything again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import structlog
from prometheus_client import Counter

from services.dispatcher.hub.jobs import HubJob
from services.dispatcher.planning.order_lifecycle import Event, OrderState, follow
from services.dispatcher.planning.plan import Answer, Plan
from services.dispatcher.planning.priority import new_rank, rank_of, with_rank
from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.spokes.copies import make_copy, make_workload, name_of, order_text
from services.dispatcher.store import Key, Knowledge
from shared.bus.port import Bus, Entry, FencedError
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.effects import CheckState, Dispatch
from shared.contracts.messages.spokes import Homecoming

__all__ = ["Telling"]

log = structlog.get_logger(__name__)

LABELS: Final = ("cluster_queue", "cluster", "replica_role")
LEADER: Final = "leader"
DISPATCHED = Counter(
    "multikueue_workloads_dispatched", "Copies ordered from a worker cluster.", LABELS
)
ADMITTED = Counter(
    "multikueue_workloads_admitted", "Workloads that won a place on a worker cluster.", LABELS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """A new offer."""

    number: int
    text: str
    adopted: bool
    """It is that of a copy which is there, made from what its job was then."""


class Telling:
    """Publishes for one session. Raises `BusError` where the views have to be read again."""

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        knowledge: Knowledge,
        bus: Bus,
        now: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._cluster = settings.cluster
        self._knowledge = knowledge
        self._bus = bus
        self._now = now
        self._on_the_way: dict[str, int] = {}
        """Subjects of orders on their way, to the last sequence that came by meanwhile."""

        self.checks_read = 0
        """The place of `CHECKS` up to which we know all that was said, though the view forgot some."""

    def hear(self, entry: Entry) -> None:
        """An order came by. Raises `FencedError` if it is of this hub and not ours."""
        if entry.subject in self._on_the_way:
            self._on_the_way[entry.subject] = max(self._on_the_way[entry.subject], entry.sequence)
        elif self._knowledge.is_news(entry):
            raise FencedError(f"{entry.subject}: somebody else gives orders")

    async def answer(self, admission: Admission, answer: Answer) -> None:
        """Say what the check says, unless it was said of this reservation."""
        requeue = 0.0 if answer.at_once else self._settings.no_cluster_retry_seconds
        await self._say(
            admission,
            answer.state,
            answer.message,
            spoke=answer.spoke,
            requeue=requeue if answer.state == "Retry" else None,
        )

    async def reject(self, admission: Admission, message: str) -> None:
        """There is nothing that could be carried, and waiting will not help."""
        await self._say(admission, "Rejected", message, spoke=None, requeue=None)

    async def _say(
        self,
        admission: Admission,
        state: Literal["Pending", "Ready", "Retry", "Rejected"],
        message: str,
        *,
        spoke: str | None,
        requeue: float | None,
    ) -> None:
        key = (admission.namespace, admission.name)
        check = self._knowledge.check_of(admission)
        assert check is not None, "only workloads with a check of ours are planned for"
        known = self._knowledge.checks.get(key)
        if (
            known is not None
            and self._knowledge.is_answered(admission, known.message)
            and (known.message.state, known.message.message) == (state, message)
        ):
            return
        said = CheckState(
            cluster=self._cluster,
            namespace=admission.namespace,
            name=admission.name,
            uid=admission.uid,
            check=check,
            state=state,
            message=message,
            spoke=spoke,
            requeue_after_seconds=requeue,
            attempt=admission.number,
            # Quota ignores what is older than its reservation, and our clock may be behind.
            at=max(self._now(), admission.decided_at),
            traceparent=admission.traceparent,
        )
        # The fence is on the log, which may have dropped what the view still has.
        latest = await self._bus.latest("CHECKS", said.subject)
        read = max(self.checks_read, 0 if known is None else known.sequence)
        if latest is not None and latest.sequence > read:
            raise FencedError(f"{said.subject}: somebody else has answered")
        sequence = await self._bus.publish(
            said, expect_subject=latest.sequence if latest is not None else 0
        )
        self._knowledge.remember_check(said, sequence)
        log.info("check", workload=f"{key[0]}/{key[1]}", state=state, message=message)

    # --- orders ---

    async def tell(
        self, key: Key, todo: Plan, orders: Mapping[str, OrderState], job: HubJob | None
    ) -> None:
        """Give the orders of a plan; return when all are on the log."""
        told = []
        for spoke, event in todo.events.items():
            state = follow(orders.get(spoke, OrderState.UNSENT), event)
            dispatch = self._order(key, spoke, state, event, job)
            self._on_the_way[dispatch.subject] = 0
            told.append((dispatch, self._bus.publish(dispatch)))
            self._note(key, dispatch, event)
        results = await asyncio.gather(*(stored for _, stored in told), return_exceptions=True)
        for (dispatch, _), result in zip(told, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            self._knowledge.remember_order(dispatch, result)
            if self._on_the_way.pop(dispatch.subject) > result:
                raise FencedError(f"{dispatch.subject}: somebody else gives orders")

    def _note(self, key: Key, dispatch: Dispatch, event: Event) -> None:
        """Log, count, and keep in mind what is as good as taken."""
        spoke, knowledge = dispatch.spoke, self._knowledge
        log.info("order", workload="/".join(key), spoke=spoke, state=dispatch.state)
        queue = knowledge.admissions[key].cluster_queue if key in knowledge.admissions else ""
        if event is Event.NOMINATED:
            knowledge.presence.offered(spoke, key)
            knowledge.expect(spoke, key)
            DISPATCHED.labels(queue, spoke, LEADER).inc()
        elif event is Event.WON:
            knowledge.presence.settled(spoke, key)
            ADMITTED.labels(queue, spoke, LEADER).inc()
        elif dispatch.state == "withdrawn":
            if event is Event.LOST and self._came_to_nothing(key, spoke):
                knowledge.presence.failed(spoke, key)
            knowledge.presence.settled(spoke, key)
            knowledge.room.release(spoke, key)

    def _came_to_nothing(self, key: Key, spoke: str) -> bool:
        """It was on offer for as long as patience lasts, and nothing of it was seen: nobody looks there."""
        offered = self._knowledge.orders[key][spoke].message
        seconds = (self._now() - offered.at).total_seconds()
        patience = self._settings.fallback_seconds
        return seconds >= patience and spoke not in self._knowledge.seen(key)

    def _order(
        self, key: Key, spoke: str, state: OrderState, event: Event, job: HubJob | None
    ) -> Dispatch:
        if event is Event.NOMINATED:
            assert job is not None, "what is offered was looked up"
            return self._offer(key, spoke, job)
        if event is Event.ORPHANED:
            return self._withdrawn_stray(key, spoke)
        before = self._knowledge.orders[key][spoke].message
        if state is OrderState.WITHDRAWN:
            return before.model_copy(
                update={
                    "state": "withdrawn",
                    "started": before.state == "chosen",
                    "job": self._named(before),
                    "workload": None,
                    "spec": None,
                    "wish": None,
                    "priority_class": None,
                    "reranked": False,
                    "at": self._now(),
                }
            )
        rank = new_rank(self._knowledge, key, before)
        if rank is not None:
            before = with_rank(before, rank)
        if state is OrderState.OFFERED:
            return before  # As old as it was: it is no new offer.
        spec = before.spec if before.job is None else before.job.get("spec")
        changes = {
            "state": str(state),
            # A Kueue of its own is given the job only now.
            "job": before.job if before.workload is not None else None,
            "spec": spec,
            "wish": self._knowledge.wish(key) if event is Event.ASKED else before.wish,
            "at": self._now(),
        }
        return before.model_copy(update=changes)

    def _offer(self, key: Key, spoke: str, job: HubJob) -> Dispatch:
        namespace, name = key
        admission = self._knowledge.admissions[key]
        numbered = self._next(key, spoke)
        rank = rank_of(self._knowledge, key, admission.uid)
        origin = self._settings.multikueue_origin
        beat = self._knowledge.presence.beat(spoke)
        workload: Object | None = None
        if beat is not None and beat.quota == "kueue":
            workload = make_workload(
                job.obj,
                integration=job.integration,
                workload=name,
                origin=origin,
                order=numbered.text,
                queue=admission.queue,
                priority=admission.priority,
            )
        copy = make_copy(
            job.obj,
            integration=job.integration,
            workload=name,
            origin=origin,
            order=numbered.text,
            lease_seconds=self._settings.lease_seconds,
        )
        offer = Dispatch(
            spoke=spoke,
            cluster=self._cluster,
            namespace=namespace,
            name=name,
            uid=admission.uid,
            state="offered",
            job=copy,
            workload=workload,
            target=job.reference,
            number=numbered.number,
            attempt=admission.number,
            at=self._now(),
            traceparent=admission.traceparent,
        )
        return offer if rank is None else with_rank(offer, rank, reranked=numbered.adopted)

    def _next(self, key: Key, spoke: str) -> _Numbered:
        """The number of a new order: that of a copy that is adopted, else greater than any before.

        Milliseconds of our clock, so that it grows even where all that was said is forgotten.
        """
        copy = self._knowledge.copies.get(key, {}).get(spoke)
        known = self._knowledge.orders.get(key, {}).get(spoke)
        if known is None and copy is not None:
            number = copy.number
        else:
            before = 0 if known is None else known.message.number
            number = max(before + 1, int(self._now().timestamp() * 1000))
        text = order_text(self._cluster, number)
        return _Numbered(number=number, text=text, adopted=known is None and copy is not None)

    def _withdrawn_stray(self, key: Key, spoke: str) -> Dispatch:
        """Have a copy removed that nobody ordered, or that should be gone."""
        copy = self._knowledge.copies[key][spoke]
        known = self._knowledge.orders.get(key, {}).get(spoke)
        before = None if known is None else known.message
        api_version, kind, name = copy.job
        return Dispatch(
            spoke=spoke,
            cluster=self._cluster,
            namespace=key[0],
            name=key[1],
            uid="" if before is None else before.uid,
            state="withdrawn",
            # Greater than the report that said that it was gone: it has to be said again.
            number=copy.number if before is None else before.number + 1,
            started=True,
            job=name_of(
                api_version=api_version,
                kind=kind,
                namespace=key[0],
                name=name,
                workload=key[1],
                origin=self._settings.multikueue_origin,
                order=order_text(self._cluster, copy.number),
            ),
            target=None if before is None else before.target,
            at=self._now(),
        )

    def _named(self, before: Dispatch) -> Object | None:
        if before.target is None:
            return None
        return name_of(
            api_version=before.target.api_version,
            kind=before.target.kind,
            namespace=before.namespace,
            name=before.target.name,
            workload=before.name,
            origin=self._settings.multikueue_origin,
            order=order_text(self._cluster, before.number),
        )

    # --- home ---

    async def send_home(self, home: Homecoming) -> None:
        """Have it written, unless it was said last."""
        key = (home.namespace, home.name)
        known = self._knowledge.homes.get(key)
        if known is not None and known.message.model_copy(update={"at": home.at}) == home:
            return
        sequence = await self._bus.publish(home)
        self._knowledge.remember_home(home, sequence)
