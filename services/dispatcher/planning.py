"""Where a workload runs: a situation in, orders and the check's state out. Pure.

All at once: every usable spoke is offered the workload, the first whose copy has quota or runs
there wins, the others are withdrawn (`research/kueue.md` 1.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from services.dispatcher.lifecycle import Event, OrderState

__all__ = ["Answer", "Plan", "Situation", "Standing", "plan"]

NO_CLUSTER: Final = "No usable worker cluster"


class Standing(StrEnum):
    """What is seen of a copy on its spoke."""

    ABSENT = "absent"
    WAITING = "waiting"
    RESERVED = "reserved"
    """It has quota there, runs, or is done."""

    ENDING = "ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that is weighed about one workload."""

    wanted: bool
    """The hub holds quota for it, and it is not on its way out."""

    undecided: bool
    """Its quota is reserved, and waits for the check."""

    usable: tuple[str, ...] = ()
    """Spokes that the configuration names and that are there."""

    problem: str = ""
    """Why `usable` is empty, if there is more to say."""

    orders: Mapping[str, OrderState] = field(default_factory=dict)
    """By spoke."""

    copies: Mapping[str, Standing] = field(default_factory=dict)
    """By spoke; a spoke that is not here has none. In the order in which they got there."""

    choice: str | None = None
    """The spoke that was recorded as the winner of this reservation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the check says."""

    state: Literal["Pending", "Ready", "Retry"]
    message: str
    spoke: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now. The answer is recorded first: it is what a restart goes by."""

    answer: Answer | None = None
    """None: nobody waits for one."""

    events: Mapping[str, Event] = field(default_factory=dict)
    """By spoke."""


def plan(situation: Situation) -> Plan:
    """The next step. Applied to its own result it asks for nothing more."""
    if not situation.wanted:
        return Plan(events=dict.fromkeys(_open(situation), Event.LET_GO))
    winner = _winner(situation)
    if winner is not None:
        return _settle(situation, winner)
    events: dict[str, Event] = {
        spoke: Event.LOST for spoke in _open(situation) if spoke not in situation.usable
    }
    events.update(dict.fromkeys(_nominees(situation), Event.NOMINATED))
    return Plan(answer=_waiting(situation), events=events)


def _open(situation: Situation) -> list[str]:
    live = {OrderState.OFFERED, OrderState.CHOSEN}
    return sorted(spoke for spoke, state in situation.orders.items() if state in live)


def _winner(situation: Situation) -> str | None:
    for spoke in _open(situation):
        if situation.orders[spoke] is OrderState.CHOSEN:
            return spoke
    if situation.choice is not None:
        if situation.orders.get(situation.choice) is OrderState.OFFERED:
            return situation.choice
        return None
    for spoke, standing in situation.copies.items():
        offered = situation.orders.get(spoke) is OrderState.OFFERED
        if offered and standing is Standing.RESERVED and spoke in situation.usable:
            return spoke
    return None


def _settle(situation: Situation, winner: str) -> Plan:
    answer = Answer(state="Ready", message=f'The workload was admitted on "{winner}"', spoke=winner)
    events = {}
    for spoke in _open(situation):
        if situation.orders[spoke] is OrderState.OFFERED:
            events[spoke] = Event.WON if spoke == winner else Event.LOST
    return Plan(answer=answer if situation.undecided else None, events=events)


def _nominees(situation: Situation) -> list[str]:
    """Spokes to offer it to. One that has it already, from orders that were lost, comes alone."""
    free = [
        spoke
        for spoke in situation.usable
        if situation.orders.get(spoke, OrderState.UNSENT) is OrderState.UNSENT
        or (
            situation.orders[spoke] is OrderState.WITHDRAWN
            and situation.copies.get(spoke, Standing.ABSENT) is Standing.ABSENT
        )
    ]
    running = [spoke for spoke in free if situation.copies.get(spoke) is Standing.RESERVED]
    return running[:1] or free


def _waiting(situation: Situation) -> Answer | None:
    if not situation.undecided:
        return None
    if not situation.usable:
        return Answer(state="Retry", message=situation.problem or NO_CLUSTER)
    offered = ", ".join(situation.usable)
    return Answer(state="Pending", message=f"The workload waits for one of: {offered}")
