"""Counts, for one process, how often a log became another one or lost its tail.

A log that comes back empty, or without its last second, gives out sequences that it has given before.
Whoever remembers sequences orders by (generation, sequence): `Entry.place`.
"""

import structlog

from shared.telemetry import probes

log = structlog.get_logger(__name__)


class Generations:
    """The logs as this process has seen them. All its readers and workers share one."""

    def __init__(self) -> None:
        self._logs: dict[str, tuple[int, str]] = {}
        """Log to its generation and its identity."""

    def current(self, log_name: str) -> int:
        """The generation of a log, 0 until it changes."""
        return self._logs.get(log_name, (0, ""))[0]

    def observe(self, log_name: str, *, identity: str, last: int, seen: tuple[int, int]) -> int:
        """Return the generation of a log that is `identity` now and ends at sequence `last`.

        `seen`: the highest place that the caller has been given. Ask the server after reading it.
        """
        known = self._logs.setdefault(log_name, (0, identity))
        lost = seen[0] == known[0] and last < seen[1]
        if known[1] == identity and not lost:
            return known[0]
        probes.LOG_CHANGED.fired += 1
        log.warning("the log was replaced or lost its end", log=log_name, ends_at=last, had=seen[1])
        self._logs[log_name] = (known[0] + 1, identity)
        return known[0] + 1
