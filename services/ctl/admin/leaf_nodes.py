"""`sluice bus disconnect`: closes leaf nodes whose key is no longer accepted."""

from pathlib import Path
from typing import Final

from services.ctl.connect.reader import open_reader
from shared.bus.admin.leaf_nodes import NobodyAnswersError, disconnect, without_key
from shared.runtime.command import CommandError, Exit

_HINT: Final = (
    "use the key of `operator` or `bus`; make users that are older by `sluice bus permissions`"
)


async def disconnect_retired(*, url: str | None, directory: Path) -> None:
    """Close them at all servers; print a line for each. Raises `CommandError`."""
    async with open_reader(url, directory) as reader:
        try:
            found = await without_key(reader.nc)
            for leaf in found:
                await disconnect(reader.nc, leaf)
                print(f"{leaf}: closed ({leaf.account} is gone)")
        except NobodyAnswersError as error:
            raise CommandError("NATS", str(error), hint=_HINT, status=Exit.FAILED) from error
    if not found:
        print("the key of every leaf node is accepted")
