"""When the waiting workloads of a ClusterQueue probably start: one forecast for all rows of its page.

A forecast takes up to two seconds of a processor, whoever asks. Therefore one is played for a queue, not
for a row; it is kept for half a minute and shared by everybody who looks; and it waits its turn behind
other simulations, as one of the user who asked first.
"""

import asyncio
from random import Random
from time import monotonic
from typing import Final

from services.console.access.reviews import User
from services.console.pages.documents import RowStart, StartList
from services.console.query_service import QueryService
from services.quota.forecast import (
    BUDGET_SECONDS,
    RECENT,
    Budget,
    History,
    Snapshot,
    expected_starts,
)
from services.quota.forecast.snapshot import Id
from shared.contracts.messages.explain import PositionsRequest
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import HOPELESS

FRESH_SECONDS: Final = 30.0
"""How old a forecast may be."""

ROWS_MAX: Final = 200
"""Workloads of a queue that are forecast: the first ones, as many as its page shows."""

QUEUES_MAX: Final = 100
"""Queues whose forecast is kept."""

_Queue = tuple[str, str]


class Starts:
    """The forecasts of one process."""

    def __init__(self, queries: QueryService) -> None:
        self._queries = queries
        self.fresh_seconds = FRESH_SECONDS
        self._known: dict[_Queue, tuple[float, asyncio.Task[StartList]]] = {}
        """When it was asked, and the forecast; the oldest first."""

    def forget(self) -> None:
        """Drop the forecasts: nobody asks any more."""
        self._known.clear()

    async def of(self, user: User, cluster: str, name: str) -> StartList:
        """The forecast of a queue, also of namespaces that the user may not see."""
        known = self._known.get((cluster, name))
        now = monotonic()
        is_old = known is None or now - known[0] >= self.fresh_seconds
        if known is None or (is_old and known[1].done()) or _has_failed(known[1]):
            self._known.pop((cluster, name), None)
            while len(self._known) >= QUEUES_MAX:
                del self._known[next(iter(self._known))]
            known = (now, asyncio.create_task(self._play(user, cluster, name)))
            self._known[cluster, name] = known
        # Whoever asks may go; the forecast is for everybody.
        return await asyncio.shield(known[1])

    async def _play(self, user: User, cluster: str, name: str) -> StartList:
        view = self._queries.view
        first = PositionsRequest(cluster=cluster, cluster_queue=name, limit=ROWS_MAX)
        idents = [
            (each.cluster, f"{each.namespace}/{each.name}")
            for each in view.replica.positions(first).items
        ]
        snapshot, recent = view.snapshot(), view.recent_submissions(RECENT)
        idents = [ident for ident in idents if not _is_hopeless(snapshot, ident)]
        if not idents:
            return StartList(items=[])
        return await self._queries.play(
            user, lambda: _played(snapshot, cluster, name, idents, view.history, recent)
        )


def _is_hopeless(snapshot: Snapshot, ident: Id) -> bool:
    """Whether it was decided that only a change of the job or of the configuration lets it start."""
    decided = snapshot.admissions.get(ident)
    return decided is not None and decided.state == "waiting" and decided.reason in HOPELESS


def _has_failed(task: asyncio.Task[StartList]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _played(
    snapshot: Snapshot,
    cluster: str,
    name: str,
    idents: list[tuple[str, str]],
    history: History,
    recent: list[WorkloadState],
) -> StartList:
    if history.is_empty:
        return StartList(items=[], unknown_because="no workload has ended in the last day")
    found = expected_starts(
        snapshot,
        cluster,
        name,
        idents,
        history=history,
        recent=recent,
        random=Random(f"{cluster}/{name}"),
        budget=Budget(BUDGET_SECONDS, monotonic),
    )
    return StartList(
        items=[
            RowStart(
                namespace=ident[1].partition("/")[0],
                name=ident[1].partition("/")[2],
                expected_start=each.at,
                expected_earliest=each.earliest,
                expected_latest=each.latest,
            )
            for ident, each in found.items()
        ]
    )
