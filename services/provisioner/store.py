"""What one term of leadership knows of its cluster: TaskRuns, host configuration, what was published.

Enters: messages of the bus. Leaves: the platforms that need a decision, and the inputs of that decision.
The store can be read again from the bus, so losing it loses nothing.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from services.provisioner import wire
from services.provisioner.allocation.ledger import AllocationLedger
from services.provisioner.allocation.ownership import (
    UNLISTED,
    RunAdmissions,
    host_limits,
    host_use,
    is_short,
    refused_results,
    with_returned,
)
from services.provisioner.allocation.results import Result
from services.provisioner.allocation.slots import UNLIMITED, HostLimits
from services.provisioner.checks.reservations import Reservations
from services.provisioner.config.host_config import (
    NO_CONFIG,
    HostConfig,
    LocalPlatform,
    PlatformConfig,
    parse_host_config,
)
from services.provisioner.config.parameter_rules import ParameterRules
from services.provisioner.config.platforms import PlatformFormatError, is_platform
from services.provisioner.task_runs.listed import ListedTaskRuns
from services.provisioner.task_runs.requests import (
    HostRequest,
    TaskRunRef,
    has_completed,
    has_ended,
    has_finalizer,
    to_host_request,
)
from shared.contracts.kube.kinds import CONFIG_MAP, PIPELINE_RUN, TASK_RUN
from shared.contracts.kube.names import slot_resource
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.hosts import HostState, PlatformOffer, PlatformState
from shared.contracts.messages.observed import Observed

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
        self.runs = RunAdmissions()
        self._listed = ListedTaskRuns()
        self._by_run: dict[tuple[str, str], dict[str, None]] = {}
        """Namespace and uid of a run to the active TaskRuns that name it as their owner."""

        self._limited: dict[str, None] = {}
        """Platforms with TaskRuns that wait because others of their namespace have hosts."""

        self.offer: PlatformOffer | None = None
        """The offer that was published last."""

        self._offered: tuple[HostConfig, bool] | None = None
        """`config` and `config_found` for which `offer` is known to be up to date."""

        self.seal_key: str | None = None
        """Public key of the cluster's patcher; None until the patcher publishes one."""

        self._active: dict[str, HostRequest] = {}
        """By uid: TaskRuns that ask for a host and have not ended."""

        self._completed: set[str] = set()
        """Uids of TaskRuns that ended with their pods, until that is published."""

        self._uids: dict[TaskRunRef, str] = {}
        """Uid of the active TaskRun with that name."""

        self._existing: set[TaskRunRef] = set()
        """TaskRuns in the cluster that ask or asked for a host, ended ones included."""

        self._by_platform: dict[str, dict[str, None]] = {}
        self._published: dict[TaskRunRef, PublishedState] = {}
        self._published_by_uid: dict[str, PublishedState] = {}
        self._unreleased: dict[str, dict[TaskRunRef, None]] = {}
        """By platform: TaskRuns whose published state is not `released`."""

        self.records: dict[str, StoredRecord] = {}
        self._dirty: dict[str, None] = {}

    @property
    def needs_runs(self) -> bool:
        """Whether something asks for hosts, or gives one back: runs and decisions matter to nothing else."""
        if self._active or self.reservations.are_requested or any(self._unreleased.values()):
            return True
        return any(record.ledger.returned for record in self.records.values())

    # --- input ---

    def apply_observed(self, observed: Observed) -> None:
        """Apply an observed TaskRun, PipelineRun, ConfigMap or AdmissionCheck."""
        if observed.plural == TASK_RUN.plural:
            self._apply_task_run(observed)
        elif observed.plural == PIPELINE_RUN.plural:
            uid = self._listed.observe(observed)
            if uid is not None:
                self._believe(observed.namespace or "", uid)
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

    def fence_record(self, known: StoredRecord, state: PlatformState, sequence: int) -> None:
        """Fence `known`, unless it was replaced meanwhile, by the log's last record (ADR 85)."""
        self.apply_platform_state(state, sequence)
        known.sequence = sequence

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
        """Apply a decision of quota: slots may have to be reserved or released, TaskRuns be believed."""
        self.runs.observe(admission)
        self._believe(admission.namespace, admission.uid)
        resources = self.reservations.apply_admission(admission)
        for platform in (*self.config.platforms, *self.records) if resources else ():
            if slot_resource(platform) in resources:
                self.mark_dirty(platform)

    def _believe(self, namespace: str, run_uid: str) -> None:
        """Look again at the TaskRuns that name a run."""
        for uid in self._by_run.get((namespace, run_uid), ()):
            self._active[uid] = self._with_workload(self._active[uid])
            self.mark_dirty(self._active[uid].platform)

    def _apply_task_run(self, observed: Observed) -> None:
        if observed.namespace is None:
            return
        ref = TaskRunRef(observed.namespace, observed.name)
        before = self._uids.get(ref)
        if before is not None and before != observed.uid:
            # A new TaskRun has the name, and the end of the old was not seen.
            self._end(ref, before)
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
            if has_completed(observed.body) and self._state_of(observed.uid) not in {
                None,
                "released",
            }:
                self._completed.add(observed.uid)
            self._end(ref, observed.uid)
            if request is not None and ref not in self._published and has_finalizer(observed.body):
                self._publish_lost(request)
            return
        if request is not None:
            request = self._with_workload(request)
        before_ = self._active.get(observed.uid)
        if request is None or before_ == request:
            return
        if before_ is not None:
            self._forget_run(before_)
        if request.run_uid:
            self._by_run.setdefault((request.namespace, request.run_uid), {})[request.uid] = None
        self._uids[ref] = request.uid
        self._active[request.uid] = request
        self._by_platform.setdefault(request.platform, {})[request.uid] = None
        self.mark_dirty(request.platform)

    def _with_workload(self, request: HostRequest) -> HostRequest:
        """`request` with the Workload of its run, if that was admitted and lists it, now or before."""
        known, published = self._active.get(request.uid), self._published.get(request.ref)
        workload = known.workload if known is not None else ""
        if not workload and published is not None and published.state.uid == request.uid:
            workload = published.state.workload
        if not workload and self._listed.lists(request.namespace, request.run_uid, request.name):
            workload = self.runs.workload_of(request.namespace, request.run_uid)
        return replace(request, workload=workload)

    def _forget_run(self, request: HostRequest) -> None:
        key = (request.namespace, request.run_uid)
        uids = self._by_run.get(key, {})
        uids.pop(request.uid, None)
        if not uids:
            self._by_run.pop(key, None)

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
        self._listed.forget(uid)
        if request is not None:
            self._forget_run(request)
            waiting = self._by_platform[request.platform]
            waiting.pop(uid, None)
            if not waiting:
                del self._by_platform[request.platform]
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
                log.warning("a part of the host configuration is refused", what=what, error=error)
        self.mark_all_dirty()

    # --- what this term published ---

    def store_record(self, ledger: AllocationLedger, sequence: int) -> None:
        """Store a ledger as it is in the log at `sequence`."""
        self.records[ledger.platform] = StoredRecord(ledger=ledger, sequence=sequence)
        # A TaskRun of that namespace may have given its host back.
        self._dirty.update(self._limited)
        self._limited.clear()

    def store_published(self, state: HostState, sequence: int) -> None:
        """Store the state of a TaskRun as it is in the log at `sequence`."""
        ref = TaskRunRef(state.namespace, state.name)
        before = self._published.get(ref)
        if before is not None:
            self._unreleased.get(before.state.platform, {}).pop(ref, None)
            self._published_by_uid.pop(before.state.uid, None)
        published = PublishedState(state=state, sequence=sequence)
        self._published[ref] = self._published_by_uid[state.uid] = published
        if state.state == "released":
            self._completed.discard(state.uid)
        else:
            self._unreleased.setdefault(state.platform, {})[ref] = None

    def expired(self, before: datetime) -> dict[str, PublishedState]:
        """The states, by subject, of TaskRuns that are deleted, and were released before `before`."""
        return {
            published.state.subject: published
            for ref, published in self._published.items()
            if published.state.state == "released"
            and published.state.at < before
            and ref not in self._existing
        }

    def drop(self, published: PublishedState) -> None:
        """Forget a state that has left the view, unless there is a newer one."""
        ref = TaskRunRef(published.state.namespace, published.state.name)
        if self._published.get(ref) is published:
            del self._published[ref]
            self._published_by_uid.pop(published.state.uid, None)

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
        if self.offer is not None and wire.content(self.offer) == wire.content(offer):
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

    def host_limits(
        self, platform: str, *, most: int, refused: bool, now: datetime
    ) -> tuple[dict[str, Result], HostLimits]:
        """Returns results of TaskRuns that get nothing new in this round, and limits for the others.

        `most`: hosts that TaskRuns have in one namespace at a time without the quota of a run, 0 for any
        number. `refused`: whether TaskRuns of no admitted run get none at all.
        """
        requests = self.requests(platform)
        settled = self.settled(requests)
        requests = [request for request in requests if request.uid not in settled]
        use = host_use((record.ledger for record in self.records.values()), self._workload_of)
        unlisted = {
            request.uid: UNLISTED
            for request in requests
            if request.uid not in use.holding and self._may_be_listed(request, now)
        }
        if isinstance(self.resolve(platform), LocalPlatform | str):
            return {**unlisted}, UNLIMITED  # Nothing is given away there.
        limits = host_limits(platform, requests, most=most, use=use, runs=self.runs)
        if is_short(requests, limits):
            self._limited[platform] = None
        results = refused_results(requests, refused=refused, runs=self.runs, holding=use.holding)
        return {**results, **unlisted}, limits

    def _may_be_listed(self, request: HostRequest, now: datetime) -> bool:
        """Whether a TaskRun names an admitted run that may still list it as one that it made."""
        if request.workload or not self.runs.workload_of(request.namespace, request.run_uid):
            return False
        return self._listed.may_list(request.uid, now)

    def _workload_of(self, uid: str) -> str:
        """The Workload of the admitted run that a TaskRun belongs, or belonged, to; empty for none."""
        request = self._active.get(uid)
        if request is not None:
            return request.workload
        published = self._published_by_uid.get(uid)
        return published.state.workload if published is not None else ""

    def with_returned(self, platform: str, ledger: AllocationLedger) -> AllocationLedger:
        """`ledger` with the slots that TaskRuns which end with it give back to quota."""
        use = host_use([ledger], self._workload_of)
        building = Counter(
            request.run
            for request in self.requests(platform)
            if request.workload
            and request.uid not in use.holding
            and self._state_of(request.uid) == "ready"
        )
        ended = self.ended_without_host(platform, ledger)
        if isinstance(self.resolve(platform), LocalPlatform):
            # Its pod is its host: one whose end Tekton does not tell may go on.
            ended = [state for state in ended if state.uid in self._completed]
        return with_returned(ledger, ended, use=use, runs=self.runs, building=building)

    def _state_of(self, uid: str) -> str | None:
        published = self._published_by_uid.get(uid)
        return published.state.state if published is not None else None

    def ended_without_host(self, platform: str, ledger: AllocationLedger) -> list[HostState]:
        """What was published of TaskRuns that have ended and hold nothing in `ledger` any more.

        A machine must be gone, not only ended.
        """
        holding = {*ledger.slots, *(m.holder for m in ledger.machines.values() if not m.shared)}
        return [
            published.state
            for published in self.ended_but_unreleased(platform)
            if published.state.uid not in holding
        ]

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
        known = None if record is None else record.ledger
        return known or AllocationLedger(cluster=self._cluster, platform=platform)

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
        others = (one.ledger for name, one in self.records.items() if name != platform)
        return Counter(slot.host for ledger in others for slot in ledger.slots.values())
