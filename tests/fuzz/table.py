"""All borders, each named once."""

from collections.abc import Iterator
from itertools import chain

from tests.fuzz import (
    console,
    documents,
    jobs,
    kubernetes,
    messages,
    outside,
    patcher,
    reviews,
    services,
)
from tests.fuzz.border import Border


def borders() -> tuple[Border, ...]:
    """The table, in the order of the input's way."""
    rows: Iterator[Border] = chain(
        messages.borders(),
        kubernetes.borders(),
        services.borders(),
        patcher.borders(),
        console.borders(),
        reviews.borders(),
        jobs.borders(),
        documents.borders(),
        outside.borders(),
    )
    found = tuple(rows)
    names = [border.name for border in found]
    assert len(set(names)) == len(names), "a border is in the table twice"
    return found
