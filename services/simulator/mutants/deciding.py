"""Mutants of quota: terms, fences, and when quota is free."""

from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

from services.simulator.mutants.plant import Mutant
from shared.contracts.subjects import Stream

FAILOVER: Final = ("failover", "swarm")
END: Final = datetime(9999, 1, 1, tzinfo=UTC)


def without(stream: str) -> Any:
    """Publish to `stream` without any fence; a `Term` keeps its own."""

    def make(original: Any) -> Any:
        def headers(self: Any, message: Any, **expected: Any) -> Any:
            found = original(self, message, **expected)
            return {} if message.stream == stream and "term" not in message.subject else found

        return headers

    return make


def constant(value: Any) -> Any:
    """Answer `value`, whatever is asked."""
    return lambda _original: lambda *_args, **_options: value


def _reads_own_term(_original: Any) -> Any:
    def get(self: Any) -> int:
        return int(max(vars(self).get("_read_to", 0), vars(self).get("_last_sent", 0)))

    def set_(self: Any, value: int) -> None:
        vars(self)["_read_to"] = value

    return property(get, set_)


def _all_entries(_original: Any) -> Any:
    def latest(self: Any) -> Any:
        return deque(self._inbox)

    return latest


def _apply_at_once(_original: Any) -> Any:
    def apply_fact(self: Any, fact: Any) -> None:
        self._has_new_facts = True
        self._engine.apply(fact)

    return apply_fact


def _any_outcome(original: Any) -> Any:
    def on_outcome(self: Any, outcome: Any) -> None:
        original(self, outcome.replace(term=0, number=0, at=END))

    return on_outcome


def _drain_when_held(_original: Any) -> Any:
    def drain(self: Any, ref: Any) -> None:
        state, admission = self._states.get(ref), self._admissions.get(ref)
        if state is None or admission is None or admission.state != "evicted":
            return
        if state.held and not state.pods_active:
            self._drained(state)

    return drain


def _above_the_view(original: Any) -> Any:
    def next_term(inbox: Any, now: Any, *, above: int) -> int:
        del above
        return int(original(inbox, now, above=0))

    return next_term


def _forget_eviction(original: Any) -> Any:
    """Give quota back as soon as an eviction is decided."""

    def decision(self: Any, ref: Any, fields: Any) -> Any:
        made = original(self, ref, fields)
        state = self._states.get(ref)
        if made is not None and made.state == "evicted" and state is not None:
            self._drained(state)
        return made

    return decision


MUTANTS: Final = (
    Mutant(
        name="decisions carry no expected sequence",
        adr=2,
        where="shared.bus.order.fences:Fences.headers",
        make=without(Stream.ADMISSIONS),
        scenarios=FAILOVER,
    ),
    Mutant(
        name="decisions carry no fence by the term",
        adr=5,
        where="shared.bus.order.fences:Fences.on_stored",
        make=constant(None),
        scenarios=FAILOVER,
    ),
    Mutant(
        name="readers believe replaced leaders",
        adr=85,
        where="shared.bus.order.terms:Terms.is_void",
        make=constant(False),
        scenarios=("failover-replicated", "swarm"),
    ),
    Mutant(
        name="a leader decides before it has read its own term",
        adr=2,
        where="services.quota.term:Term._last_stored",
        make=_reads_own_term,
        of_instances=True,
        scenarios=("late-decisions", *FAILOVER),
    ),
    Mutant(
        name="a leader applies superseded entries",
        adr=2,
        where="services.quota.term:Term._latest_in_order",
        make=_all_entries,
        scenarios=FAILOVER,
    ),
    Mutant(
        name="workloads are read before decisions",
        adr=2,
        where="services.quota.term:INPUTS",
        make=lambda _original: (
            Stream.OBSERVED,
            Stream.WORKLOADS,
            Stream.CHECKS,
            Stream.OUTCOMES,
            Stream.ADMISSIONS,
        ),
        scenarios=FAILOVER,
    ),
    Mutant(
        name="a leader decides on a partial list",
        adr=2,
        where="services.quota.decider:Decider._apply_fact",
        make=_apply_at_once,
        scenarios=("failover", "relists", "swarm"),
    ),
    Mutant(
        name="quota is free before the suspended state was observed",
        adr=4,
        is_rare=True,
        where="services.quota.decider:is_at_least",
        make=constant(True),
        scenarios=("preemption", "lives", "swarm"),
    ),
    Mutant(
        name="quota is free without an outcome",
        adr=4,
        where="services.quota.decider:Decider._drain",
        make=_drain_when_held,
        scenarios=("preemption", "lives", "swarm"),
    ),
    Mutant(
        name="quota is free when an eviction is decided",
        adr=4,
        where="services.quota.decider:Decider._complete",
        make=_forget_eviction,
        scenarios=("preemption", "lives"),
    ),
    Mutant(
        name="outcomes of earlier decisions count",
        adr=4,
        where="services.quota.decider:Decider._on_outcome",
        make=_any_outcome,
        scenarios=("handovers", "lives", "swarm"),
    ),
    Mutant(
        name="admission goes on while the room for ends is used",
        adr=0,
        where="services.quota.term:Term._admits",
        make=lambda _original: property(lambda self: not self._halted),
        scenarios=("disks",),
    ),
    Mutant(
        name="clocks begin anew with each leader",
        adr=50,
        where="services.quota.decider:LifecycleTimers.restore",
        make=constant(None),
        scenarios=("lives",),
    ),
    Mutant(
        name="a back-off is forgotten by the next leader",
        adr=50,
        is_rare=True,
        where="services.quota.lifecycle.timers:LifecycleTimers.complete_fact",
        make=lambda _original: lambda *arguments: arguments[-1],
        scenarios=("lives",),
    ),
    Mutant(
        name="a new leader does not ask for the terms of the log",
        adr=120,
        where="services.quota.term:next_term",
        make=_above_the_view,
        scenarios=("two-leaders",),
    ),
)
"""In the order of the ADRs."""
