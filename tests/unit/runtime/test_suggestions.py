"""What a mistyped name was probably meant to be, in words."""

import pytest

from shared.runtime.suggestions import did_you_mean, one_of


@pytest.mark.parametrize(
    ("wanted", "there", "told"),
    [
        ("tean-a", ["team-a", "other"], "did you mean 'team-a'?"),
        ("zzz", ["b", "a"], "there are a, b"),
        ("zzz", [], "there is none at all"),
        ("zzz", [f"q{number:02}" for number in range(22)], "q18, q19 and 2 more"),
    ],
)
def test_closest_name_or_what_there_is(wanted: str, there: list[str], told: str) -> None:
    assert one_of(wanted, there).endswith(told)


def test_nothing_is_guessed_where_no_name_is_close() -> None:
    assert did_you_mean("zzz", ["team-a"]) == ""
