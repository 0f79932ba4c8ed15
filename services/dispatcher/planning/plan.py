"""Decides where a workload runs: a situation in, orders and the check's answer out. Pure.

Only the order `chosen` starts a copy, so a copy that was never chosen never ran. A chosen spoke is given
up only after it reports that the copy is gone (ADR 40).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from services.dispatcher.planning.nomination import Candidate, NominationRules, Offer, nominate
from services.dispatcher.planning.order_lifecycle import Event, OrderState
from services.dispatcher.spokes.copies import CopyPhase
from shared.telemetry import probes

NO_CLUSTER: Final = "No usable worker cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order to one spoke, and what the spoke reported about it."""

    state: OrderState
    started: bool = False
    """It was chosen before: the copy may have run."""

    removed: bool = False
    """The spoke reported that nothing of the copy is left, and no copy is observed."""

    refusal: str = ""
    """Why the spoke cannot create the copy, for this reservation; empty if it can."""

    age_seconds: float = 0.0
    """Since the offer."""

    spec_change_sent: bool = False
    """The order contains all fields that the user changed."""

    priority_changed: bool = False
    """The job has another priority class or value than the order contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that a plan for one workload depends on."""

    wanted: bool
    """The hub holds quota for it."""

    awaits_check: bool
    """Its quota is reserved, and quota waits for the answer of the MultiKueue check."""

    pending_checks: tuple[str, ...] = ()
    """Other checks of this reservation that are not ready: until they are, it must start nowhere."""

    rules: NominationRules = field(default_factory=NominationRules)
    candidates: tuple[Candidate, ...] = ()
    """Spokes that may be used now, in the order of the configuration."""

    external: tuple[str, ...] = ()
    """Spokes that another program nominated."""

    problem: str = ""
    """Why spokes are not among `candidates`."""

    orders: Mapping[str, Order] = field(default_factory=dict)
    """By spoke."""

    copies: Mapping[str, CopyPhase] = field(default_factory=dict)
    """By spoke: copies of these orders, in the order in which they were observed."""

    orphans: Mapping[str, CopyPhase] = field(default_factory=dict)
    """By spoke: copies without a known order, or whose order is withdrawn and reported as gone."""

    collects_orphans: bool = True
    """Whether orphans of a workload that is not wanted are deleted too."""

    evictions: Mapping[str, str] = field(default_factory=dict)
    """By spoke: why it took the quota back."""

    recorded_winner: str | None = None
    """The spoke in the recorded answer to this reservation."""

    silent: frozenset[str] = frozenset()
    """Spokes without a heartbeat for longer than the time-out; their copies may run."""

    stopped: frozenset[str] = frozenset()
    """Spokes whose copies do not run: an operator declared them lost, or their leases ran out."""

    spec_change_requested: bool = False
    """The job's user changed its spec, to stop or cancel it."""

    succeeded_on: str | None = None
    """The spoke where it succeeded while it was being withdrawn. It must not run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The state of the MultiKueue check."""

    state: Literal["Pending", "Ready", "Retry"]
    message: str
    spoke: str | None = None
    requeues_immediately: bool = False
    """Of a Retry: the workload may queue again without a delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to publish now: the answer first, because a restart continues from it."""

    answer: Answer | None = None
    """None if quota waits for no answer."""

    events: Mapping[str, Event] = field(default_factory=dict)
    """By spoke."""

    recheck_seconds: float | None = None
    """When to plan again even if nothing changes; None: never."""


def plan(situation: Situation) -> Plan:
    """The next step. With this plan carried out, the next plan changes nothing."""
    step = _step(situation)
    # Any other order contains the new priority as well.
    return replace(step, events={**_priority_changes(situation), **step.events})


def _priority_changes(situation: Situation) -> dict[str, Event]:
    """Live orders with an outdated priority, unless their copy is finished or being deleted."""
    over = {CopyPhase.FINISHED, CopyPhase.TERMINATING}
    return {
        spoke: Event.PRIORITY_CHANGED
        for spoke in _live(situation)
        if situation.orders[spoke].priority_changed and situation.copies.get(spoke) not in over
    }


def _step(situation: Situation) -> Plan:
    orphans = dict.fromkeys(_orphans_to_delete(situation), Event.ORPHANED)
    if not situation.wanted:
        return Plan(events={**dict.fromkeys(_live(situation), Event.RELEASED), **orphans})
    if situation.succeeded_on is not None:
        text = f'The workload ended well on "{situation.succeeded_on}" as it was taken back'
        return _withdraw_all(situation, text, orphans)
    winner = _winner(situation)
    if winner is not None:
        settled = _settle(situation, winner)
        return Plan(answer=settled.answer, events={**settled.events, **orphans})
    running = may_still_run(situation)
    if running:
        probes.COPY_AWAITED.fired += 1
        names = ", ".join(running)
        text = f"The workload waits until its copy is confirmed to be gone from: {names}"
        return _withdraw_all(situation, text, orphans)
    if situation.pending_checks:
        names = ", ".join(situation.pending_checks)
        text = f"The workload waits for other admission checks: {names}"
        return _withdraw_all(situation, text, orphans)
    return _nominate(situation, orphans)


def _withdraw_all(situation: Situation, text: str, orphans: Mapping[str, Event]) -> Plan:
    """Offer the workload to no spoke, for the reason in `text`."""
    events = {**dict.fromkeys(_live(situation), Event.LOST), **orphans}
    return Plan(answer=_pending(situation, text), events=events)


def may_still_run(situation: Situation) -> list[str]:
    """Spokes where a copy of a withdrawn order may still run."""
    return sorted(
        spoke
        for spoke, order in situation.orders.items()
        if order.state is OrderState.WITHDRAWN
        and order.started
        and not order.removed
        and spoke not in situation.stopped
    )


def _live(situation: Situation) -> list[str]:
    live = {OrderState.OFFERED, OrderState.CHOSEN}
    return sorted(spoke for spoke, order in situation.orders.items() if order.state in live)


def _adopted(situation: Situation) -> str | None:
    """The spoke of an orphan that has quota or is finished: it is kept instead of a new copy."""
    if situation.orders or not situation.wanted:
        return None
    kept = {CopyPhase.RESERVED, CopyPhase.FINISHED}
    return next((spoke for spoke, phase in situation.orphans.items() if phase in kept), None)


def _orphans_to_delete(situation: Situation) -> list[str]:
    adopted = _adopted(situation)
    live = _live(situation)
    orphans = [spoke for spoke in situation.orphans if spoke != adopted and spoke not in live]
    if situation.wanted or situation.collects_orphans:
        return orphans
    return [spoke for spoke in orphans if spoke in situation.orders]


def _winner(situation: Situation) -> str | None:
    for spoke in _live(situation):
        if situation.orders[spoke].state is OrderState.CHOSEN:
            return spoke
    if situation.recorded_winner is not None:
        order = situation.orders.get(situation.recorded_winner)
        if order is not None and order.state is OrderState.OFFERED:
            return situation.recorded_winner
        return None
    if may_still_run(situation) or situation.pending_checks:
        return None
    usable = {candidate.spoke for candidate in situation.candidates}
    for spoke, phase in situation.copies.items():
        order = situation.orders.get(spoke)
        offered = order is not None and order.state is OrderState.OFFERED
        if offered and phase in {CopyPhase.RESERVED, CopyPhase.FINISHED} and spoke in usable:
            return spoke
    return None


def _settle(situation: Situation, winner: str) -> Plan:
    order = situation.orders[winner]
    retry = _retry_reason(situation, winner) if order.state is OrderState.CHOSEN else None
    if retry is not None:
        return Plan(answer=Answer(state="Retry", message=retry, requeues_immediately=True))
    text = f'The workload was admitted on "{winner}"'
    if winner in situation.silent:
        text += ", of which nothing is heard; it is not started elsewhere while it may run there"
    events = {
        spoke: Event.WON if spoke == winner else Event.LOST
        for spoke in _live(situation)
        if situation.orders[spoke].state is OrderState.OFFERED
    }
    unsent = situation.spec_change_requested and not order.spec_change_sent
    if order.state is OrderState.CHOSEN and unsent:
        events[winner] = Event.SPEC_CHANGED
    answer = Answer(state="Ready", message=text, spoke=winner)
    return Plan(answer=answer if situation.awaits_check else None, events=events)


def _retry_reason(situation: Situation, winner: str) -> str | None:
    """Why the hub has to evict a workload that was admitted on `winner`; None if it may stay."""
    phase = situation.copies.get(winner, CopyPhase.ABSENT)
    if phase is CopyPhase.FINISHED:
        return None
    if winner in situation.stopped:
        return f'Admitting remote lost: "{winner}"'
    if phase in {CopyPhase.ABSENT, CopyPhase.TERMINATING}:
        return f'Admitting remote no longer exists: "{winner}"'
    if phase is CopyPhase.EVICTED:
        reason = situation.evictions.get(winner, "")
        return f'Workload evicted on worker cluster: "{reason}"'
    return None


def _nominate(situation: Situation, orphans: Mapping[str, Event]) -> Plan:
    adopted = _adopted(situation)
    if adopted is not None:
        return Plan(
            answer=_pending(situation, f"The workload is looked for on: {adopted}"),
            events={**orphans, adopted: Event.NOMINATED},
        )
    candidates = tuple(c for c in situation.candidates if _accepts(situation, c.spoke))
    offers = {
        spoke: Offer(
            age_seconds=situation.orders[spoke].age_seconds,
            reserved=situation.copies.get(spoke) is CopyPhase.RESERVED,
        )
        for spoke in _live(situation)
        if any(candidate.spoke == spoke for candidate in candidates)
    }
    offers = dict(sorted(offers.items(), key=lambda item: -item[1].age_seconds))
    # A spoke that is still deleting an earlier copy becomes a candidate when that copy is gone.
    ready = tuple(c for c in candidates if c.spoke in offers or _is_free(situation, c.spoke))
    nomination = nominate(situation.rules, ready, offers, situation.external)
    events: dict[str, Event] = {
        spoke: Event.LOST for spoke in _live(situation) if spoke not in nomination.spokes
    }
    events.update(orphans)
    for spoke in nomination.spokes:
        if spoke not in offers and spoke not in orphans:
            events[spoke] = Event.NOMINATED
    return Plan(
        answer=_waiting(situation, candidates, nomination.spokes),
        events=events,
        recheck_seconds=nomination.recheck_seconds,
    )


def _accepts(situation: Situation, spoke: str) -> bool:
    order = situation.orders.get(spoke)
    return order is None or not order.refusal


def _is_free(situation: Situation, spoke: str) -> bool:
    order = situation.orders.get(spoke)
    return order is None or (order.state is OrderState.WITHDRAWN and order.removed)


def _pending(situation: Situation, text: str) -> Answer | None:
    return Answer(state="Pending", message=text) if situation.awaits_check else None


def _waiting(
    situation: Situation, candidates: tuple[Candidate, ...], nominated: tuple[str, ...]
) -> Answer | None:
    if not situation.awaits_check:
        return None
    if not candidates:
        refusals = [f"{s}: {o.refusal}" for s, o in situation.orders.items() if o.refusal]
        problem = "; ".join([situation.problem, *refusals]).strip("; ")
        return Answer(state="Retry", message=problem or NO_CLUSTER)
    if not nominated:
        return Answer(state="Pending", message="The workload waits for a nomination")
    return Answer(state="Pending", message=f"The workload waits for one of: {', '.join(nominated)}")
