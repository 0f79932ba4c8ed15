"""The life of an order to one spoke, as a table."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["IMPOSSIBLE", "TRANSITIONS", "Event", "ImpossibleError", "OrderState", "follow"]


class OrderState(StrEnum):
    """What a spoke was last told about one life of a workload."""

    UNSENT = "unsent"
    OFFERED = "offered"
    """Make the copy, let it queue for quota there, and do not start it."""

    CHOSEN = "chosen"
    """It runs here: once it has quota, start it."""

    WITHDRAWN = "withdrawn"
    """Delete it, and say when it is gone."""


class Event(StrEnum):
    """What happens to an order."""

    NOMINATED = "nominated"
    WON = "won"
    LOST = "lost"
    """Another spoke won or is tried instead, or this one may not be used any more."""

    LET_GO = "let go"
    """The hub took the workload's quota back: it ended, or it was evicted."""

    ORPHANED = "orphaned"
    """A copy is there by an order that nobody knows of."""

    ASKED = "asked"
    """The job's user wants it stopped or cancelled."""

    RERANKED = "reranked"
    """Its job has another priority class, or that another value."""


TRANSITIONS: Final[Mapping[tuple[OrderState, Event], OrderState]] = {
    (OrderState.UNSENT, Event.NOMINATED): OrderState.OFFERED,
    (OrderState.UNSENT, Event.ORPHANED): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.WON): OrderState.CHOSEN,
    (OrderState.OFFERED, Event.LOST): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.LET_GO): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.RERANKED): OrderState.OFFERED,
    (OrderState.CHOSEN, Event.LET_GO): OrderState.WITHDRAWN,
    (OrderState.CHOSEN, Event.ASKED): OrderState.CHOSEN,
    (OrderState.CHOSEN, Event.RERANKED): OrderState.CHOSEN,
    # Only once the spoke confirmed that the copy is gone: it might be started by the new order.
    (OrderState.WITHDRAWN, Event.NOMINATED): OrderState.OFFERED,
    # It is there again, or still: an attempt to make it was on its way for long.
    (OrderState.WITHDRAWN, Event.ORPHANED): OrderState.WITHDRAWN,
}

IMPOSSIBLE: Final[frozenset[tuple[OrderState, Event]]] = frozenset(
    {
        (OrderState.UNSENT, Event.WON),
        (OrderState.UNSENT, Event.LOST),
        (OrderState.UNSENT, Event.LET_GO),
        (OrderState.UNSENT, Event.ASKED),
        (OrderState.UNSENT, Event.RERANKED),
        (OrderState.OFFERED, Event.NOMINATED),
        (OrderState.OFFERED, Event.ORPHANED),
        (OrderState.OFFERED, Event.ASKED),
        (OrderState.CHOSEN, Event.NOMINATED),
        (OrderState.CHOSEN, Event.WON),
        (OrderState.CHOSEN, Event.LOST),
        (OrderState.CHOSEN, Event.ORPHANED),
        (OrderState.WITHDRAWN, Event.WON),
        (OrderState.WITHDRAWN, Event.LOST),
        (OrderState.WITHDRAWN, Event.LET_GO),
        (OrderState.WITHDRAWN, Event.ASKED),
        (OrderState.WITHDRAWN, Event.RERANKED),
    }
)
"""What nobody may ask for."""


class ImpossibleError(AssertionError):
    """Our bug: the plan asked for what the table does not have."""

    def __init__(self, state: OrderState, event: Event) -> None:
        super().__init__(f"an order that is {state} cannot be {event}")


def follow(state: OrderState, event: Event) -> OrderState:
    """The next state. Raises `ImpossibleError`."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise ImpossibleError(state, event)
    return after
