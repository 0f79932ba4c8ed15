"""Answers questions of one user from the view.

The HTTP handlers and the NATS service both ask here. An answer holds only what `Authorizer` allows.
"""

import asyncio
from collections.abc import Callable, Iterable
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import Any, Final, TypeVar

import structlog

from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.console.access.authorizer import (
    NAMESPACES_MAX,
    Authorizer,
    NamespaceFilter,
    Visibility,
)
from services.console.access.reviews import Reviewer, User
from services.console.access.shares import FairTurns, ShareLimits, share
from services.console.documents import (
    CourseFigures,
    Explained,
    ItemMeta,
    Owner,
    PendingWorkload,
    PendingWorkloadsSummary,
    QueueList,
    QueueRow,
    SimulateAnswer,
    SimulateRequest,
    WorkloadList,
)
from services.console.rows import queue_row, workload_row
from services.console.status_error import ConsoleRule, StatusError, not_found
from services.console.view import View
from services.quota.forecast import BUDGET_SECONDS, RECENT, Budget
from shared.contracts.messages.explain import (
    ExplainRequest,
    Explanation,
    Position,
    PositionsRequest,
)
from shared.contracts.reasons import NOT_WAITING
from shared.contracts.refs import QueueRef, WorkloadRef

log = structlog.get_logger(__name__)

T = TypeVar("T")
_WHATIF: Final = "services.console.whatif"


ROWS_MAX: Final = 2000
SIMULATIONS_MAX: Final = 8
"""How many simulations may run and wait for their turn. More are refused with status 429."""

SIMULATION_LIMITS: Final = ShareLimits(
    most=SIMULATIONS_MAX,
    of_user=share(SIMULATIONS_MAX),
    full=ConsoleRule.BUSY,
    user_full=ConsoleRule.BUSY_USER,
    retry_after_seconds=5,
)

READ_SECONDS: Final = 5.0
"""How long the first question waits for the streams to be read."""


class QueryService:
    """One for each process."""

    def __init__(
        self,
        *,
        view: View,
        access: Reviewer,
        cluster: str = "hub",
        policy: Policy = DEFAULT_POLICY,
        simulation_seconds: float = 60.0,
        simulation_limits: ShareLimits = SIMULATION_LIMITS,
    ) -> None:
        self.view = view
        self.cluster = cluster
        """The cluster that a question means if it names none."""

        self.authorizer = Authorizer(access, self._namespaces)
        self._policy = policy
        """How the requests of jobs in a simulation are counted."""

        self._simulation_seconds = simulation_seconds
        self._importing = asyncio.Lock()
        self._simulating = FairTurns(simulation_limits)

    def _namespaces(self) -> list[str]:
        """The namespaces that users are asked about: those of this cluster, whose RBAC decides.

        Spokes say where they have queues. That adds no namespace that is not here, and none beyond the
        number at which a request must name one: a spoke takes nobody's overview away.
        """
        here, elsewhere = self.view.namespaces(self.cluster)
        return here + elsewhere[: max(0, NAMESPACES_MAX - len(here))]

    async def authenticate(self, token: str | None) -> User:
        """The user of a token.

        Only an authenticated question makes the view read the streams. Raises `StatusError` 401 for an
        unknown token, 503 while the streams are not read to their end.
        """
        user = await self.authorizer.authenticate(token)
        await self.wait_until_read()
        return user

    async def wait_until_read(self) -> None:
        """Let the view read the streams. Raises `StatusError` 503 while they are not read to their end."""
        if not await self.view.wait_until_read(READ_SECONDS):
            raise StatusError(ConsoleRule.NOT_READ, retry_after_seconds=2)

    # --- pending workloads ---------------------------------------------------------------------------

    async def pending_in_cluster_queue(
        self, user: User, cluster: str, name: str, *, limit: int, offset: int
    ) -> PendingWorkloadsSummary:
        """The workloads that wait in a ClusterQueue, of the namespaces that the user may see."""
        is_visible = await self.authorizer.waiting_in_cluster_queue(user, name)
        if self.view.queue(QueueRef(cluster, "", name))[0] is None:
            raise not_found(f'clusterqueues "{name}"')
        found = self._positions(PositionsRequest(cluster=cluster, cluster_queue=name), is_visible)
        return self._summary(found[offset : offset + limit])

    async def pending_in_local_queue(
        self, user: User, cluster: str, namespace: str, name: str, *, limit: int, offset: int
    ) -> PendingWorkloadsSummary:
        """The workloads that wait in a LocalQueue."""
        await self.authorizer.waiting_in_local_queue(user, namespace, name)
        if self.view.queue(QueueRef(cluster, namespace, name))[0] is None:
            raise not_found(f'localqueues "{name}"')
        request = PositionsRequest(cluster=cluster, namespace=namespace, queue=name)
        found = self._positions(request, lambda _namespace: True)
        return self._summary(found[offset : offset + limit])

    def _positions(self, request: PositionsRequest, is_visible: NamespaceFilter) -> list[Position]:
        """All positions, in order: the limit of a NATS message does not hold here."""
        items = self.view.replica.positions(request.unlimited()).items
        return [each for each in items if is_visible(each.namespace)]

    def _summary(self, positions: Iterable[Position]) -> PendingWorkloadsSummary:
        items = []
        for position in positions:
            known = self.view.workload(
                WorkloadRef(position.cluster, position.namespace, position.name)
            )
            if known is None:
                continue
            state, _ = known
            owner = state.owner
            owners = (
                []
                if owner is None
                else [
                    Owner(
                        api_version=owner.api_version,
                        kind=owner.kind,
                        name=owner.name,
                        uid=owner.uid,
                    )
                ]
            )
            items.append(
                PendingWorkload(
                    metadata=ItemMeta(
                        name=position.name,
                        namespace=position.namespace,
                        creation_timestamp=state.created_at,
                        owner_references=owners,
                    ),
                    priority=position.priority,
                    local_queue_name=position.queue,
                    position_in_cluster_queue=position.position - 1,
                    position_in_local_queue=position.position_in_local_queue - 1,
                )
            )
        return PendingWorkloadsSummary(items=items)

    # --- lists ---------------------------------------------------------------------------------------

    async def queues(self, user: User, namespace: str | None = None) -> QueueList:
        """The queues that the user may see."""
        visibility = await self.authorizer.visibility(user, namespace)
        return QueueList(version=self.view.version, items=self.queue_rows(visibility))

    def queue_rows(self, visibility: Visibility) -> list[QueueRow]:
        """The same for a user whose visibility is known."""
        shows = (ident for ident in self.view.queues() if visibility.shows(ident[1]))
        rows = (queue_row(self.view, ident) for ident in shows)
        return [row for row in rows if row is not None]

    async def workloads(
        self, user: User, namespace: str | None = None, *, limit: int = ROWS_MAX
    ) -> WorkloadList:
        """Waiting workloads first, then running ones, then finished ones; the youngest first."""
        is_visible = await self.authorizer.visible_namespaces(user, namespace)
        return self.rows(is_visible, limit=limit)

    def rows(self, is_visible: NamespaceFilter, *, limit: int = ROWS_MAX) -> WorkloadList:
        """The same for a user whose namespaces are known."""
        found = self.in_order(is_visible)
        rows = (workload_row(self.view, ident) for ident in found[:limit])
        return WorkloadList(
            version=self.view.version,
            items=[row for row in rows if row is not None],
            omitted=max(0, len(found) - limit),
        )

    def in_order(self, is_visible: NamespaceFilter) -> list[WorkloadRef]:
        """The visible workloads: those that finished last, within each the youngest first."""
        found = [
            (state.phase == "finished", -state.created_at.timestamp(), ident)
            for ident, state in self.view.states()
            if is_visible(state.namespace)
        ]
        return [ident for _, _, ident in sorted(found)]

    # --- explanations and simulations ----------------------------------------------------------------

    async def explain(
        self,
        user: User,
        namespace: str,
        name: str,
        *,
        cluster: str | None = None,
        forecast: bool = False,
    ) -> Explained:
        """Why a workload waits, for each cluster that has one of this name."""
        await self.authorizer.visible_namespaces(user, namespace)
        everyone = await self.authorizer.may_see_all_namespaces(user)
        request = ExplainRequest(
            cluster=cluster, namespace=namespace, name=name, all_namespaces=everyone
        )
        answer = self.view.replica.explain(request)
        if not answer.items:
            raise not_found(f'workloads "{namespace}/{name}"')
        items = answer.items
        if forecast:
            items = [await self._expected(user, item) for item in items]
        return Explained(items=items)

    async def _expected(self, user: User, item: Explanation) -> Explanation:
        if item.reason in NOT_WAITING:
            return item
        whatif = await self._whatif()
        snapshot, history = self.view.snapshot(), self.view.history
        recent = self.view.recent_submissions(RECENT)

        def play() -> Any:
            budget = Budget(BUDGET_SECONDS, monotonic)
            return whatif.with_forecast(
                item, snapshot, history=history, recent=recent, budget=budget
            )

        forecast: Explanation = await self.play(user, play)
        return forecast

    async def simulate(self, user: User, request: SimulateRequest) -> SimulateAnswer:
        """What a change would do, reduced to what the user may see."""
        whatif = await self._whatif()
        change = whatif.ProposedChange(request, self._policy, cluster=self.cluster)
        is_visible = await self.authorizer.authorize_simulation(user, change.scope)
        all_of_it = await self.authorizer.may_see_all_namespaces(user)
        snapshot, history = self.view.snapshot(), self.view.history
        ends = monotonic() + self._simulation_seconds
        answer = await self.play(
            user,
            lambda: change.simulate(
                snapshot,
                history,
                shows=is_visible,
                guesses=all_of_it,
                over=lambda: monotonic() > ends,
            ),
        )
        return answer if all_of_it else _visible_part(answer, is_visible)

    async def _whatif(self) -> ModuleType:
        """What simulates, imported when somebody asks: most of the time nobody does.

        One question at a time imports it: Python lets two threads that import the same modules in another
        order see half of a module. Raises `StatusError` 500 if the files do not fit what runs already.
        """
        async with self._importing:
            try:
                return await asyncio.to_thread(import_module, _WHATIF)
            except Exception as error:
                log.exception("cannot import what simulates", module=_WHATIF)
                raise StatusError(ConsoleRule.NOT_LOADED) from error

    async def play(self, user: User, playing: Callable[[], T]) -> T:
        """Run one simulation at a time in a thread, because its CPU time is missing for everybody else.

        Users take turns. Raises `StatusError` 429 if too many wait already, of this user or of all.
        """
        async with self._simulating.turn(user.name):
            return await asyncio.to_thread(playing)


def _visible_part(answer: SimulateAnswer, is_visible: NamespaceFilter) -> SimulateAnswer:
    """The figures of visible queues, without sums over queues that the user may not see."""

    def visible(figures: CourseFigures) -> CourseFigures:
        queues = figures.queues.items()
        return CourseFigures(
            queues={name: each for name, each in queues if is_visible(name.split("/")[1])}
        )

    return SimulateAnswer(
        changes=answer.changes,
        before=visible(answer.before),
        after=visible(answer.after),
        submitted=answer.submitted,
        problems=answer.problems,
    )
