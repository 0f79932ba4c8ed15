"""What a mistyped name was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

NAMES_MAX: Final = 20
"""Names that one sentence lists, at most."""


def did_you_mean(wanted: str, there: Iterable[str]) -> str:
    """A question with the closest name; empty if none is close. ``did you mean 'team-a'?``."""
    close = get_close_matches(wanted, sorted(there), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def one_of(wanted: str, there: Iterable[str]) -> str:
    """The closest name as a question, else the names that there are."""
    names = sorted(there)
    if close := did_you_mean(wanted, names):
        return close
    if not names:
        return "there is none at all"
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"there are {', '.join(names[:NAMES_MAX])}{more}"
