"""`sluice bus backup`, `restore` and `migrate`: copies all streams to files, back, and to another server.

`migrate --commit` moves nothing: it ends the time in which the release before may come back.
"""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from services.ctl.connect.progress import tell
from services.ctl.connect.reader import access_for, open_reader, unreachable
from shared.bus.admin.apply import Change
from shared.bus.admin.commit import commit, plan_commit
from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.migration import migrate, plan
from shared.bus.admin.snapshots import BackupError, Saved, backup, restore
from shared.bus.port import BusError
from shared.bus.stream_reader import SilentError, StreamReader, open_stream_reader
from shared.runtime.command import CommandError, Exit
from shared.settings.access import OPEN


async def backup_to(target: Path, *, url: str | None, directory: Path) -> None:
    """Write all streams to `target`; print the size of each."""
    await _each(backup, target, "name a folder that is new or empty", url, directory)


async def restore_from(source: Path, *, url: str | None, directory: Path) -> None:
    """Restore all streams that `backup_to` wrote; print a line for each."""
    hint = "restore into a server without these streams, before any service and `sluice bus apply`"
    await _each(restore, source, hint, url, directory)


async def migrate_from(source: str, *, url: str | None, directory: Path, yes: bool) -> None:
    """Show what would be moved from `source`, or move it. Raises `CommandError` if something cannot be."""
    refused = False
    async with (
        _source(source) as old,
        open_reader(url, directory) as new,
    ):
        # With credentials it may be another account of the same server.
        is_same = old.nc.connected_url == new.nc.connected_url
        if is_same and access_for(url, directory) == OPEN:
            raise CommandError(f"--from {source}", "is the server to which it would be moved")
        try:
            if not yes:
                for step in await plan(old.nc, new.nc, retry=ElectionRetry(tell)):
                    print(step)
                    refused |= step.action == "refused"
            else:
                with tempfile.TemporaryDirectory(prefix="sluice-migrate-") as folder:
                    moving = migrate(old.nc, new.nc, Path(folder), retry=ElectionRetry(tell))
                    async for step in moving:
                        print(step)
                        refused |= step.action == "refused"
        except BackupError as error:
            raise CommandError(source, str(error), status=Exit.FAILED) from error
        except BusError as error:
            raise CommandError("NATS", str(error), status=Exit.UNREACHABLE) from error
    if refused:
        hint = "stop every service of both servers, mend what is refused, and run it again"
        raise CommandError(source, "not everything can be moved", hint=hint, status=Exit.FAILED)


async def commit_format(*, url: str | None, directory: Path, yes: bool) -> None:
    """Show what would be committed to the format of this release, or commit it. Raises `CommandError`."""
    done: list[Change] = []
    async with open_reader(url, directory) as reader:
        try:
            if yes:
                done = [one async for one in commit(reader.nc, retry=ElectionRetry(tell))]
            else:
                done = await plan_commit(reader.nc, retry=ElectionRetry(tell))
        except BusError as error:
            raise CommandError("NATS", str(error), status=Exit.UNREACHABLE) from error
    for one in done:
        print(one)
    if any(one.action == "refused" for one in done):
        hint = "mend what is refused, and run it again"
        raise CommandError("--commit", "nothing was committed", hint=hint, status=Exit.FAILED)


@asynccontextmanager
async def _source(url: str) -> AsyncIterator[StreamReader]:
    try:
        async with open_stream_reader(url) as reader:
            yield reader
    except SilentError as error:
        raise unreachable(url, error) from error


async def _each(
    do: Callable[[StreamReader, Path, ElectionRetry], AsyncIterator[Saved]],
    folder: Path,
    hint: str,
    url: str | None,
    directory: Path,
) -> None:
    async with open_reader(url, directory) as reader:
        try:
            async for saved in do(reader, folder, ElectionRetry(tell)):
                print(saved)
        except BackupError as error:
            raise CommandError(str(folder), str(error), hint=hint, status=Exit.FAILED) from error
        except BusError as error:
            raise CommandError("NATS", str(error), status=Exit.UNREACHABLE) from error
