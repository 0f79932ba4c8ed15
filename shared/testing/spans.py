"""How much of a period the spans of a trace cover."""

from collections.abc import Iterable
from datetime import datetime

from shared.telemetry.spans import Span


def leaves(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that have no child."""
    every = list(spans)
    parents = {span.parent for span in every}
    return [span for span in every if span.context not in parents]


def coverage(spans: Iterable[Span], start: datetime, end: datetime) -> float:
    """Return the share of the time from `start` to `end` that leaf spans cover, from 0.0 to 1.0.

    An empty period is covered: 1.0.
    """
    covered = 0.0
    reached = start
    for leaf in sorted(leaves(spans), key=lambda span: span.start):
        begin = max(leaf.start, reached)
        until = min(leaf.end, end)
        if until > begin:
            covered += (until - begin).total_seconds()
            reached = until
    whole = (end - start).total_seconds()
    return covered / whole if whole > 0 else 1.0
