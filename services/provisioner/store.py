"""What one term of leadership knows of its cluster: TaskRuns, host configuration, what was published.

Enters: messages of the bus. Leaves: the platforms that need a decision, and the inputs of that decision.
The store can be read again from the bus, so losing it loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from services.provisioner import wire
from services.provisioner.allocation.ledger import AllocationLedger
from services.provisioner.checks.reservations import Reservations
from services.provisioner.config.host_config import (
    NO_CONFIG,
    HostConfig,
    PlatformConfig,
    parse_host_config,
)
from services.provisioner.config.parameter_rules import ParameterRules
from services.provisioner.config.platforms import PlatformFormatError, is_platform
from services.provisioner.task_runs.requests import (
    HostRequest,
    TaskRunRef,
    has_ended,
    has_finalizer,
    to_host_request,
)
from shared.contracts.kube.kinds import CONFIG_MAP, TASK_RUN
from shared.contracts.kube.names import slot_resource
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.hosts import HostState, PlatformOffer, PlatformState
from shared.contracts.messages.observed import Observed

__all__ = ["PublishedState", "Store", "StoredRecord"]

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class PublishedState:
    """The last state that was published about a TaskRun, and its sequence in the log."""

    state: HostState
    sequence: int


@dataclass(slots=True, kw_only=True)
class StoredRecord:
    """A ledger and its sequence in the log, which the next version must follow."""

    ledger: AllocationLedger
    sequence: int


class Store:
    """The state of one term. Fields without underscore are read and written by `Term`."""

    def __init__(
        self,
        *,
        cluster: str,
        host_config: tuple[str, str],
        providers: frozenset[str],
        rules: Mapping[str, ParameterRules] | None = None,
        last_good: HostConfig = NO_CONFIG,
    ) -> None:
        """`host_config`: namespace and name of the ConfigMap. For the rest see `parse_host_config`."""
        self._cluster = cluster
        self._host_config = host_config
        self._providers = providers
        self._rules = rules or {}
        self.config = last_good
        self.config_found = False
        self.synced = False
        """True once the watcher has listed the cluster: a TaskRun that was not observed does not exist."""

        self.reservations = Reservations(cluster)
        self.offer: PlatformOffer | None = None
        """The offer that was published last."""

        self._offered: tuple[HostConfig, bool] | None = None
        """`config` and `config_found` for which `offer` is known to be up to date."""

        self.seal_key: str | None = None
        """Public key of the cluster's patcher; None until the patcher publishes one."""

        self._active: dict[str, HostRequest] = {}
        """By uid: TaskRuns that ask for a host and have not ended."""

        self._uids: dict[TaskRunRef, str] = {}
        """Uid of the active TaskRun with that name."""

        self._existing: set[TaskRunRef] = set()
        """TaskRuns in the cluster that ask or asked for a host, ended ones included."""

        self._by_platform: dict[str, dict[str, None]] = {}
        self._published: dict[TaskRunRef, PublishedState] = {}
        self._unreleased: dict[str, dict[TaskRunRef, None]] = {}
        """By platform: TaskRuns whose published state is not `released`."""

        self.records: dict[str, StoredRecord] = {}
        self._dirty: dict[str, None] = {}

    # --- input ---

    def apply_observed(self, observed: Observed) -> None:
        """Apply an observed TaskRun, ConfigMap or AdmissionCheck."""
        if observed.plural == TASK_RUN.plural:
            self._apply_task_run(observed)
        elif observed.plural == CONFIG_MAP.plural:
            self._apply_config_map(observed)
        elif self.reservations.apply_check(observed):
            self.mark_all_dirty()

    def apply_platform_state(self, state: PlatformState, sequence: int) -> None:
        """Apply the record of a platform, unless a newer one is known."""
        record = self.records.get(state.platform)
        if record is None or record.sequence < sequence:
            self.store_record(wire.to_ledger(state), sequence)
            self.mark_dirty(state.platform)

    def apply_host_state(self, state: HostState, sequence: int) -> None:
        """Apply the published state of a TaskRun, unless a newer one is known."""
        known = self.published(TaskRunRef(state.namespace, state.name))
        if known is None or known.sequence < sequence:
            self.store_published(state, sequence)
            self.mark_dirty(state.platform)

    def apply_offer(self, offer: PlatformOffer) -> None:
        """Apply the offer that was published last."""
        self.offer = offer
        self._offered = None

    def apply_admission(self, admission: Admission) -> None:
        """Apply a decision of quota: slots may have to be reserved or released."""
        resources = self.reservations.apply_admission(admission)
        for platform in (*self.config.platforms, *self.records) if resources else ():
            if slot_resource(platform) in resources:
                self.mark_dirty(platform)

    def _apply_task_run(self, observed: Observed) -> None:
        if observed.namespace is None:
            return
        ref = TaskRunRef(observed.namespace, observed.name)
        before = self._uids.get(ref)
        if before is not None and before != observed.uid:
            self._end(
                ref, before
            )  # A new TaskRun has the name, and the end of the old was not seen.
        if observed.deleted:
            self._existing.discard(ref)
            self._end(ref, observed.uid)
            return
        if observed.body is None:
            log.warning("TaskRun is too large to be read", namespace=ref.namespace, name=ref.name)
            return
        request = to_host_request(observed.body)
        if request is not None:
            self._existing.add(ref)
        if has_ended(observed.body):
            self._end(ref, observed.uid)
            if request is not None and ref not in self._published and has_finalizer(observed.body):
                self._publish_lost(request)
            return
        if request is None or self._active.get(observed.uid) == request:
            return
        self._uids[ref] = request.uid
        self._active[request.uid] = request
        self._by_platform.setdefault(request.platform, {})[request.uid] = None
        self.mark_dirty(request.platform)

    def _publish_lost(self, request: HostRequest) -> None:
        """The bus lost the state of a TaskRun that ended: let a release be published.

        Without it the patcher would never remove the finalizer.
        """
        lost = HostState(
            cluster=self._cluster,
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            platform=request.platform,
            state="failed",
            at=request.created_at,
        )
        self.store_published(lost, 0)
        self.mark_dirty(request.platform)

    def _end(self, ref: TaskRunRef, uid: str) -> None:
        request = self._active.pop(uid, None)
        if request is not None:
            self._by_platform[request.platform].pop(uid, None)
            self.mark_dirty(request.platform)
        if self._uids.get(ref) == uid:
            del self._uids[ref]
        published = self._published.get(ref)
        if published is not None and published.state.uid == uid:
            self.mark_dirty(published.state.platform)

    def _apply_config_map(self, observed: Observed) -> None:
        if (observed.namespace, observed.name) != self._host_config:
            return
        self.config_found = not observed.deleted
        if observed.deleted or observed.body is None:
            log.warning("host configuration is gone; the last good one stays")
        else:
            data = observed.body.get("data") or {}
            self.config = parse_host_config(
                data, available=self._providers, rules=self._rules, last_good=self.config
            )
            for what, error in self.config.errors.items():
                log.warning("host configuration", what=what, error=error)
        self.mark_all_dirty()

    # --- what this term published ---

    def store_record(self, ledger: AllocationLedger, sequence: int) -> None:
        """Store a ledger as it is in the log at `sequence`."""
        self.records[ledger.platform] = StoredRecord(ledger=ledger, sequence=sequence)

    def store_published(self, state: HostState, sequence: int) -> None:
        """Store the state of a TaskRun as it is in the log at `sequence`."""
        ref = TaskRunRef(state.namespace, state.name)
        before = self._published.get(ref)
        if before is not None:
            self._unreleased.get(before.state.platform, {}).pop(ref, None)
        self._published[ref] = PublishedState(state=state, sequence=sequence)
        if state.state != "released":
            self._unreleased.setdefault(state.platform, {})[ref] = None

    def pop_expired(self, before: datetime) -> list[PublishedState]:
        """Drop and return the states of TaskRuns that are deleted, and were released before `before`."""
        expired = [
            ref
            for ref, published in self._published.items()
            if published.state.state == "released"
            and published.state.at < before
            and ref not in self._existing
        ]
        return [self._published.pop(ref) for ref in expired]

    # --- which platforms need a decision ---

    def mark_dirty(self, platform: str) -> None:
        """Let the next round decide about `platform`."""
        self._dirty[platform] = None

    def mark_all_dirty(self) -> None:
        """Let the next round decide about every known platform."""
        known = (*self.records, *self._by_platform, *self._unreleased)
        for platform in (*known, *self.config.platforms):
            self.mark_dirty(platform)

    def pop_dirty(self) -> list[str]:
        """The platforms that need a decision now."""
        dirty, self._dirty = list(self._dirty), {}
        return dirty

    # --- inputs of a decision ---

    def changed_offer(self, now: datetime) -> PlatformOffer | None:
        """The offer to publish; None if the published one is up to date."""
        # Asked in every round: tuples compare by identity first, and the configuration rarely changes.
        current = (self.config, self.config_found)
        if self._offered == current:
            return None
        offer = PlatformOffer(
            cluster=self._cluster,
            configured=self.config_found,
            platforms={name: slot_resource(name) for name in sorted(self.config.platforms)},
            problems={
                name: text
                for name, text in sorted(self.config.errors.items())
                if name not in self.config.platforms and is_platform(name)
            },
            at=now,
        )
        if self.offer is not None and _content(self.offer) == _content(offer):
            self._offered = current
            return None
        return offer

    def published(self, ref: TaskRunRef) -> PublishedState | None:
        """The last published state of a TaskRun."""
        return self._published.get(ref)

    def requests(self, platform: str) -> list[HostRequest]:
        """All TaskRuns that ask for `platform` and have not ended."""
        return [self._active[uid] for uid in self._by_platform.get(platform, ())]

    def settled(self, requests: list[HostRequest]) -> frozenset[str]:
        """Uids of those `requests` whose TaskRun has its secret, or had it."""
        settled = set()
        for request in requests:
            published = self._published.get(request.ref)
            if (
                published is not None
                and published.state.uid == request.uid
                and published.state.state in {"ready", "failed", "released"}
            ):
                settled.add(request.uid)
        return frozenset(settled)

    def ended_but_unreleased(self, platform: str) -> list[PublishedState]:
        """Published states of TaskRuns of `platform` that have ended and are not `released` yet."""
        return [
            self._published[ref]
            for ref in self._unreleased.get(platform, ())
            if self._published[ref].state.uid not in self._active
        ]

    def ledger(self, platform: str) -> AllocationLedger:
        """The recorded ledger of `platform`, or an empty one."""
        record = self.records.get(platform)
        return (
            record.ledger if record else AllocationLedger(cluster=self._cluster, platform=platform)
        )

    def resolve(self, platform: str) -> PlatformConfig | str:
        """The configuration of `platform`, or the message with which its TaskRuns fail."""
        if not is_platform(platform):
            return str(PlatformFormatError())
        found = self.config.resolve(platform)
        if isinstance(found, str) and not self.config_found:
            namespace, name = self._host_config
            return f"failed to read host config: there is no ConfigMap {namespace}/{name}"
        return found

    def used_by_other_platforms(self, platform: str) -> dict[str, int]:
        """Host to the number of slots on it that other platforms hold: a host may change its platform."""
        used: dict[str, int] = {}
        for other, record in self.records.items():
            if other != platform:
                for slot in record.ledger.slots.values():
                    used[slot.host] = used.get(slot.host, 0) + 1
        return used


def _content(offer: PlatformOffer) -> tuple[object, ...]:
    return (offer.cluster, offer.configured, offer.platforms, offer.problems)
