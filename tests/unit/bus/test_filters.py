"""Subject filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.filters import Selection, covers, overlap, prune

TOKENS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4)
FILTERS = st.builds(
    lambda tokens, tail: ".".join((*tokens, *tail)),
    st.lists(st.sampled_from("ab*"), min_size=1, max_size=4),
    st.sampled_from([(), (">",)]),
)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        pytest.param("a.b", "a.b", True, id="a filter covers itself"),
        pytest.param("a.*", "a.b", True, id="a star covers a token"),
        pytest.param("a.b", "a.*", False, id="a token does not cover a star"),
        pytest.param("a.>", "a.b.c", True, id="a tail covers many tokens"),
        pytest.param("a.>", "a", False, id="a tail needs at least one token"),
        pytest.param("a.*", "a.>", False, id="a star does not cover a tail"),
        pytest.param("a.>", "a.>", True, id="a tail covers itself"),
        pytest.param(">", "a.>", True, id="everything covers anything"),
        pytest.param("a.*", "a.b.c", False, id="a star is one token"),
    ],
)
def test_filter_covers_another_if_it_matches_all_that_the_other_matches(
    wide: str, narrow: str, expected: bool
) -> None:
    assert covers(wide, narrow) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.*.c", "a.b.*", True),
        ("a.b", "a.c", False),
        ("a.>", "a.b.c", True),
        ("a.*", "a.b.c", False),
        ("a.b.>", "a.*.c", True),
    ],
)
def test_filters_overlap_if_a_subject_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


def test_pruning_keeps_the_widest_in_their_order() -> None:
    assert prune(("a.b", "c.*", "a.>", "c.d", "a.>")) == ("c.*", "a.>")
    assert prune(()) == ()


@given(filters=st.lists(st.just(">") | FILTERS, max_size=5), tokens=TOKENS)
def test_a_selection_has_what_one_of_its_filters_covers(
    filters: list[str], tokens: list[str]
) -> None:
    subject = ".".join(tokens)
    expected = any(covers(one, subject) for one in filters)
    assert Selection(filters).matches(subject) is expected
