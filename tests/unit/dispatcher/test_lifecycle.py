"""The table is whole: everything is either a transition or impossible."""

from itertools import product

import pytest

from services.dispatcher.planning.order_lifecycle import (
    IMPOSSIBLE,
    TRANSITIONS,
    Event,
    ImpossibleError,
    OrderState,
    next_state,
)


def test_every_pair_of_state_and_event_is_in_one_of_the_tables() -> None:
    assert TRANSITIONS.keys() | IMPOSSIBLE == set(product(OrderState, Event))
    assert not TRANSITIONS.keys() & IMPOSSIBLE


@pytest.mark.parametrize(("state", "event"), sorted(IMPOSSIBLE))
def test_the_impossible_is_refused(state: OrderState, event: Event) -> None:
    with pytest.raises(ImpossibleError, match=f"an order that is {state} cannot be {event}"):
        next_state(state, event)


def test_every_state_can_be_left_and_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == set(OrderState)
    assert set(TRANSITIONS.values()) | {OrderState.UNSENT} == set(OrderState)
