"""The worst moment for the begin of a term of quota: the leader before it still decides.

1. NATS forgets who leads quota. Another replica gets the lease, and asks all views: it is to read up to where
   the logs end now. One view answers late.
2. The leader before it does not know yet, and admits jobs. The view of the decisions is behind.
3. More urgent jobs are created. The new leader has read what it was to read, and begins its term.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from services.simulator.scenarios.load import PRIORITIES
from services.simulator.scenarios.swarm import load
from services.simulator.scenarios.system import System
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.checks import CheckState

LEASE: Final = "quota"
LEAST: Final = min(PRIORITIES, key=PRIORITIES.__getitem__)
MOST: Final = max(PRIORITIES, key=PRIORITIES.__getitem__)
ANSWERED_SECONDS: Final = 2.0
"""How late the view of `CHECKS` answers a new leader at most. No job here depends on a check."""

BEHIND_SECONDS: Final = 15.0
"""How late the view of the decisions is at most with those that the leader before makes meanwhile."""

SUCCEEDED_SECONDS: Final = 1.0
"""Replicas look for a free lease twice a second."""

ASKED_SECONDS: Final = 0.05
"""After which the new leader has asked all views."""

DECIDED_SECONDS: Final = (0.05, 0.3)
"""After which the leader before has decided about a job."""

JOBS: Final = 3
"""Of each urgency: about as many as a team's quota is for."""


class LateDecisions:
    """Lets NATS forget who leads quota, and gives that leader something to decide."""

    def __init__(self, system: System, create: Callable[[Object], Awaitable[None]]) -> None:
        """`create`: what users call to create a Job."""
        self._world = system.world
        self._server = system.server
        self._create = create
        self._random = Random(f"decisions/{system.world.seed}")
        self._number = 0

    async def begin_meanwhile(self) -> None:
        """Let a replica begin a term while the leader before it decides."""
        holder = self._server.holder(LEASE)
        if holder is None:
            return
        self._world.note(f"the lease of {LEASE} is forgotten, and its holder decides on")
        self._server.lags[CheckState.stream] = ANSWERED_SECONDS
        self._server.release(LEASE, holder)
        await self._until_another_leads(holder)
        self._server.lags[Term.stream] = BEHIND_SECONDS
        namespace = self._random.choice(load.TEAMS)
        for urgency in (LEAST, MOST):
            for _ in range(JOBS):
                self._number += 1
                await self._create(load.small_job(self._number, namespace, urgency))
            await asyncio.sleep(self._random.uniform(*DECIDED_SECONDS))
        await asyncio.sleep(ANSWERED_SECONDS)
        for log in (CheckState.stream, Term.stream):
            self._server.lags.pop(log, None)

    async def _until_another_leads(self, holder: str) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + SUCCEEDED_SECONDS
        while self._server.holder(LEASE) in {None, holder} and loop.time() < until:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(ASKED_SECONDS)
        await asyncio.sleep(ASKED_SECONDS)
