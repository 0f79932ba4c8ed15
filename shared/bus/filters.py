"""Subject filters: which covers which.

`*` stands for one token, a final `>` for one or more.
"""

from collections.abc import Iterable


def prune(filters: tuple[str, ...]) -> tuple[str, ...]:
    """Drop filters that another one covers: the server refuses filters that overlap."""
    unique = tuple(dict.fromkeys(filters))
    return tuple(
        one for one in unique if not any(one != other and covers(other, one) for other in unique)
    )


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject that matches `narrow` matches `wide`."""
    wide_tokens, narrow_tokens = wide.split("."), narrow.split(".")
    for index, wanted in enumerate(wide_tokens):
        if wanted == ">":
            return len(narrow_tokens) > index
        if index >= len(narrow_tokens) or narrow_tokens[index] == ">":
            return False
        if wanted not in {"*", narrow_tokens[index]}:
            return False
    return len(wide_tokens) == len(narrow_tokens)


def overlap(one: str, other: str) -> bool:
    """Whether some subject matches both filters."""
    tokens = zip(one.split("."), other.split("."), strict=False)
    for mine, theirs in tokens:
        if ">" in {mine, theirs}:
            return True
        if "*" not in {mine, theirs} and mine != theirs:
            return False
    return one.count(".") == other.count(".")


class Selection:
    """Filters that are asked about many subjects: one look-up for all filters of one form."""

    def __init__(self, filters: Iterable[str]) -> None:
        self._forms: dict[tuple[int, bool, tuple[int, ...]], set[tuple[str, ...]]] = {}
        """Number of tokens before `>`, whether there is one, and the places of those that are not `*`;
        to what stands there."""

        for one in filters:
            tokens = one.split(".")
            is_open = tokens[-1] == ">"
            if is_open:
                del tokens[-1]
            places = tuple(at for at in range(len(tokens)) if tokens[at] != "*")
            form = (len(tokens), is_open, places)
            self._forms.setdefault(form, set()).add(tuple(tokens[place] for place in places))

    def matches(self, subject: str) -> bool:
        """Whether one of the filters selects a subject."""
        tokens = subject.split(".")
        count = len(tokens)
        return any(
            (count > least if is_open else count == least)
            and tuple([tokens[place] for place in places]) in wanted
            for (least, is_open, places), wanted in self._forms.items()
        )
