"""Holds the rules in force, and reloads them when the configuration file changes."""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from services.classifier.cel import CelEngine
from services.classifier.metrics import FAILURE, RELOADS, SUCCESS
from services.classifier.rules.parsing import Rules, RulesError, parse_rules

log = structlog.get_logger(__name__)

RELOAD_SECONDS: Final = 1.0
"""How often to look at the file. A changed ConfigMap needs a minute to reach its mount anyway."""


class RulesHolder:
    """The rules in force. A configuration that cannot be used changes nothing.

    `current` is replaced as a whole, so that a request sees one configuration from start to end.
    """

    def __init__(self, engine: CelEngine, *, last_good: Path | None = None) -> None:
        self._engine = engine
        self._last_good = last_good
        self.current: Rules | None = None
        """None until the first good configuration; the webhook admits nothing before."""

        self.error: str | None = None
        """Why the last offered configuration is not in force; None if it is."""

    def offer(self, text: str) -> bool:
        """Put a configuration in force if it is good, and keep its text on disk.

        Returns whether it is in force.
        """
        try:
            rules = parse_rules(text, self._engine)
        except RulesError as error:
            return self._refuse(str(error))
        RELOADS.labels(SUCCESS).inc()
        self.error = None
        if self.current is None or self.current.digest != rules.digest:
            self.current = rules
            self._keep(text)
        return True

    def offer_file(self, path: Path) -> bool:
        """Offer the text of a file. Returns whether it is in force."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            return self._refuse(f"{path}: {error}")
        return self.offer(text)

    def restore(self) -> bool:
        """Put the last good configuration before a restart in force. Returns whether one is in force."""
        if self.current is None and self._last_good is not None and self._last_good.is_file():
            self.offer_file(self._last_good)
        return self.current is not None

    def _refuse(self, error: str) -> bool:
        self.error = error
        RELOADS.labels(FAILURE).inc()
        return False

    def _keep(self, text: str) -> None:
        if self._last_good is None:
            return
        # Write a second file and rename it: a crash leaves the old text or the new one, never half.
        new = self._last_good.with_suffix(".new")
        try:
            self._last_good.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(text)
            new.replace(self._last_good)
        except OSError as error:
            # The rules are in force all the same; only a restart cannot restore them.
            log.warning("cannot keep the configuration", path=str(new), error=str(error))


async def follow_rules(
    holder: RulesHolder, path: Path, *, every_seconds: float = RELOAD_SECONDS
) -> None:
    """Offer the file to `holder` now and after each change, until cancelled."""
    seen: tuple[int, ...] | None = None
    while True:
        found = _fingerprint(path)
        if found != seen or holder.current is None:
            before = holder.error
            if holder.offer_file(path):
                assert holder.current is not None
                log.info(
                    "the rules of a configuration are in force",
                    path=str(path),
                    queue=holder.current.queue_name,
                    expressions=len(holder.current.programs),
                    ignored=list(holder.current.ignored),
                )
            elif holder.error != before:
                kept = holder.current is not None
                log.error("a configuration is refused", error=holder.error, last_good_kept=kept)
            seen = found
        await asyncio.sleep(every_seconds)


def _fingerprint(path: Path) -> tuple[int, ...]:
    """Return what changes with the file. A ConfigMap's mount replaces a symbolic link."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns)
