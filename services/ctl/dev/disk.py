"""Says when the disk is full on which `sluice dev` keeps its data, and when it is not any more."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

LITTLE_BYTES: Final = 1024 * 1024
"""With less room than this nats-server cannot write its next block."""

LOOK_SECONDS: Final = 2.0


async def watch_disk(
    directory: Path, say: Callable[[str], None], *, look_seconds: float = LOOK_SECONDS
) -> None:
    """Say once that the disk is full, and once that there is room again. Until cancelled."""
    was_full = False
    while True:
        is_full = _free_bytes(directory) < LITTLE_BYTES
        if is_full and not was_full:
            say(f"{directory}: the disk is full: nothing is stored or admitted until there is room")
        elif was_full and not is_full:
            say(f"{directory}: the disk has room again")
        was_full = is_full
        await asyncio.sleep(look_seconds)


def _free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:  # Somebody removed the folder: that is no full disk.
        return LITTLE_BYTES
