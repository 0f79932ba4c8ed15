"""The life cycle of an order to one spoke, as a table."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class OrderState(StrEnum):
    """The last order to a spoke about one workload."""

    UNSENT = "unsent"
    OFFERED = "offered"
    """Create the copy and let it wait for quota, but do not start it."""

    CHOSEN = "chosen"
    """The workload runs here: start the copy once it has quota."""

    WITHDRAWN = "withdrawn"
    """Delete the copy, and report when it is gone."""


class Event(StrEnum):
    """What changes an order."""

    NOMINATED = "nominated"
    WON = "won"
    LOST = "lost"
    """Another spoke won or is tried instead, or this spoke is not usable any more."""

    RELEASED = "released"
    """The hub took the workload's quota back: it finished, or it was evicted."""

    ORPHANED = "orphaned"
    """A copy exists whose order is unknown, or is withdrawn and reported as gone."""

    SPEC_CHANGED = "spec changed"
    """The user of the job changed its spec at the hub, to stop or cancel it."""

    PRIORITY_CHANGED = "priority changed"
    """The job has another priority class, or its class has another value."""


TRANSITIONS: Final[Mapping[tuple[OrderState, Event], OrderState]] = {
    (OrderState.UNSENT, Event.NOMINATED): OrderState.OFFERED,
    (OrderState.UNSENT, Event.ORPHANED): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.WON): OrderState.CHOSEN,
    (OrderState.OFFERED, Event.LOST): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.RELEASED): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.PRIORITY_CHANGED): OrderState.OFFERED,
    (OrderState.CHOSEN, Event.RELEASED): OrderState.WITHDRAWN,
    (OrderState.CHOSEN, Event.SPEC_CHANGED): OrderState.CHOSEN,
    (OrderState.CHOSEN, Event.PRIORITY_CHANGED): OrderState.CHOSEN,
    # Only after the spoke reports that the copy is gone: the new order could start the old copy.
    (OrderState.WITHDRAWN, Event.NOMINATED): OrderState.OFFERED,
    # A slow request to create the copy may arrive after the spoke reported it as gone.
    (OrderState.WITHDRAWN, Event.ORPHANED): OrderState.WITHDRAWN,
}

IMPOSSIBLE: Final[frozenset[tuple[OrderState, Event]]] = frozenset(
    {
        (OrderState.UNSENT, Event.WON),
        (OrderState.UNSENT, Event.LOST),
        (OrderState.UNSENT, Event.RELEASED),
        (OrderState.UNSENT, Event.SPEC_CHANGED),
        (OrderState.UNSENT, Event.PRIORITY_CHANGED),
        (OrderState.OFFERED, Event.NOMINATED),
        (OrderState.OFFERED, Event.ORPHANED),
        (OrderState.OFFERED, Event.SPEC_CHANGED),
        (OrderState.CHOSEN, Event.NOMINATED),
        (OrderState.CHOSEN, Event.WON),
        (OrderState.CHOSEN, Event.LOST),
        (OrderState.CHOSEN, Event.ORPHANED),
        (OrderState.WITHDRAWN, Event.WON),
        (OrderState.WITHDRAWN, Event.LOST),
        (OrderState.WITHDRAWN, Event.RELEASED),
        (OrderState.WITHDRAWN, Event.SPEC_CHANGED),
        (OrderState.WITHDRAWN, Event.PRIORITY_CHANGED),
    }
)
"""Pairs that a plan must never contain. A test checks that every pair is in one of the two tables."""


class ImpossibleError(AssertionError):
    """A bug of the dispatcher: a plan contains a pair that is not in `TRANSITIONS`."""

    def __init__(self, state: OrderState, event: Event) -> None:
        super().__init__(f"an order that is {state} cannot be {event}")


def next_state(state: OrderState, event: Event) -> OrderState:
    """The state after an event. Raises `ImpossibleError`."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise ImpossibleError(state, event)
    return after
