"""What a mistyped name was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(wanted: str, there: Iterable[str]) -> str:
    """A question with the closest name; empty if none is close. ``did you mean 'team-a'?``."""
    close = get_close_matches(wanted, sorted(there), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def one_of(wanted: str, there: Iterable[str]) -> str:
    """The closest name as a question, else all names that there are."""
    names = sorted(there)
    if close := did_you_mean(wanted, names):
        return close
    return f"there are {', '.join(names)}" if names else "there is none at all"
