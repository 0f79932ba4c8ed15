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

    def observe(self, log_name: str, *, identity: str, lost: int | None) -> int:
        """Return the generation of a log that is `identity` now.

        `lost`: the generation of an entry that the log should still have, and has no more; None: it
        has all that was asked for.
        """
        number, known = self._logs.setdefault(log_name, (0, identity))
        if known == identity and lost != number:
            return number
        probes.LOG_CHANGED.fired += 1
        log.warning("the log is not the one it was", log=log_name, made_anew=known != identity)
        self._logs[log_name] = (number + 1, identity)
        return number + 1
