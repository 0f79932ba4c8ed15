"""How spokes and checks stand, for people: conditions of their objects, counts, `sluice spokes`."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

import structlog
from prometheus_client import Gauge

from services.dispatcher.planning.situation import Weighing
from services.dispatcher.spokes.liveness import Life
from services.dispatcher.store import Knowledge
from shared.bus.port import Bus, Entry
from shared.contracts.kube.quantities import format_amount
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.spokes import (
    SCHEMA,
    CheckStanding,
    PairState,
    SpokeCounts,
    SpokeState,
)

__all__ = ["Reporting"]

log = structlog.get_logger(__name__)

CONNECTED = Gauge("multikueue_cluster_connected", "1 while a worker cluster is heard.", ["cluster"])
HELD = Gauge("multikueue_workloads", "Workloads by worker cluster and order.", ["cluster", "order"])
LATENCY = Gauge(
    "multikueue_cluster_latency_seconds", "From an offer to its copy, lately.", ["cluster"]
)
FAILURES = Gauge(
    "multikueue_cluster_failures", "Offers that came to nothing there, lately.", ["cluster"]
)

NO_PROFILES: Final = (
    "clusterProfileRef is not supported: name a kubeConfig, or leave clusterSource out and let the "
    "cluster's own watcher and patcher dial out"
)

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
        self._told: dict[str, SpokeState | CheckStanding] = {}
        """By subject."""

        self._pairs: dict[str, PairState] = {}
        self._measured: dict[str, None] = {}
        """Spokes that metrics speak of."""

    def recall(self, entry: Entry) -> None:
        """What was said last, by us or a predecessor; and what the hub's own pairs say."""
        kind = _MESSAGES[entry.subject.split(".", 2)[1]]
        try:
            said = entry.read(kind)
        except UndecodableError as error:
            log.warning("state skipped", subject=entry.subject, error=str(error))
            return
        if isinstance(said, PairState):
            self._pairs[said.spoke] = said
        else:
            self._told[entry.subject] = said

    async def report(self) -> None:
        """Say what is new of each spoke, and of each check that leads to some."""
        counts = self._counts()
        configuration = self._knowledge.configuration
        spokes = configuration.known_spokes()
        states = [self._state(spoke, counts.get(spoke, SpokeCounts())) for spoke in spokes]
        usable = {state.spoke for state in states if state.active}
        self._measure(states)
        standings = [self._standing(check, usable) for check in configuration.checks()]
        news: list[SpokeState | CheckStanding] = [*states, *standings]
        for said in news:
            last = self._told.get(said.subject)
            if last is None or last.model_copy(update={"at": said.at}) != said:
                self._told[said.subject] = said
                await self._bus.publish(said)

    def _measure(self, states: Collection[SpokeState]) -> None:
        for state in states:
            name = state.spoke
            CONNECTED.labels(cluster=name).set(1 if state.active else 0)
            FAILURES.labels(cluster=name).set(state.failures)
            if state.latency_seconds is not None:
                LATENCY.labels(cluster=name).set(state.latency_seconds)
            for order, count in state.counts:
                HELD.labels(cluster=name, order=order).set(count)
        for gone in self._measured.keys() - {state.spoke for state in states}:
            for gauge in (CONNECTED, FAILURES, LATENCY):
                gauge.remove_by_labels({"cluster": gone})
            HELD.remove_by_labels({"cluster": gone})
        self._measured = {state.spoke: None for state in states}

    def _standing(self, check: str, usable: Collection[str]) -> CheckStanding:
        """In Kueue's reasons: the queues of a check that leads nowhere are to admit nothing."""
        spokes = self._knowledge.configuration.spokes(check)
        inactive = [spoke for spoke in spokes.named if spoke not in usable]
        lists = (("Missing", spokes.missing), ("Inactive", inactive))
        named = [f"{what} clusters: {', '.join(names)}" for what, names in lists if names]
        if spokes.problem:
            active, reason, message = False, "BadConfig", spokes.problem
        elif not named:
            active, reason, message = True, "Active", "Every cluster can be used"
        elif len(inactive) < len(spokes.named):
            active, reason, message = True, "SomeActiveClusters", "; ".join(named)
        else:
            active, reason, message = False, "NoUsableClusters", "; ".join(named)
        return CheckStanding(
            cluster=self._cluster,
            check=check,
            active=active,
            reason=reason,
            message=message,
            at=self._now(),
        )

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
        source, pair = knowledge.configuration.source(spoke), self._pairs.get(spoke)
        if source == "clusterProfileRef":
            return False, "BadClusterProfile", NO_PROFILES
        if pair is not None and pair.problem:
            return False, "BadConfig", pair.problem
        beat = knowledge.presence.beat(spoke)
        if not knowledge.presence.understands(spoke) and beat is not None:
            text = f"It speaks version {beat.form}, this hub version {SCHEMA}: update the older one"
            return False, "SchemaMismatch", text
        original = knowledge.original(spoke)
        if original is not None:
            hub = " (this hub)" if original == self._cluster else ""
            return False, "BadConfig", f'It is the same cluster as "{original}"{hub}'
        match knowledge.presence.life(spoke):
            case Life.LIVE if not knowledge.presence.reaches(spoke):
                text = "Its patcher is heard, but does not reach its API server"
                return False, "ClientConnectionFailed", text
            case Life.LIVE if not knowledge.configuration.is_listed(spoke):
                return False, "ClientConnectionFailed", "Its watcher has not listed it yet"
            case Life.LIVE:
                return True, "Active", "Connected"
            case Life.LOST:
                text = "Nothing was heard of it for longer than the time-out"
                return False, "ClientConnectionFailed", text
            case _:
                text = "Nothing is heard of it"
                if source is not None and pair is None:
                    text += ", nor of `sluice run pairs`, which serves clusters with a kubeConfig"
                return False, "ClientConnectionFailed", text


_MESSAGES: Final[dict[str, type[SpokeState] | type[CheckStanding] | type[PairState]]] = {
    "spoke": SpokeState,
    "standing": CheckStanding,
    "pair": PairState,
}
"""What follows `sluice` in a subject, to what it says."""
