"""Publishes how usable each spoke and each MultiKueue check is: conditions, counts and metrics.

The hub's patcher writes the conditions into MultiKueueClusters and AdmissionChecks, and `sluice spokes`
shows them.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

from services.dispatcher.metrics import CONNECTED, FAILURES, LATENCY, WORKLOADS
from services.dispatcher.planning.situation import SituationReader
from services.dispatcher.spokes.liveness import Liveness
from services.dispatcher.store import Store
from shared.bus.port import Bus
from shared.contracts.kube.quantities import format_amount
from shared.contracts.messages.spokes import (
    SCHEMA,
    CheckCondition,
    PairState,
    SpokeCounts,
    SpokeState,
)

LATENCY_STEP_SECONDS: Final = 0.1
"""Latencies are rounded to this, so that a small change is not published."""


class SpokeStatusPublisher:
    """Publishes the statuses that changed since the last time."""

    def __init__(
        self,
        *,
        cluster: str,
        store: Store,
        situations: SituationReader,
        bus: Bus,
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._situations = situations
        self._bus = bus
        self._now = now
        self._published: dict[str, SpokeState | CheckCondition] = {}
        """By subject."""

        self._pairs: dict[str, PairState] = {}
        self._measured: dict[str, None] = {}
        """Spokes that have metrics."""

    def observe(self, message: SpokeState | CheckCondition | PairState) -> None:
        """Record a published status, or what keeps the hub from running a spoke's watcher and patcher."""
        if isinstance(message, PairState):
            self._pairs[message.spoke] = message
        else:
            self._published[message.subject] = message
        if isinstance(message, SpokeState):
            self._store.health.recall_identity(message.spoke, message.identity)

    async def publish(self) -> None:
        """Publish the status of each spoke and of each check, where it changed."""
        counts = self._counts()
        configuration = self._store.configuration
        spokes = configuration.known_spokes()
        states = [self._spoke_state(spoke, counts.get(spoke, SpokeCounts())) for spoke in spokes]
        usable = {state.spoke for state in states if state.active}
        self._measure(states)
        checks = [
            self._check_condition(check, usable) for check in configuration.multikueue_checks()
        ]
        messages: list[SpokeState | CheckCondition] = [*states, *checks]
        for message in messages:
            if not message.repeats(self._published.get(message.subject)):
                self._published[message.subject] = message
                await self._bus.publish(message)

    def _measure(self, states: Collection[SpokeState]) -> None:
        for state in states:
            name = state.spoke
            CONNECTED.labels(cluster=name).set(1 if state.active else 0)
            FAILURES.labels(cluster=name).set(state.failures)
            if state.latency_seconds is not None:
                LATENCY.labels(cluster=name).set(state.latency_seconds)
            for order, count in state.counts:
                WORKLOADS.labels(cluster=name, order=order).set(count)
        for removed in self._measured.keys() - {state.spoke for state in states}:
            for gauge in (CONNECTED, FAILURES, LATENCY, WORKLOADS):
                gauge.remove_by_labels({"cluster": removed})
        self._measured = {state.spoke: None for state in states}

    def _check_condition(self, check: str, usable: Collection[str]) -> CheckCondition:
        """The condition `Active` of a check, with Kueue's reasons. A queue with an inactive check stops."""
        spokes = self._store.configuration.spokes(check)
        inactive = [spoke for spoke in spokes.configured if spoke not in usable]
        lists = (("Missing", spokes.missing), ("Inactive", inactive))
        texts = [f"{what} clusters: {', '.join(names)}" for what, names in lists if names]
        if spokes.problem:
            active, reason, message = False, "BadConfig", spokes.problem
        elif not texts:
            active, reason, message = True, "Active", "Every cluster can be used"
        elif len(inactive) < len(spokes.configured):
            active, reason, message = True, "SomeActiveClusters", "; ".join(texts)
        else:
            active, reason, message = False, "NoUsableClusters", "; ".join(texts)
        return CheckCondition(
            cluster=self._cluster,
            check=check,
            active=active,
            reason=reason,
            message=message,
            at=self._now(),
        )

    def _counts(self) -> dict[str, SpokeCounts]:
        counts: dict[str, dict[str, int]] = {}
        for orders in self._store.orders.values():
            for spoke, record in orders.items():
                state = record.message.state
                of_spoke = counts.setdefault(spoke, {"offered": 0, "chosen": 0, "withdrawing": 0})
                if state != "withdrawn":
                    of_spoke[state] += 1
        for _, spoke in self._situations.withdrawing():
            counts[spoke]["withdrawing"] += 1
        return {spoke: SpokeCounts(**of_spoke) for spoke, of_spoke in counts.items()}

    def _spoke_state(self, spoke: str, counts: SpokeCounts) -> SpokeState:
        store = self._store
        primary = store.primary_name(spoke)
        active, reason, message = self._condition(spoke, primary)
        latency = store.health.latency_seconds(spoke)
        if latency is not None:
            latency = round(round(latency / LATENCY_STEP_SECONDS) * LATENCY_STEP_SECONDS, 1)
        free = store.capacity.free(spoke)
        return SpokeState(
            cluster=self._cluster,
            spoke=spoke,
            active=active,
            reason=reason,
            message=message,
            counts=counts,
            latency_seconds=latency,
            failures=store.health.failures(spoke),
            identity=None if primary is not None else store.health.cluster_uid(spoke),
            free={name: format_amount(name, value) for name, value in sorted(free.items())},
            at=self._now(),
        )

    def _condition(self, spoke: str, primary: str | None) -> tuple[bool, str, str]:
        """Status, reason and message of the condition `Active`.

        The reasons are Kueue's where Kueue has one (kubernetes-sigs/kueue@ff69552
        pkg/controller/admissionchecks/multikueue/multikueuecluster.go).
        """
        configuration, health = self._store.configuration, self._store.health
        lost = configuration.declared_lost(spoke)
        if spoke == self._cluster:
            return False, "BadConfig", "The cluster is this hub itself"
        if lost is not None:
            return False, "DeclaredLost", f"An operator declared it lost: {lost}"
        source, pair = configuration.cluster_source(spoke), self._pairs.get(spoke)
        if pair is not None and pair.problem:
            bad = "BadClusterProfile" if source == "clusterProfileRef" else "BadConfig"
            return False, bad, pair.problem
        beat = health.last_heartbeat(spoke)
        if not health.is_compatible(spoke) and beat is not None:
            text = f"It speaks version {beat.form}, this hub version {SCHEMA}: update the older one"
            return False, "SchemaMismatch", text
        if primary is not None:
            hub = "this hub" if primary == self._cluster else "known first"
            return False, "BadConfig", f'It is the same cluster as "{primary}" ({hub})'
        match health.liveness(spoke):
            case Liveness.LIVE if not health.reaches_api_server(spoke):
                text = "Its patcher is heard, but does not reach its API server"
                return False, "ClientConnectionFailed", text
            case Liveness.LIVE if not configuration.is_listed(spoke):
                return False, "ClientConnectionFailed", "Its watcher has not listed it yet"
            case Liveness.LIVE:
                return True, "Active", "Connected"
            case Liveness.LOST:
                text = "Nothing was heard of it for longer than the time-out"
                return False, "ClientConnectionFailed", text
            case _:
                text = "Nothing is heard of it"
                if source is not None and pair is None:
                    text += f", nor of `sluice run pairs`, which serves clusters with a {source}"
                return False, "ClientConnectionFailed", text
