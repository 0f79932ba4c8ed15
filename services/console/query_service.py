"""Answers questions for one user at a time, from the view and nothing else.

Whoever asks over HTTP or over NATS asks here, and is told no more than `rights` says.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from random import Random
from time import monotonic
from typing import Any, Final

from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.console.access.rights import Eyes, Rights, Sees
from services.console.access.users import Access, User
from services.console.documents import (
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
from services.console.refusals import Refusal, not_found
from services.console.rows import queue_row, workload_row
from services.console.view import View
from services.console.whatif import Change
from services.quota.forecast import Past, Picture, expected_start
from services.quota.queries.replica import Ident
from shared.contracts.messages.explain import (
    ExplainRequest,
    Explanation,
    Position,
    PositionsRequest,
)

__all__ = ["Desk"]

EVERYBODY: Final = 1 << 62
ROWS_MAX: Final = 2000
PLAYS_MAX: Final = 8
"""Questions that wait for their play; beyond them somebody has to come again."""

RECENT: Final = timedelta(hours=3)
"""Submissions of this time are taken to come again."""

READ_SECONDS: Final = 5.0
"""How long the first who asks waits for the streams to be read."""

DONE: Final = frozenset({"Admitted", "Finished"})


class Desk:
    """One for a process."""

    def __init__(
        self,
        *,
        view: View,
        access: Access,
        cluster: str = "hub",
        policy: Policy = DEFAULT_POLICY,
        simulation_seconds: float = 60.0,
    ) -> None:
        self.view = view
        self.cluster = cluster
        """Of which is told where none is named."""

        self.rights = Rights(access, lambda: (ident[1] for ident in view.queues() if ident[1]))
        self._policy = policy
        """As what the requests of jobs that are tried out are counted."""

        self._simulation_seconds = simulation_seconds
        self._playing = asyncio.Semaphore(1)
        self._queued = 0

    async def user(self, token: str | None) -> User:
        """Who asks. Only somebody makes the view read the streams, nobody does not."""
        user = await self.rights.user(token)
        if not await self.view.ready(READ_SECONDS):
            raise Refusal(503, "the streams are not read to the end yet", retry_after_seconds=2)
        return user

    # --- pending workloads ---------------------------------------------------------------------------

    async def pending_in_cluster_queue(
        self, user: User, cluster: str, name: str, *, limit: int, offset: int
    ) -> PendingWorkloadsSummary:
        """Who waits in a ClusterQueue: everybody, or those of namespaces that the user may see."""
        sees = await self.rights.waiting_in_cluster_queue(user, name)
        if self.view.queue((cluster, "", name))[0] is None:
            raise not_found(f'clusterqueues "{name}"')
        found = self._positions(PositionsRequest(cluster=cluster, cluster_queue=name), sees)
        return self._summary(found[offset : offset + limit])

    async def pending_in_local_queue(
        self, user: User, cluster: str, namespace: str, name: str, *, limit: int, offset: int
    ) -> PendingWorkloadsSummary:
        """Who waits in a LocalQueue."""
        await self.rights.waiting_in_local_queue(user, namespace, name)
        if self.view.queue((cluster, namespace, name))[0] is None:
            raise not_found(f'localqueues "{name}"')
        request = PositionsRequest(cluster=cluster, namespace=namespace, queue=name)
        found = self._positions(request, lambda _namespace: True)
        return self._summary(found[offset : offset + limit])

    def _positions(self, request: PositionsRequest, sees: Sees) -> list[Position]:
        """All of them, in order: the bound is one of messages, and this is none."""
        everybody = request.model_copy(update={"limit": EVERYBODY})
        items = self.view.follower.positions(everybody).items
        return [each for each in items if sees(each.namespace)]

    def _summary(self, positions: Iterable[Position]) -> PendingWorkloadsSummary:
        items = []
        for position in positions:
            known = self.view.workload((position.cluster, position.namespace, position.name))
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
        """How the queues stand that the user may see."""
        eyes = await self.rights.eyes(user, namespace)
        return QueueList(version=self.view.version, items=self.queue_rows(eyes))

    def queue_rows(self, eyes: Eyes) -> list[QueueRow]:
        """The same for somebody whose rights are known."""
        seen = (ident for ident in self.view.queues() if eyes.seen(ident[1]))
        rows = (queue_row(self.view, ident) for ident in seen)
        return [row for row in rows if row is not None]

    async def workloads(
        self, user: User, namespace: str | None = None, *, limit: int = ROWS_MAX
    ) -> WorkloadList:
        """Who waits first, then who runs, then who is done; the youngest first."""
        sees = await self.rights.sees(user, namespace)
        return self.rows(sees, limit=limit)

    def rows(self, sees: Sees, *, limit: int = ROWS_MAX) -> WorkloadList:
        """The same for somebody whose rights are known."""
        found = [
            (state.phase == "finished", -state.created_at.timestamp(), _ident(state))
            for state, _ in self.view.workloads()
            if sees(state.namespace)
        ]
        found.sort()
        rows = (workload_row(self.view, ident) for _, _, ident in found[:limit])
        return WorkloadList(
            version=self.view.version,
            items=[row for row in rows if row is not None],
            omitted=max(0, len(found) - limit),
        )

    # --- why, and what if ----------------------------------------------------------------------------

    async def explain(
        self,
        user: User,
        namespace: str,
        name: str,
        *,
        cluster: str | None = None,
        forecast: bool = False,
    ) -> Explained:
        """Why a workload waits, in each cluster that knows one of this name."""
        await self.rights.sees(user, namespace)
        request = ExplainRequest(cluster=cluster, namespace=namespace, name=name)
        answer = self.view.follower.explain(request)
        if not answer.items:
            raise not_found(f'workloads "{namespace}/{name}"')
        items = answer.items
        if forecast:
            items = [await self._expected(item) for item in items]
        return Explained(items=items)

    async def _expected(self, item: Explanation) -> Explanation:
        if item.reason in DONE:
            return item
        picture, past = self.view.picture(), self.view.past
        recent = self.view.recent(RECENT)
        changes = await self._play(lambda: _foreseen(picture, past, recent, item))
        return item.model_copy(update=changes)

    async def simulate(self, user: User, request: SimulateRequest) -> SimulateAnswer:
        """What would be if something were different, as far as the user may see it."""
        change = Change(request, self._policy)
        sees = await self.rights.plays(user, change.touched)
        all_of_it = await self.rights.sees_all(user)
        picture, past = self.view.picture(), self.view.past
        ends = monotonic() + self._simulation_seconds
        answer = await self._play(
            lambda: change.play(picture, past, over=lambda: monotonic() > ends)
        )
        return answer if all_of_it else _cut(answer, sees)

    async def _play(self, playing: Callable[[], Any]) -> Any:
        """Beside the loop, one at a time: the same CPU answers everybody."""
        if self._queued >= PLAYS_MAX:
            raise Refusal(429, "too many futures are being played", retry_after_seconds=5)
        self._queued += 1
        try:
            async with self._playing:
                return await asyncio.to_thread(playing)
        finally:
            self._queued -= 1


def _ident(state: Any) -> Ident:
    return state.cluster, state.namespace, state.name


def _foreseen(picture: Picture, past: Past, recent: list[Any], item: Explanation) -> dict[str, Any]:
    ident = (item.cluster, f"{item.namespace}/{item.name}")
    state = picture.workloads.get(ident)
    if state is None:
        return {}
    if past.known(state) == 0:
        return {"expected_start_unknown_because": "no workload has ended that is still known"}
    # The same question at the same moment has the same answer.
    expected = expected_start(picture, ident, past=past, recent=recent, random=Random(state.uid))
    if expected is None:
        because = "in most of the possible futures it does not start"
        return {"expected_start_unknown_because": because}
    return {
        "expected_start": expected.at,
        "expected_earliest": expected.earliest,
        "expected_latest": expected.latest,
        "expected_from_runs": expected.known_runs,
        "expected_start_unknown_because": "",
    }


def _cut(answer: SimulateAnswer, sees: Sees) -> SimulateAnswer:
    """Only the queues that may be seen, and no sums over those that may not."""
    courses = {}
    for name, course in (("before", answer.before), ("after", answer.after)):
        queues = {key: figures for key, figures in course.queues.items() if sees(key.split("/")[1])}
        courses[name] = course.model_copy(
            update={"queues": queues, "makespan_seconds": None, "preemptions": None}
        )
    return answer.model_copy(update=courses)
