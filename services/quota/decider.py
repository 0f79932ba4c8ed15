"""Turns messages into facts for the engine, and the engine's decisions into messages.

It has no clock and does no I/O: a term feeds it with messages in the order of their arrival, and
publishes the decisions that it returns.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

import structlog

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import (
    Evict,
    EvictionRequested,
    Fact,
    QuotaHeld,
    Recheck,
    Reserve,
    Wait,
    WorkloadDrained,
    WorkloadFinished,
    WorkloadGone,
    WorkloadRunning,
)
from services.quota.held_back import HeldBack
from services.quota.lifecycle.timers import LifecycleTimers
from services.quota.lifecycle.workload import LifecycleRules
from services.quota.metrics.service import ISOLATED
from services.quota.policy import policy_of
from services.quota.publishing.queue_status import QueueStatusPublisher, Status
from services.quota.publishing.reasons import ReasonSchedule
from services.quota.settings import QuotaSettings
from services.quota.trust.check_answers import CheckAnswers
from services.quota.trust.outcomes import is_believed
from services.quota.unlisted import UnlistedFacts
from services.quota.wire import inbound, outbound
from services.quota.wire.ignored import IgnoredObjects
from services.quota.wire.workloads import bounded, identity, workload_changed
from shared.contracts.kube.numbers import is_at_least
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.reasons import RELEASE_REFUSED
from shared.contracts.refs import ObjectRef, WorkloadRef
from shared.settings.configuration import Configuration
from shared.telemetry import probes

log = structlog.get_logger(__name__)


class Decider:
    """The state of one term: the engine, and of each workload the last state and the last decision."""

    def __init__(
        self,
        settings: QuotaSettings,
        configuration: Configuration | None = None,
        *,
        follows: bool = False,
    ) -> None:
        """`follows`: another process decides. What this one does not believe it may not have read yet."""
        self._follows = follows
        configuration = configuration or Configuration()
        self._timers = LifecycleTimers(LifecycleRules(pods_ready=configuration.pods_ready))
        self._on_bypass, self._on_missed = settings.on_bypass, settings.on_missed
        self.engine = QuotaEngine(policy_of(configuration, settings.fair_sharing))
        """For queries, which must not change it."""

        self._states: dict[WorkloadRef, WorkloadState] = {}
        self._admissions: dict[WorkloadRef, Admission] = {}
        self._suspended_versions: dict[WorkloadRef, str] = {}
        """Resource version of the job after its eviction was carried out."""

        self._refused_releases: dict[WorkloadRef, tuple[str, int, str]] = {}
        """(uid, generation, message) of a release that the cluster refused."""

        self._deleted_objects: dict[WorkloadRef, str] = {}
        """Uid of the deleted Workload object that caused the last eviction for such a reason."""

        self._checks = CheckAnswers(is_known=self.is_known, counts=not follows)
        self._adopted: dict[WorkloadRef, QuotaHeld] = {}
        """Admissions that only the cluster has on record, until they are on the log again."""

        self._queue_status = QueueStatusPublisher()
        self._reasons = ReasonSchedule(settings.reason_delay_seconds)
        self._synced: set[str] = set()
        self._unlisted = UnlistedFacts()
        self.held_back = HeldBack()
        self.ignored = IgnoredObjects()
        self.admission_stopped = ""
        """Why nobody is admitted at present, in words; empty: admission goes on."""

        self._has_new_facts = False
        """A fact came since the last call of `decide`."""

        self._samples = 0
        """`QuotaEngine.samples_taken` at the last call of `decide`."""

    # --- in ----------------------------------------------------------------------------------------

    def apply(self, message: Message) -> str | None:
        """Apply one message of an input, a decision excepted; return why it cannot be used, or None.

        A message that fails harms its own workload only: that is held back, and everything goes on.
        """
        try:
            self._apply(message)
        except Exception as error:  # noqa: BLE001 - it is logged, and harms its workload only
            return self._isolate(message, error)
        return None

    def _apply(self, message: Message) -> None:
        match message:
            case Observed():
                self._on_observed(message)
            case Synced():
                self._on_synced(message)
            case WorkloadState():
                self._on_workload(message)
            case CheckState():
                for fact in self._checks.facts(message):
                    self._apply_fact(fact)
            case Outcome():
                self._on_outcome(message)
            case _:
                raise AssertionError(f"{message.type} is no input")

    def _on_synced(self, synced: Synced) -> None:
        """Everything of that cluster is listed: from now on decide for it."""
        if synced.cluster in self._synced:
            return
        self._synced.add(synced.cluster)
        for fact in self._unlisted.pop(synced.cluster):
            self.engine.apply(fact)
        for admission in self._admissions.values():
            holds = admission.cluster == synced.cluster and admission.state in HOLDING
            if holds and not self.is_known(admission.ref):  # It ended unwatched.
                probes.GONE_WHILE_AWAY.fired += 1
                self.engine.apply(WorkloadGone(**identity(admission)))

    def on_sent(self, admission: Admission) -> None:
        """Record the number that a decision was sent with: outcomes name it."""
        if (last := self._admissions.get(admission.ref)) and last.uid == admission.uid:
            self._admissions[admission.ref] = admission

    def restore(self, admission: Admission) -> str | None:
        """Apply a decision that is on the log already; return why it cannot be used, or None."""
        is_over = admission.state == "released" or not self.is_known(admission.ref)
        last = self._admissions.get(admission.ref) if is_over and not self._follows else None
        try:
            fact = outbound.restored_fact(admission, last)
        except Exception as error:  # noqa: BLE001 - it is logged, and harms its workload only
            return self._isolate(admission, error)
        self._admissions[admission.ref] = admission
        self._timers.restore(admission.ref, admission)
        if isinstance(fact, WorkloadGone):
            self._forget(admission.ref)
        if fact is not None:
            self._apply_fact(fact)
        return None

    def _isolate(self, message: Message, error: Exception) -> str:
        log.error("isolated a message that fails", subject=message.subject, exc_info=error)
        why = f"{type(error).__name__}: {error}"
        ISOLATED.labels(stream=message.stream).inc()
        probes.ISOLATED.fired += 1
        if isinstance(message, WorkloadState | Admission):
            self.hold_back(message.ref, message.stream, why)
        return why

    def hold_back(self, ref: WorkloadRef, stream: str, why: str | None) -> None:
        """Admit the workload no more, because its message on `stream` cannot be used; None: it can."""
        if why is None and not self.held_back.lift(ref, stream):
            return
        if why is not None:
            self.held_back.add(ref, stream, why)
        if (state := self._states.get(ref)) is not None:
            try:
                self._apply_workload_changed(state)
            except Exception:
                log.exception("isolated a state that fails", subject=state.subject)

    # --- out ---------------------------------------------------------------------------------------

    def decide(self, now: datetime, *, admit: bool = True) -> Iterator[Admission]:
        """Decide everything that can be decided; yield the messages to publish, in order.

        Without `admit` nobody gets quota, and only workloads that lost theirs learn a reason.
        """
        changed_by_time = [*self._apply_elapsed_time(now)]
        decisions = self.engine.decide(inbound.nanoseconds(now), admit=admit)
        probes.CLAIM_KEPT.fired += self.engine.drain_claims_kept()
        if decisions or self._has_new_facts or self.engine.samples_taken != self._samples:
            self._queue_status.schedule(now)
        self._has_new_facts, self._samples = False, self.engine.samples_taken
        for decision in decisions:
            ref = outbound.ref_of(decision)
            changed = self._timers.apply_decision(ref, decision, now)
            held = self._adopted.get(ref)
            if held is not None and decision.uid == held.uid:
                # The decision is about what is not on the log yet.
                yield from self._republish(ref, now)
            if isinstance(decision, Wait):
                urgent = changed or self._holds_quota(ref)
                self._reasons.enqueue(ref, decision, now, at_once=urgent)
                continue
            self._reasons.forget(ref)
            if isinstance(decision, Reserve):
                self._reasons.count_admission()
            fields: outbound.Fields | None = outbound.decision_fields(decision, now)
            if isinstance(decision, Recheck):
                fields = outbound.rechecked_fields(self._admissions.get(ref), decision)
            admission = None if fields is None else self._complete(ref, fields)
            if isinstance(decision, Evict) and decision.deactivate and ref in self._states:
                self._apply_workload_changed(self._states[ref])
            if admission is not None:
                yield admission
        if admit:
            self._reasons.refill(self.engine, now)
        for ref in changed_by_time:
            # A reason that is published anyway carries the change as well.
            if not self._reasons.expedite(ref):
                yield from self._republish(ref, now)
        yield from self._due_reasons(now, everybody=admit)

    def _apply_elapsed_time(self, now: datetime) -> Iterator[WorkloadRef]:
        """Request what timers demand of the engine; yield workloads whose lifecycle may have changed."""
        yield from [ref for ref in self._adopted if ref.cluster in self._synced]
        yield from self._timers.apply_observations(now)
        for ref, request in self._timers.due_timers(now):
            if request is None:
                yield ref
            else:
                self._apply_fact(request)

    def _republish(self, ref: WorkloadRef, now: datetime) -> Iterator[Admission]:
        """The last decision with the present lifecycle, if that differs from what is published."""
        last, state = self._admissions.get(ref), self._states.get(ref)
        if state is None:
            return
        held = self._adopted.pop(ref, None)
        if last is not None and (held is None or held.uid != state.uid or last.uid == state.uid):
            if last.uid != state.uid or last.state == "released":
                return
            fields = outbound.admission_fields(last) | {"decided_at": now}
        elif held is not None and held.uid == state.uid:
            fields = outbound.held_fields(held, now)
            fields["checks"] = self.engine.required_checks(state.cluster, ref.path)
        else:
            return
        if (admission := self._complete(ref, fields)) is not None:
            yield admission

    def queue_statuses(self, now: datetime) -> Iterator[Status]:
        """Yield each status of a queue or cohort that changed, once a second at most."""
        return self._queue_status.changed_statuses(self.engine, sorted(self._synced), now)

    @property
    def synced(self) -> Collection[str]:
        """Clusters that were listed to the end: for them decisions are made."""
        return self._synced

    def states(self) -> Iterable[WorkloadState]:
        """Every known workload, finished ones included."""
        return self._states.values()

    def last_decision(self, state: WorkloadState) -> Admission | None:
        """The last decision about this workload; None: there is none for its uid."""
        last = self._admissions.get(state.ref)
        return last if last is not None and last.uid == state.uid else None

    def checks_of(self, state: WorkloadState) -> dict[str, CheckState]:
        """The latest state of each admission check of this workload, by name."""
        return self._checks.of(state.ref, state.uid)

    def state_of(self, admission: Admission) -> WorkloadState | None:
        """The workload of a decision; None: it is gone."""
        return self._states.get(admission.ref)

    def is_known(self, ref: WorkloadRef) -> bool:
        """Whether the workload exists, as far as anybody can tell."""
        return ref in self._states or self.held_back.why(ref) is not None

    def is_over(self, ref: WorkloadRef) -> bool:
        """Whether the workload is gone, and nothing of it is needed any more."""
        return ref.cluster in self._synced and not (self.is_known(ref) or self._holds_quota(ref))

    def seconds_to_next(self, now: datetime) -> float | None:
        """Seconds until `decide` has work even without a new fact; None: never."""
        ticks = (self._queue_status.next_at(now), self._reasons.next_at(now))
        times = [(tick - now).total_seconds() for tick in ticks if tick is not None]
        if (next_at := self._timers.next_at()) is not None:
            times.append((next_at - now).total_seconds())
        if (at := self.engine.next_at()) is not None:
            times.append((at - inbound.nanoseconds(now)) / 1e9)
        return max(0.0, min(times)) if times else None

    # --- inputs, one by one ------------------------------------------------------------------------

    def _apply_fact(self, fact: Fact, about: ObjectRef | None = None) -> None:
        """Apply a fact. `about`: the object that it says everything of, so that it replaces earlier ones."""
        self._has_new_facts = True
        if fact.cluster in self._synced:
            self.engine.apply(fact)
        else:
            probes.HELD_UNTIL_SYNC.fired += 1
            self._unlisted.add(fact, about)

    def _on_observed(self, observed: Observed) -> None:
        if (facts := self.ignored.facts(observed)) is None:
            return
        for fact in facts:
            self._apply_fact(fact, about=observed.ref)
        for fact in self._checks.observe(observed, self._states.values()):
            self._apply_fact(fact)

    def _on_workload(self, state: WorkloadState) -> None:
        state = bounded(state)
        ref = state.ref
        if state.phase not in ENDED_PHASES:
            inbound.nanoseconds(state.created_at)  # Raises for what no later step could use.
        self.held_back.on_workload(state, self._states.get(ref))
        admission = outbound.last_that_counts(self._admissions, state)
        if admission is not None and admission.state in HOLDING and admission.uid != state.uid:
            probes.EARLIER_UID_GONE.fired += 1
            self._apply_fact(WorkloadGone(**identity(admission)))
        if state.phase in ENDED_PHASES:
            self._timers.forget(ref)
        if state.phase == "gone":
            self._forget(ref)
            self._apply_fact(WorkloadGone(**identity(state)))
            return
        self._states[ref] = state
        if state.phase == "finished":
            self._apply_fact(WorkloadFinished(**identity(state)))
            return
        self._timers.observe(ref, state)
        self._apply_workload_changed(state)
        adopted = outbound.adopted_holding(state, admission)
        if adopted is not None:
            probes.ADOPTED.fired += 1
            self._adopted[ref] = adopted
            self._reasons.forget(ref)  # It waits no more.
            self._apply_fact(adopted)
        # Only what holds quota can be evicted.
        if (holding := adopted or admission) is not None:
            self._evict_if_tampered(state, holding)
        why = None
        if adopted is None:
            why = outbound.bypass_cause(state, admission, self._on_bypass, self._on_missed)
        if state.pods_active:
            reason = outbound.uncounted_reason(why, state, admission, self._on_bypass)
            at = inbound.nanoseconds(state.created_at)
            self._apply_fact(WorkloadRunning(**identity(state), at=at, eviction_reason=reason))
        if why is not None:  # The engine counts it already.
            probes.BYPASS_FOUND.fired += 1
            self._evict(state, *why, at=state.created_at)
        for check in self._checks.recorded_facts(state):
            self._apply_fact(check)
        self._drain(ref)

    def _forget(self, ref: WorkloadRef) -> None:
        """Keep nothing of a workload that is gone, but the decision by which it holds quota."""
        if not self._holds_quota(ref):
            self._admissions.pop(ref, None)
        self._reasons.forget(ref)
        of_workloads: tuple[dict[WorkloadRef, Any], ...] = (
            *(self._states, self._adopted, self._suspended_versions),
            *(self._refused_releases, self._deleted_objects),
        )
        for known in of_workloads:
            known.pop(ref, None)
        self._checks.forget(ref)

    def _apply_workload_changed(self, state: WorkloadState) -> None:
        ref = state.ref
        refused = self._refused_releases.get(ref)
        if refused is not None and refused[:2] != (state.uid, state.generation):
            del self._refused_releases[ref]
            refused = None
        why, held_back = refused and refused[2], self.held_back.why(ref)
        fact = workload_changed(state, refused=why, held_back=held_back)
        self._apply_fact(self._timers.complete_fact(ref, state, fact))

    def _evict_if_tampered(self, state: WorkloadState, holding: Admission | QuotaHeld) -> None:
        """Evict a workload that was changed without quota; for a deleted object only once."""
        ignores = self.engine.policy.ignore_undeclared
        why = outbound.eviction_cause(state, holding, ignore_undeclared=ignores)
        known = state.deleting and self._deleted_objects.get(state.ref) == state.deleting
        if why is None or known:
            return
        self._deleted_objects[state.ref] = state.deleting
        self._evict(state, *why, at=state.created_at)

    def _on_outcome(self, outcome: Outcome) -> None:
        ref = outcome.ref
        admission, state = self._admissions.get(ref), self._states.get(ref)
        if admission is None or state is None or outcome.uid != state.uid:
            return
        if not is_believed(outcome, admission, counts=not self._follows):
            return
        if outcome.action == "suspend" and outcome.result == "applied":
            self._suspended_versions[ref] = outcome.version
            self._drain(ref)
        elif outcome.action == "release" and outcome.result == "refused":
            self._on_release_refused(state, outcome)
        elif outcome.action == "hold" and self.held_back.on_outcome(outcome):
            self._apply_workload_changed(state)

    def _on_release_refused(self, state: WorkloadState, outcome: Outcome) -> None:
        """Wait until the job's requests change; what never started gives its quota back at once."""
        probes.RELEASE_REFUSED.fired += 1
        text = f"{RELEASE_REFUSED}: {outcome.message}"
        self._refused_releases[state.ref] = (state.uid, state.generation, text)
        self._apply_workload_changed(state)
        self._evict(state, RELEASE_REFUSED, outcome.message, at=outcome.at)
        if state.held and not state.pods_active:
            self._apply_fact(WorkloadDrained(**identity(state)))

    def _evict(self, state: WorkloadState, reason: str, message: str, *, at: datetime) -> None:
        self._apply_fact(
            EvictionRequested(
                **identity(state),
                reason=reason,
                message=message,
                at=inbound.nanoseconds(at),
            )
        )

    def _drain(self, ref: WorkloadRef) -> None:
        """Release an evicted workload's quota once its suspended state was observed (ADR 4)."""
        state, admission = self._states.get(ref), self._admissions.get(ref)
        if state is None or admission is None:
            return
        if admission.unplanned and admission.state == "admitted":
            if state.held and not state.pods_active:
                self._apply_fact(WorkloadDrained(**identity(state)))
            return
        version = self._suspended_versions.get(ref)
        if version is None or admission.state != "evicted" or state.pods_active or not state.held:
            return
        if not is_at_least(state.version, version):
            probes.DRAIN_AWAITED.fired += 1
            return
        del self._suspended_versions[ref]
        self._apply_fact(WorkloadDrained(**identity(state)))

    def _due_reasons(self, now: datetime, *, everybody: bool) -> Iterator[Admission]:
        """The wait reasons that are due. Not `everybody`: only of workloads that lost their quota."""
        for ref, wait in self._reasons.due_reasons(now, None if everybody else self._holds_quota):
            if outbound.is_less_specific(wait, self._admissions.get(ref)):
                continue
            if admission := self._complete(ref, outbound.decision_fields(wait, now)):
                yield admission

    def _holds_quota(self, ref: WorkloadRef) -> bool:
        """Whether it has quota by the last message; a wait reason then says that it lost it."""
        last = self._admissions.get(ref)
        return last is not None and last.state in HOLDING

    def _complete(self, ref: WorkloadRef, fields: outbound.Fields) -> Admission | None:
        """The whole message of a decision; None if the last message said the same.

        Adds what the engine does not know: the lifecycle, the workload's own fields, the spoke, and
        what the decision takes over from the one before.
        """
        last, state = self._admissions.get(ref), self._states.get(ref)
        fields |= self._timers.admission_fields(ref, fields["uid"])
        if state is not None and state.uid == fields["uid"]:
            fields |= {
                "queue": state.queue,
                "priority": state.priority,
                "generation": state.generation,
                "traceparent": state.traceparent,
            }
        spoke = self._checks.spoke_of(ref, fields["uid"])
        if fields["state"] == "admitted" and spoke is not None:
            fields["spoke"] = spoke
            self._timers.mark_on_spoke(ref)
        follows = last is not None and last.uid == fields["uid"]
        if last is not None and follows:
            fields |= outbound.carried_over(last, fields)
        admission = Admission(**fields, term=0, number=0)
        if last is not None and follows and outbound.is_repetition(last, admission):
            probes.REPETITION_DROPPED.fired += 1
            return None
        if admission.state == "evicted" and (last is None or last.state != "evicted"):
            self._suspended_versions.pop(ref, None)
        self._admissions[ref] = admission
        self._checks.on_decision(admission, state)
        if admission.state == "released" and state is None:
            del self._admissions[ref]
        return admission
