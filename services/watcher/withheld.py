"""What `Synced` waits for: objects that are withheld, and that only a newer release has published.

1. A newer release publishes that an object is gone, and the next one of its name.
2. A watcher of this release begins. It can read only what was said before: the earlier object departs, and
   the next one is withheld until the pods of its namespace were looked for.
3. Whoever of this release begins to read by a `Synced` of this moment takes the next object for gone, and the
   earlier one for alive.

In: uids of what departs so, and of what has departed. Out: `settle` returns once nothing is left.
"""

import asyncio
from contextlib import suppress
from typing import Final

SECONDS_MAX: Final = 10.0
"""By then the pods were looked for, as a rule. Where they run, the earlier object is rightly alive."""


class Withheld:
    """Uids of what departs, where the next object of its name waits for that."""

    def __init__(self) -> None:
        self._uids: set[str] = set()
        self._departed = asyncio.Event()

    def add(self, uid: str) -> None:
        """The next object of its name is withheld."""
        self._uids.add(uid)

    def discard(self, uid: str) -> None:
        """It has departed."""
        self._uids.discard(uid)
        self._departed.set()

    async def settle(self) -> None:
        """Wait until nothing is withheld, for `SECONDS_MAX` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_MAX):
                while self._uids:
                    self._departed.clear()
                    await self._departed.wait()
        self._uids.clear()
