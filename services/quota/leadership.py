"""Leads when the lease is ours, and starts again from the log after any doubt."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from services.quota.audit.contradictions import OpenContradictions
from services.quota.dead_letters import TryAgain
from services.quota.decider import Decider
from services.quota.ended_work import FORGET_SECONDS
from services.quota.metrics import DecisionMetrics
from services.quota.metrics.service import HALTED as HALTED_GAUGE
from services.quota.queries.explainer import QueryResponder
from services.quota.term import ContradictionError, Term
from shared.bus.leadership import lead
from shared.bus.port import Bus

log = structlog.get_logger(__name__)

LEASE: Final = "quota"

BEGIN_ANEW_SECONDS: Final = 600.0
"""A contradiction ends a term at most this often. One that comes again sooner is no accident: the term
stays, gives back what ends, and admits nobody until it is gone."""

READING: Final = "reading the streams"
HALTED: Final = "admission is stopped"
"""Beginnings of `QuotaLeader.state` while the service is not ready."""

WAITING: Final = "waiting for the lease"


class QuotaLeader:
    """Waits for the lease, and serves terms while it has it."""

    def __init__(
        self,
        *,
        bus: Bus,
        new_decider: Callable[[], Decider],
        now: Callable[[], datetime],
        forget_seconds: float = FORGET_SECONDS,
        metrics: DecisionMetrics | None = None,
    ) -> None:
        self._bus = bus
        self._new_decider = new_decider
        self._now = now
        self._forget_seconds = forget_seconds
        self._metrics = metrics or DecisionMetrics()
        self.decider: Decider | None = None
        """State of the present term; None: another replica leads, or none."""

        self._term: Term | None = None
        """The present term, once it has begun."""

        self._open_contradictions = OpenContradictions()
        self._begun_anew: datetime | None = None
        """When a contradiction ended a term last."""

        self._state = WAITING

    def state(self) -> str:
        """What it does at the moment, in words."""
        return self._state

    def try_again(self) -> TryAgain | None:
        """How the present term applies a message once more; None: it is another replica's."""
        return None if self._term is None else self._term.try_again

    async def run(self) -> None:
        """Lead whenever the lease is ours, until cancelled."""
        await lead(self._bus, LEASE, self._serve)

    async def _serve(self) -> None:
        """Serve one term. A lost lease cancels it."""
        try:
            await self._serve_term()
        except* ContradictionError as errors:
            self._begun_anew = self._now()
            log.error("beginning anew after a contradiction", problem=str(_first_leaf(errors)))
        finally:
            self.decider = self._term = None
            self._state = WAITING
            HALTED_GAUGE.set(0)  # Whoever leads next says so of itself.

    async def _serve_term(self) -> None:
        self._state = READING
        self._open_contradictions.begin_term()
        decider = self._new_decider()
        term = Term(
            bus=self._bus,
            decider=decider,
            now=self._now,
            open_contradictions=self._open_contradictions,
            may_begin_anew=self._may_begin_anew,
            on_stopped=self._on_stopped,
            metrics=self._metrics,
            forget_seconds=self._forget_seconds,
        )
        async with asyncio.TaskGroup() as group:
            await term.begin(group)
            group.create_task(QueryResponder(bus=self._bus, decider=decider).serve())
            group.create_task(term.room.watch())
            group.create_task(term.delete_ended())
            self.decider, self._term = decider, term
            await term.decide_until_cancelled()

    def _may_begin_anew(self) -> bool:
        if self._begun_anew is None:
            return True
        return (self._now() - self._begun_anew).total_seconds() >= BEGIN_ANEW_SECONDS

    def _on_stopped(self, contradiction: str, full: str) -> None:
        if contradiction:
            self._state = f"{HALTED}: {contradiction}"
        else:
            self._state = f"admitting nobody: {full}" if full else "deciding"


def _first_leaf(error: BaseException) -> BaseException:
    """The first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
