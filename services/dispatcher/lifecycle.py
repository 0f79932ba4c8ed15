"""The life of an order to one spoke, as a table."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["IMPOSSIBLE", "TRANSITIONS", "Event", "ImpossibleError", "OrderState", "follow"]


class OrderState(StrEnum):
    """What a spoke was last told about one life of a workload."""

    UNSENT = "unsent"
    OFFERED = "offered"
    """Make the copy, and let it compete."""

    CHOSEN = "chosen"
    """Keep it: it runs here."""

    WITHDRAWN = "withdrawn"
    """Delete it."""


class Event(StrEnum):
    """What happens to an order."""

    NOMINATED = "nominated"
    WON = "won"
    LOST = "lost"
    """Another spoke won, or this one may not be used any more."""

    LET_GO = "let go"
    """The hub took the workload's quota back: it ended, or it was evicted."""


TRANSITIONS: Final[Mapping[tuple[OrderState, Event], OrderState]] = {
    (OrderState.UNSENT, Event.NOMINATED): OrderState.OFFERED,
    (OrderState.OFFERED, Event.WON): OrderState.CHOSEN,
    (OrderState.OFFERED, Event.LOST): OrderState.WITHDRAWN,
    (OrderState.OFFERED, Event.LET_GO): OrderState.WITHDRAWN,
    (OrderState.CHOSEN, Event.LET_GO): OrderState.WITHDRAWN,
    # Only once the copy is gone: two copies of two reservations would look the same.
    (OrderState.WITHDRAWN, Event.NOMINATED): OrderState.OFFERED,
}

IMPOSSIBLE: Final[frozenset[tuple[OrderState, Event]]] = frozenset(
    {
        (OrderState.UNSENT, Event.WON),
        (OrderState.UNSENT, Event.LOST),
        (OrderState.UNSENT, Event.LET_GO),
        (OrderState.OFFERED, Event.NOMINATED),
        (OrderState.CHOSEN, Event.NOMINATED),
        (OrderState.CHOSEN, Event.WON),
        (OrderState.CHOSEN, Event.LOST),
        (OrderState.WITHDRAWN, Event.WON),
        (OrderState.WITHDRAWN, Event.LOST),
        (OrderState.WITHDRAWN, Event.LET_GO),
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
