"""Leads when the lease is ours, and starts again from the log after any doubt."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

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

CONTRADICTIONS_MAX: Final = 1
"""A fresh state from the log may cure the first contradiction. A second one is a bug: stop."""

READING: Final = "reading the streams"
HALTED: Final = "admission is stopped"
"""Beginnings of `QuotaLeader.state` while the service is not ready."""

WAITING: Final = "waiting for the lease"


class QuotaLeader:
    """Waits for the lease, serves terms while it has it, and admits nobody after two contradictions."""

    def __init__(
        self,
        *,
        bus: Bus,
        new_decider: Callable[[], Decider],
        now: Callable[[], datetime],
        audit_seconds: float,
        forget_seconds: float = FORGET_SECONDS,
        metrics: DecisionMetrics | None = None,
    ) -> None:
        self._bus = bus
        self._new_decider = new_decider
        self._now = now
        self._audit_seconds = audit_seconds
        self._forget_seconds = forget_seconds
        self._metrics = metrics or DecisionMetrics()
        self.decider: Decider | None = None
        """State of the present term; None: another replica leads, or none."""

        self._contradictions = 0
        """Terms in a row that ended because an audit failed."""

        self._halted = ""
        """The contradiction that stopped admission, until this process ends; empty: it goes on."""

        self._state = WAITING

    def state(self) -> str:
        """What it does at the moment, in words."""
        return self._state

    async def run(self) -> None:
        """Lead whenever the lease is ours, until cancelled."""
        await lead(self._bus, LEASE, self._serve)

    async def _serve(self) -> None:
        """Serve one term. A lost lease cancels it.

        After a halt every later term of this process admits nobody: only a person starts it again.
        """
        try:
            await self._serve_term()
        except* ContradictionError as errors:
            self._contradictions += 1
            if self._contradictions > CONTRADICTIONS_MAX:
                self._halt(str(_first_leaf(errors)))
        finally:
            self.decider = None
            self._state = f"{HALTED}: {self._halted}" if self._halted else WAITING

    def _halt(self, problem: str) -> None:
        """A state rebuilt from the log contradicts it again: admit nobody until a person has looked."""
        self._halted = problem
        HALTED_GAUGE.set(1)
        log.error("admission is stopped", problem=problem)

    async def _serve_term(self) -> None:
        self._state = f"{HALTED}: {self._halted}" if self._halted else READING
        decider = self._new_decider()
        term = Term(
            bus=self._bus,
            decider=decider,
            now=self._now,
            audit_seconds=self._audit_seconds,
            on_audit_passed=self._on_audit_passed,
            metrics=self._metrics,
            halted=self._halted,
            forget_seconds=self._forget_seconds,
        )
        async with asyncio.TaskGroup() as group:
            await term.begin(group)
            group.create_task(QueryResponder(bus=self._bus, decider=decider).serve())
            group.create_task(term.watch_log_fullness(self._on_log_full))
            group.create_task(term.delete_ended())
            if not self._halted:
                self._state = "deciding"
            self.decider = decider
            await term.decide_until_cancelled()

    def _on_audit_passed(self) -> None:
        self._contradictions = 0

    def _on_log_full(self, why: str) -> None:
        if not self._halted:
            self._state = f"admitting nobody: {why}" if why else "deciding"


def _first_leaf(error: BaseException) -> BaseException:
    """The first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
