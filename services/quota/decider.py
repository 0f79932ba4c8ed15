"""Turns messages into facts and decisions into messages, and remembers what neither side says twice.

It has no clock and does no I/O: `handlers` feeds it in the order of arrival and publishes what it returns.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import structlog

from services.quota.auditor import contradictions
from services.quota.engine import QuotaEngine
from services.quota.engine.facts import (
    Evict,
    EvictionRequested,
    Fact,
    QuotaHeld,
    Reserve,
    Wait,
    WorkloadDrained,
    WorkloadFinished,
    WorkloadGone,
    WorkloadRunning,
)
from services.quota.lifecycle.timers import LifecycleTimers
from services.quota.lifecycle.workload import LifecycleRules
from services.quota.policy import policy_of
from services.quota.publishing.queue_status import QueueStatusPublisher
from services.quota.publishing.reasons import ReasonSchedule
from services.quota.settings import QuotaSettings
from services.quota.wire import inbound, outbound
from shared.bus.port import Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.effects import CheckState, Outcome
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import RELEASE_REFUSED
from shared.settings.configuration import Configuration

__all__ = ["Decider"]

log = structlog.get_logger(__name__)

_Id = tuple[str, str]
"""Cluster and ``<namespace>/<name>``."""

_WATCHED: Final = (
    kinds.NAMESPACE,
    kinds.RESOURCE_FLAVOR,
    kinds.CLUSTER_QUEUE,
    kinds.LOCAL_QUEUE,
    kinds.COHORT,
    kinds.ADMISSION_CHECK,
)


class Decider:
    """One leadership's memory: the engine, and per workload the last state and the last decision."""

    def __init__(self, settings: QuotaSettings, configuration: Configuration | None = None) -> None:
        self._settings = settings
        configuration = configuration or Configuration()
        self._timers = LifecycleTimers(LifecycleRules(pods_ready=configuration.pods_ready))
        self._engine = QuotaEngine(policy_of(configuration, settings.fair_sharing))
        self._states: dict[_Id, WorkloadState] = {}
        self._admissions: dict[_Id, Admission] = {}
        self._suspended_versions: dict[_Id, str] = {}
        """Version that the job had after its eviction was carried out."""

        self._refused_releases: dict[_Id, tuple[str, int, str]] = {}
        """uid, generation and text of a release that the cluster refused."""

        self._deleted_objects: dict[_Id, str] = {}
        """Uid of the Workload object for whose deletion it was evicted last."""

        self._checks: dict[_Id, dict[str, CheckState]] = {}
        """What was said last of each workload by the owner of each check. For those who ask."""

        self._spokes: dict[_Id, tuple[str, str]] = {}
        """uid of a workload and the spoke that won it."""

        self._admitted_at: dict[_Id, datetime] = {}
        """Since when each admitted workload may run. For the span of its run."""

        self._adopted: dict[_Id, QuotaHeld] = {}
        """Admissions that only the cluster had on record, until they are on the log again."""

        self._queue_status = QueueStatusPublisher()
        self._reasons = ReasonSchedule(settings.reason_delay_seconds)
        self._synced: set[str] = set()
        self._facts_before_sync: dict[str, list[Fact]] = {}
        """Facts of clusters that are not synced: nothing is decided on half a picture."""

        self._has_new_facts = False
        """Some fact came since the last decision."""

        self._samples = 0
        """Of what LocalQueues used, those that were told."""

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """The observed kinds that decide about work."""
        return _WATCHED

    # --- in ----------------------------------------------------------------------------------------

    def apply(self, stream: str, entry: Entry) -> None:
        """Take in one message of an input. Raises `UndecodableError`."""
        match stream:
            case "OBSERVED":
                self._on_observed(entry.read(Observed))
            case "WORKLOADS":
                self._on_workload(entry.read(WorkloadState))
            case "CHECKS":
                self._on_check(entry.read(CheckState))
            case "OUTCOMES":
                self._on_outcome(entry.read(Outcome))
            case _:
                raise AssertionError(f"{stream} is no input")

    def apply_synced(self, synced: Synced) -> None:
        """Everything of that cluster has been listed: from now on decide for it."""
        if synced.cluster in self._synced:
            return
        self._synced.add(synced.cluster)
        for fact in self._facts_before_sync.pop(synced.cluster, []):
            self._engine.apply(fact)
        for (cluster, key), admission in list(self._admissions.items()):
            if cluster == synced.cluster and admission.state in HOLDING:
                self._release_if_gone(cluster, key, admission)

    def restore(self, admission: Admission) -> None:
        """Take in a decision that is on the log already."""
        self._admissions[_id(admission)] = admission
        self._timers.restore(_id(admission), admission)
        if admission.state in HOLDING:
            self._apply_fact(outbound.to_quota_held(admission))
        if admission.state == "admitted":
            self._admitted_at[_id(admission)] = admission.admitted_at or admission.decided_at

    # --- out ---------------------------------------------------------------------------------------

    def decide(self, now: datetime, *, admit: bool = True) -> Iterator[Admission]:
        """Decide what can be decided; yield what must be published, in order.

        Without `admit` nobody is given quota, and only those are told why who lost theirs.
        """
        retold = [*self._apply_elapsed_time(now)]
        decisions = self._engine.decide(inbound.nanoseconds(now), admit=admit)
        news = bool(decisions) or self._has_new_facts or self._engine.samples_taken != self._samples
        if news:
            self._queue_status.schedule(now)
        self._has_new_facts, self._samples = False, self._engine.samples_taken
        for decision in decisions:
            ident = (decision.cluster, decision.key)
            changed = self._timers.apply_decision(ident, decision, now)
            if isinstance(decision, Wait):
                self._reasons.enqueue(
                    ident, decision, now, at_once=changed or self._holds_quota(ident)
                )
                continue
            self._reasons.forget(ident)
            if isinstance(decision, Reserve):
                self._reasons.count_admission()
            admission = self._complete(ident, outbound.to_admission(decision, now))
            if isinstance(decision, Evict) and decision.deactivate and ident in self._states:
                self._apply_workload_changed(self._states[ident])
            if admission is not None:
                yield admission
        if admit:
            self._reasons.refill(self._engine, now)
        for ident in retold:
            if not self._reasons.expedite(ident):  # Else that reason tells the rest, too.
                yield from self._republish(ident, now)
        yield from self._due_reasons(now, everybody=admit)

    def _apply_elapsed_time(self, now: datetime) -> Iterator[_Id]:
        """Ask the engine for what time demands; yield whose life may have changed by itself."""
        yield from [ident for ident in self._adopted if ident[0] in self._synced]
        yield from self._timers.apply_observations(now)
        for ident, request in self._timers.due_timers(now):
            if request is None:
                yield ident
            else:
                self._apply_fact(request)

    def _republish(self, ident: _Id, now: datetime) -> Iterator[Admission]:
        """The last decision as it stands now, if that is worth a message."""
        last, state = self._admissions.get(ident), self._states.get(ident)
        if state is None:
            return
        if (held := self._adopted.pop(ident, None)) is not None and last is None:
            last = outbound.admission_of(held, now)
        if last is None or last.uid != state.uid or last.state == "released":
            return
        again = self._complete(ident, last.model_copy(update={"decided_at": now}))
        if again is not None:
            yield again

    def queue_statuses(self, now: datetime) -> Iterator[QueueStatus]:
        """Yield each queue's status that changed, for all queues at most once a second."""
        return self._queue_status.changed_statuses(self._engine, sorted(self._synced), now)

    def contradictions(self, on_log: Iterable[Admission]) -> list[str]:
        """Where what the log says of the synced clusters differs from what the engine believes."""
        return contradictions(self._engine, [a for a in on_log if a.cluster in self._synced])

    @property
    def engine(self) -> QuotaEngine:
        """For questions: whoever asks changes nothing."""
        return self._engine

    def states(self) -> Iterable[WorkloadState]:
        """Every workload that is known, the finished ones included."""
        return self._states.values()

    def last_decision(self, state: WorkloadState) -> Admission | None:
        """What was decided last about this life."""
        last = self._admissions.get(_id(state))
        return last if last is not None and last.uid == state.uid else None

    def checks_of(self, state: WorkloadState) -> dict[str, CheckState]:
        """What the owners of checks said last of this life."""
        said = self._checks.get(_id(state), {})
        return {name: check for name, check in said.items() if check.uid == state.uid}

    def state_of(self, admission: Admission) -> WorkloadState | None:
        """The workload of a decision."""
        return self._states.get(_id(admission))

    def seconds_to_next(self, now: datetime) -> float | None:
        """After how long `decide` has something to do without any new fact; None: never."""
        ticks = (self._queue_status.due_at, self._reasons.next_at(now))
        times = [(tick - now).total_seconds() for tick in ticks if tick is not None]
        if (next_at := self._timers.next_at()) is not None:
            times.append((next_at - now).total_seconds())
        if (at := self._engine.next_at()) is not None:
            times.append((at - inbound.nanoseconds(now)) / 1e9)
        return max(0.0, min(times)) if times else None

    def waiting_since(self, admission: Admission) -> datetime | None:
        """When the workload of a decision was created."""
        state = self._states.get(_id(admission))
        return None if state is None else state.created_at

    def ran_since(self, admission: Admission) -> datetime | None:
        """When a workload that is now released was admitted; None if it never was. Tells it once."""
        return self._admitted_at.pop(_id(admission), None)

    # --- inputs, one by one ------------------------------------------------------------------------

    def _apply_fact(self, fact: Fact) -> None:
        self._has_new_facts = True
        if fact.cluster in self._synced:
            self._engine.apply(fact)
        else:
            self._facts_before_sync.setdefault(fact.cluster, []).append(fact)

    def _on_observed(self, observed: Observed) -> None:
        try:
            facts = inbound.observed_facts(observed)
        except inbound.TranslateError as error:
            # The last good state of the object stays in force.
            log.warning("an object that cannot be used is ignored", error=str(error))
            return
        for fact in facts:
            self._apply_fact(fact)

    def _on_workload(self, state: WorkloadState) -> None:
        ident = _id(state)
        cluster, namespace, name, uid = state.cluster, state.namespace, state.name, state.uid
        admission = self._admissions.get(ident)
        if admission is not None and admission.state in HOLDING and admission.uid != uid:
            self._apply_fact(
                WorkloadGone(cluster=cluster, namespace=namespace, name=name, uid=admission.uid)
            )
        if state.phase in {"gone", "finished"}:
            self._timers.forget(ident)
        if state.phase == "gone":
            self._states.pop(ident, None)
            self._refused_releases.pop(ident, None)
            self._deleted_objects.pop(ident, None)
            self._suspended_versions.pop(ident, None)
            self._spokes.pop(ident, None)
            self._checks.pop(ident, None)
            self._apply_fact(WorkloadGone(cluster=cluster, namespace=namespace, name=name, uid=uid))
            return
        self._states[ident] = state
        if state.phase == "finished":
            self._apply_fact(
                WorkloadFinished(cluster=cluster, namespace=namespace, name=name, uid=uid)
            )
            return
        self._timers.observe(ident, state)
        self._apply_workload_changed(state)
        if admission is not None:
            self._evict_if_tampered(state, admission)
        # Where the log was lost, or never had it, what the cluster records is adopted.
        adopted = outbound.recorded_holding(state) if admission is None else None
        if adopted is not None:
            self._adopted[ident] = adopted
            self._reasons.forget(ident)  # Why it waited is not true any more.
            self._apply_fact(adopted)
        if state.pods_active:
            self._apply_fact(
                WorkloadRunning(
                    cluster=cluster,
                    namespace=namespace,
                    name=name,
                    uid=uid,
                    at=inbound.nanoseconds(state.created_at),
                )
            )
        self._drain(ident)

    def _apply_workload_changed(self, state: WorkloadState) -> None:
        ident = _id(state)
        refused = self._refused_releases.get(ident)
        if refused is not None and refused[:2] != (state.uid, state.generation):
            del self._refused_releases[ident]
            refused = None
        text = None if refused is None else refused[2]
        try:
            fact = inbound.workload_changed(state, refused=text)
        except inbound.TranslateError as error:
            log.warning("a workload that cannot be used is ignored", error=str(error))
            return
        self._apply_fact(self._timers.complete_fact(ident, state, fact))

    def _evict_if_tampered(self, state: WorkloadState, admission: Admission) -> None:
        """Put it out for what somebody did to it: for a deleted Workload object once."""
        why = outbound.eviction_cause(state, admission)
        if why is None or (
            state.deleting and self._deleted_objects.get(_id(state)) == state.deleting
        ):
            return
        self._deleted_objects[_id(state)] = state.deleting
        self._evict(state, *why, at=state.created_at)

    def _on_check(self, check: CheckState) -> None:
        self._checks.setdefault(_id(check), {})[check.check] = check
        if check.spoke:
            self._spokes[_id(check)] = (check.uid, check.spoke)
        self._apply_fact(outbound.to_check_fact(check))

    def _on_outcome(self, outcome: Outcome) -> None:
        ident = _id(outcome)
        admission = self._admissions.get(ident)
        state = self._states.get(ident)
        if admission is None or state is None or outcome.uid != state.uid:
            return
        if (outcome.term, outcome.number) < (admission.term, admission.number):
            return  # It is about an earlier decision.
        if outcome.action == "suspend" and outcome.result == "applied":
            self._suspended_versions[ident] = outcome.version
            self._drain(ident)
        elif outcome.action == "release" and outcome.result == "refused":
            self._on_release_refused(state, outcome)

    def _on_release_refused(self, state: WorkloadState, outcome: Outcome) -> None:
        """It never started, so its quota is free at once; it waits until it asks for something else."""
        text = f"{RELEASE_REFUSED}: {outcome.message}"
        self._refused_releases[_id(state)] = (state.uid, state.generation, text)
        self._apply_workload_changed(state)
        self._evict(state, RELEASE_REFUSED, outcome.message, at=outcome.at)
        self._drained(state)

    def _evict(self, state: WorkloadState, reason: str, message: str, *, at: datetime) -> None:
        self._apply_fact(
            EvictionRequested(
                cluster=state.cluster,
                namespace=state.namespace,
                name=state.name,
                uid=state.uid,
                reason=reason,
                message=message,
                at=inbound.nanoseconds(at),
            )
        )

    def _drain(self, ident: _Id) -> None:
        """An evicted workload gives its quota back once its suspended state was observed (ADR 4).

        One that ran unplanned does when it waits like any other: nobody else would ever start it.
        """
        state, admission = self._states.get(ident), self._admissions.get(ident)
        if state is None or admission is None:
            return
        if admission.unplanned and admission.state == "admitted":
            if state.held and not state.pods_active:
                self._drained(state)
            return
        version = self._suspended_versions.get(ident)
        if version is None or admission.state != "evicted":
            return
        if state.held and not state.pods_active and outbound.is_at_least(state.version, version):
            del self._suspended_versions[ident]
            self._drained(state)

    def _drained(self, state: WorkloadState) -> None:
        self._apply_fact(
            WorkloadDrained(
                cluster=state.cluster,
                namespace=state.namespace,
                name=state.name,
                uid=state.uid,
            )
        )

    def _release_if_gone(self, cluster: str, key: str, admission: Admission) -> None:
        """It holds quota, all was listed, and it is not there: it ended while nobody looked."""
        if (cluster, key) not in self._states:
            namespace, name = admission.namespace, admission.name
            self._engine.apply(
                WorkloadGone(cluster=cluster, namespace=namespace, name=name, uid=admission.uid)
            )

    # --- reasons -----------------------------------------------------------------------------------

    def _due_reasons(self, now: datetime, *, everybody: bool) -> Iterator[Admission]:
        """Tell those why, who have waited long enough to be told; nobody twice the same."""
        for ident, wait in self._reasons.due_reasons(now, None if everybody else self._holds_quota):
            admission = self._complete(ident, outbound.to_admission(wait, now))
            if admission is not None:
                yield admission

    def _holds_quota(self, ident: _Id) -> bool:
        """By what was said last it has quota, which a reason to wait takes back."""
        last = self._admissions.get(ident)
        return last is not None and last.state in HOLDING

    def _complete(self, ident: _Id, admission: Admission) -> Admission | None:
        """Complete a decision with what the engine does not weigh; None if it was said already."""
        last, state = self._admissions.get(ident), self._states.get(ident)
        more = self._timers.admission_fields(ident, admission)
        if state is not None and state.uid == admission.uid:
            more |= {
                "queue": state.queue,
                "priority": state.priority,
                "generation": state.generation,
                "traceparent": state.traceparent,
            }
        uid, spoke = self._spokes.get(ident, ("", None))
        if admission.state == "admitted" and uid == admission.uid:
            more["spoke"] = spoke
            self._timers.mark_on_spoke(ident)
        admission = admission.model_copy(update=more)
        if last is not None and last.uid == admission.uid:
            admission = outbound.carried_over(last, admission)
            if outbound.says_the_same(last, admission):
                return None
        if admission.state == "evicted" and (last is None or last.state != "evicted"):
            self._suspended_versions.pop(ident, None)
        elif admission.state == "admitted":
            self._admitted_at[ident] = admission.admitted_at or admission.decided_at
        self._admissions[ident] = admission
        if admission.state == "released" and ident not in self._states:
            del self._admissions[ident]
        return admission


def _id(message: WorkloadState | Admission | Outcome | CheckState) -> _Id:
    return message.cluster, f"{message.namespace}/{message.name}"
