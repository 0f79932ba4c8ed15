"""Subject filters: which covers which.

`*` stands for one token, a final `>` for one or more.
"""


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
