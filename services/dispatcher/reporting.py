"""How each spoke stands, for people: conditions of MultiKueueClusters, counts, `sluice spokes`."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from prometheus_client import Gauge

from services.dispatcher.knowledge import Knowledge
from services.dispatcher.presence import Life
from services.dispatcher.weighing import Weighing
from shared.bus.port import Bus, Entry
from shared.contracts.messages import UndecodableError
from shared.contracts.quantities import format_amount
from shared.contracts.spokes import SCHEMA, SpokeCounts, SpokeState

__all__ = ["Reporting"]

log = structlog.get_logger(__name__)

CONNECTED = Gauge("multikueue_cluster_connected", "1 while a worker cluster is heard.", ["cluster"])
HELD = Gauge("multikueue_workloads", "Workloads by worker cluster and order.", ["cluster", "order"])

LATENCY_STEP: Final = 0.1
"""Smaller changes are no news."""


class Reporting:
    """Publishes what changed about a spoke."""

    def __init__(
        self,
        *,
        cluster: str,
        knowledge: Knowledge,
        weighing: Weighing,
        bus: Bus,
        now: Callable[[], datetime],
    ) -> None:
        self._weighing = weighing
        self._cluster = cluster
        self._knowledge = knowledge
        self._bus = bus
        self._now = now
        self._told: dict[str, SpokeState] = {}

    def recall(self, entry: Entry) -> None:
        """What was said last, by us or a predecessor."""
        try:
            state = SpokeState.decode(entry.data, entry.headers)
        except UndecodableError as error:
            log.warning("spoke state skipped", subject=entry.subject, error=str(error))
            return
        self._told[state.spoke] = state

    async def report(self) -> None:
        """Say what is new of each spoke."""
        counts = self._counts()
        for spoke in self._knowledge.configuration.known_spokes():
            state = self._state(spoke, counts.get(spoke, SpokeCounts()))
            CONNECTED.labels(cluster=spoke).set(1 if state.active else 0)
            for order, count in state.counts:
                HELD.labels(cluster=spoke, order=order).set(count)
            last = self._told.get(spoke)
            if last is None or last.model_copy(update={"at": state.at}) != state:
                self._told[spoke] = state
                await self._bus.publish(state)

    def _counts(self) -> dict[str, SpokeCounts]:
        numbers: dict[str, dict[str, int]] = {}
        for orders in self._knowledge.orders.values():
            for spoke, record in orders.items():
                what = record.message.state
                of = numbers.setdefault(spoke, {"offered": 0, "chosen": 0, "withdrawing": 0})
                if what != "withdrawn":
                    of[what] += 1
        for key, spoke in self._weighing.withdrawing():
            numbers[spoke]["withdrawing"] += 1
            del key
        return {spoke: SpokeCounts(**of) for spoke, of in numbers.items()}

    def _state(self, spoke: str, counts: SpokeCounts) -> SpokeState:
        knowledge = self._knowledge
        active, reason, message = self._condition(spoke)
        latency = knowledge.presence.latency_seconds(spoke)
        if latency is not None:
            latency = round(round(latency / LATENCY_STEP) * LATENCY_STEP, 1)
        free = knowledge.room.free(spoke)
        return SpokeState(
            cluster=self._cluster,
            spoke=spoke,
            active=active,
            reason=reason,
            message=message,
            counts=counts,
            latency_seconds=latency,
            failures=knowledge.presence.failures(spoke),
            free={name: format_amount(name, value) for name, value in sorted(free.items())},
            at=self._now(),
        )

    def _condition(self, spoke: str) -> tuple[bool, str, str]:
        """In Kueue's words where it has some (`research/kueue.md` 1.8)."""
        knowledge = self._knowledge
        why = knowledge.configuration.lost(spoke)
        if spoke == self._cluster:
            return False, "BadConfig", "The cluster is this hub itself"
        if why is not None:
            return False, "DeclaredLost", f"An operator declared it lost: {why}"
        beat = knowledge.presence.beat(spoke)
        if not knowledge.presence.understands(spoke) and beat is not None:
            text = f"It speaks version {beat.form}, this hub version {SCHEMA}: update the older one"
            return False, "SchemaMismatch", text
        match knowledge.presence.life(spoke):
            case Life.LIVE if not knowledge.configuration.is_listed(spoke):
                return False, "ClientConnectionFailed", "Its watcher has not listed it yet"
            case Life.LIVE if beat is not None and not beat.api:
                return True, "Active", "Connected; its patcher does not reach its API server"
            case Life.LIVE:
                return True, "Active", "Connected"
            case Life.LOST:
                text = "Nothing was heard of it for longer than the time-out"
                return False, "ClientConnectionFailed", text
            case _:
                return False, "ClientConnectionFailed", "Nothing is heard of it"
