"""The table is complete: every pair is either a transition or impossible."""

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


def test_every_pair_of_state_and_event_is_in_exactly_one_table() -> None:
    assert TRANSITIONS.keys() | IMPOSSIBLE == set(product(OrderState, Event))
    assert not TRANSITIONS.keys() & IMPOSSIBLE


@pytest.mark.parametrize(("state", "event"), sorted(IMPOSSIBLE))
def test_impossible_event_raises(state: OrderState, event: Event) -> None:
    with pytest.raises(ImpossibleError, match=f"an order that is {state} cannot be {event}"):
        next_state(state, event)


def test_every_state_has_a_way_in_and_out() -> None:
    assert {state for state, _ in TRANSITIONS} == set(OrderState)
    assert set(TRANSITIONS.values()) | {OrderState.UNSENT} == set(OrderState)
