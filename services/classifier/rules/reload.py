"""Takes up new rules of the webhook while it runs."""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from services.classifier.rules.rules import RulesHolder

__all__ = ["follow_rules"]

log = structlog.get_logger(__name__)

FOLLOW_SECONDS: Final = 1.0
"""How often the file is looked at. A ConfigMap takes a minute to reach its mount anyway."""


async def follow_rules(
    holder: RulesHolder, path: Path, *, every_seconds: float = FOLLOW_SECONDS
) -> None:
    """Offer a configuration file to `holder` now, and again whenever it has changed."""
    seen: tuple[int, ...] | None = None
    while True:
        found = _fingerprint(path)
        if found != seen or holder.current is None:
            before = holder.error
            if holder.offer_file(path):
                assert holder.current is not None
                log.info(
                    "rules in force",
                    path=str(path),
                    queue=holder.current.queue_name,
                    expressions=len(holder.current.programs),
                    ignored=list(holder.current.ignored),
                )
            elif holder.error != before:
                kept = holder.current is not None
                log.error("configuration refused", error=holder.error, last_good_kept=kept)
            seen = found
        await asyncio.sleep(every_seconds)


def _fingerprint(path: Path) -> tuple[int, ...]:
    """Changes when the file does; a mounted ConfigMap is a symbolic link that is switched over."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns)
