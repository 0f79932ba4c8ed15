"""Connects a command to NATS for reading, with a client that is quick to import."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from shared.bus.stream_reader import (
    JetStreamError,
    StreamReader,
    StreamReaderError,
    open_stream_reader,
)
from shared.runtime.command import CommandError, Exit
from shared.settings.access import LOCAL_NATS, OPEN, Access, access_of
from shared.settings.environment import nats_access

STATE_FILE: Final = "state.json"
"""What `sluice dev` writes into its folder."""

STREAM_NOT_FOUND: Final = 10059
_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ")


def utc_now() -> datetime:
    """The clock of the commands."""
    return datetime.now(UTC)


def nats_url_of(given: str | None, directory: Path) -> str:
    """The URL that was given, else that of the `sluice dev` in `directory`, else the default."""
    return given or state_of(directory).get("nats_url") or LOCAL_NATS


def access_for(given: str | None, directory: Path) -> Access:
    """Credentials for NATS: from the environment, else those of the `sluice dev` in `directory`."""
    access = nats_access()
    if access != OPEN or given is not None:
        return access
    known = state_of(directory).get("nats_access") or {}
    return access_of(known) if isinstance(known, dict) else OPEN


def state_of(directory: Path) -> dict[str, Any]:
    """What the `sluice dev` in `directory` says of itself; empty if there is none. Raises `CommandError`."""
    path = directory / STATE_FILE
    if not path.exists():
        return {}
    try:
        state = json.loads(path.read_text())
    except ValueError:
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("nats_url", ""), str):
        raise CommandError(str(path), "is not what `sluice dev` writes", hint="delete this file")
    return state


@asynccontextmanager
async def open_reader(given: str | None, directory: Path) -> AsyncIterator[StreamReader]:
    """A connection that reads streams. Every failure is a `CommandError` that says what to do."""
    url = nats_url_of(given, directory)
    try:
        async with open_stream_reader(url, access=access_for(given, directory)) as reader:
            yield reader
    except JetStreamError as error:
        hint = "the streams are missing: run `sluice bus apply`"
        raise CommandError(
            f"NATS at {url}",
            str(error),
            hint=hint if error.code == STREAM_NOT_FOUND else "",
            status=Exit.UNREACHABLE,
        ) from error
    except StreamReaderError as error:
        raise unreachable(url, error) from error


def unreachable(url: str, error: Exception) -> CommandError:
    """The error for a NATS server that does not answer."""
    return CommandError(
        f"NATS at {url}",
        _ERRNO.sub("", str(error)) or type(error).__name__,
        hint="is it running? `sluice dev` starts one; `--nats-url` or NATS_URL points elsewhere",
        status=Exit.UNREACHABLE,
    )
