"""Where a workload runs: a situation in, orders and the check's state out. Pure.

A copy is started by no other order than `chosen`, so a spoke that never was chosen never ran it. A
spoke that was chosen is let go of only when it said that the copy is gone (ADR 40).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal

from services.dispatcher.planning.nomination import Candidate, Offer, Rules, nominate
from services.dispatcher.planning.order_lifecycle import Event, OrderState

__all__ = ["Answer", "Order", "Plan", "Situation", "Standing", "plan", "unsettled"]

NO_CLUSTER: Final = "No usable worker cluster"


class Standing(StrEnum):
    """What is seen of a copy on its spoke."""

    ABSENT = "absent"
    WAITING = "waiting"
    RESERVED = "reserved"
    """It has quota there, or runs."""

    FINISHED = "finished"
    EVICTED = "evicted"
    """The spoke took its quota back."""

    ENDING = "ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one spoke was told, and what it said to that."""

    state: OrderState
    started: bool = False
    """It was chosen: the copy may have run."""

    gone: bool = False
    """The spoke said that nothing of it is there any more, and nothing is seen of it."""

    refused: str = ""
    """Why the spoke cannot make the copy, for this reservation."""

    age_seconds: float = 0.0
    """Since it was offered."""

    asked: bool = False
    """The user's wish was passed on."""

    outranked: bool = False
    """Its job has another priority class, or that another value, than it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that is weighed about one workload."""

    wanted: bool
    """The hub holds quota for it, and it is not on its way out."""

    undecided: bool
    """Its quota is reserved, and waits for the check."""

    awaits: tuple[str, ...] = ()
    """Other checks of this reservation that are not ready: until they are it may not start anywhere."""

    rules: Rules = field(default_factory=Rules)
    candidates: tuple[Candidate, ...] = ()
    """Spokes that may be used now, in the order of the configuration."""

    external: tuple[str, ...] = ()
    """Spokes that somebody else nominated."""

    problem: str = ""
    """Why `candidates` is empty, if there is more to say."""

    orders: Mapping[str, Order] = field(default_factory=dict)
    """By spoke."""

    copies: Mapping[str, Standing] = field(default_factory=dict)
    """By spoke: copies of the orders above. In the order in which they got there."""

    strays: Mapping[str, Standing] = field(default_factory=dict)
    """By spoke: copies that no order is known for, or only one that was withdrawn and confirmed."""

    collects: bool = True
    """Strays of a workload that nobody wants are removed, too."""

    evictions: Mapping[str, str] = field(default_factory=dict)
    """By spoke: why it took the quota back."""

    choice: str | None = None
    """The spoke that was recorded as the winner of this reservation."""

    silent: frozenset[str] = frozenset()
    """Nothing was heard of these for longer than the time-out; their copies may run."""

    stopped: frozenset[str] = frozenset()
    """What these had has stopped: an operator says so, or their leases have run out."""

    wish: bool = False
    """The job's user wants it stopped or cancelled."""

    ended: str | None = None
    """The spoke where it ended well while it was taken back: that comes home, and nobody begins again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the check says."""

    state: Literal["Pending", "Ready", "Retry"]
    message: str
    spoke: str | None = None
    at_once: bool = False
    """Of a Retry: it may queue again without a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now. The answer is recorded first: it is what a restart goes by."""

    answer: Answer | None = None
    """None: nobody waits for one."""

    events: Mapping[str, Event] = field(default_factory=dict)
    """By spoke."""

    again_seconds: float | None = None
    """When to plan again, though nothing happens."""


def plan(situation: Situation) -> Plan:
    """The next step. Applied to its own result it asks for nothing more."""
    step = _step(situation)
    # Any other order says the new class besides.
    return replace(step, events={**_reranked(situation), **step.events})


def _reranked(situation: Situation) -> dict[str, Event]:
    """Copies that wait or run, or are about to be made, by a class that their job has no more."""
    over = {Standing.FINISHED, Standing.ENDING}
    return {
        spoke: Event.RERANKED
        for spoke in _open(situation)
        if situation.orders[spoke].outranked and situation.copies.get(spoke) not in over
    }


def _step(situation: Situation) -> Plan:
    strays = dict.fromkeys(_orphans(situation), Event.ORPHANED)
    if not situation.wanted:
        return Plan(events={**dict.fromkeys(_open(situation), Event.LET_GO), **strays})
    if situation.ended is not None:
        text = f'The workload ended well on "{situation.ended}" as it was taken back'
        events = {**dict.fromkeys(_open(situation), Event.LOST), **strays}
        return Plan(answer=_pending(situation, text), events=events)
    winner = _winner(situation)
    if winner is not None:
        settled = _settle(situation, winner)
        return Plan(answer=settled.answer, events={**settled.events, **strays})
    waits_for = unsettled(situation)
    if waits_for:
        names = ", ".join(waits_for)
        text = f"The workload waits until its copy is confirmed to be gone from: {names}"
        events = {**dict.fromkeys(_open(situation), Event.LOST), **strays}
        return Plan(answer=_pending(situation, text), events=events)
    if situation.awaits:
        text = f"The workload waits for other admission checks: {', '.join(situation.awaits)}"
        events = {**dict.fromkeys(_open(situation), Event.LOST), **strays}
        return Plan(answer=_pending(situation, text), events=events)
    return _nominate(situation, strays)


def unsettled(situation: Situation) -> list[str]:
    """Spokes on which a copy may run by an order that was withdrawn."""
    return sorted(
        spoke
        for spoke, order in situation.orders.items()
        if order.state is OrderState.WITHDRAWN
        and order.started
        and not order.gone
        and spoke not in situation.stopped
    )


def _open(situation: Situation) -> list[str]:
    live = {OrderState.OFFERED, OrderState.CHOSEN}
    return sorted(spoke for spoke, order in situation.orders.items() if order.state in live)


def _adopted(situation: Situation) -> str | None:
    """A copy that has quota, or did its work, by an order that was lost: it goes on as it is."""
    if situation.orders or not situation.wanted:
        return None
    has_it = {Standing.RESERVED, Standing.FINISHED}
    return next((s for s, standing in situation.strays.items() if standing in has_it), None)


def _orphans(situation: Situation) -> list[str]:
    adopted = _adopted(situation)
    live = _open(situation)
    strays = [spoke for spoke in situation.strays if spoke != adopted and spoke not in live]
    if situation.wanted or situation.collects:
        return strays
    return [spoke for spoke in strays if spoke in situation.orders]


def _winner(situation: Situation) -> str | None:
    for spoke in _open(situation):
        if situation.orders[spoke].state is OrderState.CHOSEN:
            return spoke
    if situation.choice is not None:
        order = situation.orders.get(situation.choice)
        if order is not None and order.state is OrderState.OFFERED:
            return situation.choice
        return None
    if unsettled(situation) or situation.awaits:
        return None
    usable = {candidate.spoke for candidate in situation.candidates}
    for spoke, standing in situation.copies.items():
        order = situation.orders.get(spoke)
        offered = order is not None and order.state is OrderState.OFFERED
        if offered and standing in {Standing.RESERVED, Standing.FINISHED} and spoke in usable:
            return spoke
    return None


def _settle(situation: Situation, winner: str) -> Plan:
    order = situation.orders[winner]
    trouble = _trouble(situation, winner) if order.state is OrderState.CHOSEN else None
    if trouble is not None:
        return Plan(answer=trouble)
    text = f'The workload was admitted on "{winner}"'
    if winner in situation.silent:
        text += ", of which nothing is heard; it is not started elsewhere while it may run there"
    events = {
        spoke: Event.WON if spoke == winner else Event.LOST
        for spoke in _open(situation)
        if situation.orders[spoke].state is OrderState.OFFERED
    }
    if order.state is OrderState.CHOSEN and situation.wish and not order.asked:
        events[winner] = Event.ASKED
    answer = Answer(state="Ready", message=text, spoke=winner)
    return Plan(answer=answer if situation.undecided else None, events=events)


def _trouble(situation: Situation, winner: str) -> Answer | None:
    """Why the hub has to take back what runs, or should run, on the winner."""
    standing = situation.copies.get(winner, Standing.ABSENT)
    if standing is Standing.FINISHED:
        return None
    if winner in situation.stopped:
        return Answer(state="Retry", message=f'Admitting remote lost: "{winner}"', at_once=True)
    if standing in {Standing.ABSENT, Standing.ENDING}:
        return Answer(
            state="Retry", message=f'Admitting remote no longer exists: "{winner}"', at_once=True
        )
    if standing is Standing.EVICTED:
        why = situation.evictions.get(winner, "")
        return Answer(
            state="Retry", message=f'Workload evicted on worker cluster: "{why}"', at_once=True
        )
    return None


def _nominate(situation: Situation, strays: Mapping[str, Event]) -> Plan:
    adopted = _adopted(situation)
    if adopted is not None:
        return Plan(
            answer=_pending(situation, f"The workload is looked for on: {adopted}"),
            events={**strays, adopted: Event.NOMINATED},
        )
    candidates = tuple(c for c in situation.candidates if _may_have(situation, c.spoke))
    offers = {
        spoke: Offer(
            age_seconds=situation.orders[spoke].age_seconds,
            reserved=situation.copies.get(spoke) is Standing.RESERVED,
        )
        for spoke in _open(situation)
        if any(candidate.spoke == spoke for candidate in candidates)
    }
    offers = dict(sorted(offers.items(), key=lambda item: -item[1].age_seconds))
    # One whose earlier copy is on its way out comes back when it is gone.
    ready = tuple(c for c in candidates if c.spoke in offers or _is_free(situation, c.spoke))
    nomination = nominate(situation.rules, ready, offers, situation.external)
    events: dict[str, Event] = {
        spoke: Event.LOST for spoke in _open(situation) if spoke not in nomination.spokes
    }
    events.update(strays)
    for spoke in nomination.spokes:
        if spoke not in offers and spoke not in strays:
            events[spoke] = Event.NOMINATED
    return Plan(
        answer=_waiting(situation, candidates, nomination.spokes),
        events=events,
        again_seconds=nomination.again_seconds,
    )


def _may_have(situation: Situation, spoke: str) -> bool:
    order = situation.orders.get(spoke)
    return order is None or not order.refused


def _is_free(situation: Situation, spoke: str) -> bool:
    order = situation.orders.get(spoke)
    return order is None or (order.state is OrderState.WITHDRAWN and order.gone)


def _pending(situation: Situation, text: str) -> Answer | None:
    return Answer(state="Pending", message=text) if situation.undecided else None


def _waiting(
    situation: Situation, candidates: tuple[Candidate, ...], nominated: tuple[str, ...]
) -> Answer | None:
    if not situation.undecided:
        return None
    if not candidates:
        refusals = [f"{s}: {o.refused}" for s, o in situation.orders.items() if o.refused]
        problem = "; ".join([situation.problem, *refusals]).strip("; ")
        return Answer(state="Retry", message=problem or NO_CLUSTER)
    if not nominated:
        return Answer(state="Pending", message="The workload waits for a nomination")
    return Answer(state="Pending", message=f"The workload waits for one of: {', '.join(nominated)}")
