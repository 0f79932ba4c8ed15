"""What each namespace has in the view of `OBSERVED`: nobody's objects push out those of others.

A view drops its oldest messages when it is full: queues, which seldom change, and jobs that run. Who begins
to read then takes them for gone. Tombstones are small and leave the view in time; objects that exist stay.
While more than half of the view is in use, what a namespace adds above its share is published without its
contents (`observe.shortened`): a job that waits goes on waiting, with that reason.

A spoke has a share of its own, too, which its gateway keeps.
"""

from typing import Final

import structlog

from shared.bus.port import Bus, BusError
from shared.bus.streams import view_of
from shared.contracts.messages.observed import Observed

log = structlog.get_logger(__name__)

SHARE_BYTES: Final = 512 << 20
"""What a namespace may have in a view that is more than half full: an eighth of the view as it ships."""

CROWDED: Final = 0.5
"""Fullness of the view from which on shares are kept."""

SMALL_BYTES: Final = 4 << 10
"""A message that is told as it is: without its contents it would not be much smaller."""

NOTE: Final = "an object in a namespace that has its share of the view"
"""What a message without contents says of its object."""

LOOKS: Final = 64
"""The view is looked at again when one of so many parts of a share was published."""


class NamespaceShares:
    """The bytes of the objects of each namespace, as one watcher knows them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sizes: dict[str, int] = {}
        """By subject; only of objects in namespaces."""

        self._held: dict[str, int] = {}
        """By namespace, as the subject has it."""

        self._unlooked = SHARE_BYTES
        """Bytes of those above their share since the last look at the view."""

        self._crowded = False

    def record(self, subject: str, size: int) -> None:
        """Record the size of the last message about an object; 0: it is gone."""
        namespace = subject.split(".")[3]
        grown = size - self._sizes.get(subject, 0)
        if namespace == "_" or not grown:
            return
        if size:
            self._sizes[subject] = size
        else:
            del self._sizes[subject]
        self._held[namespace] = self._held.get(namespace, 0) + grown
        if not self._held[namespace]:
            del self._held[namespace]

    async def has_room(self, subject: str, size: int) -> bool:
        """Whether a message may be as large as that."""
        held = self._held.get(subject.split(".")[3], 0) - self._sizes.get(subject, 0)
        if size <= SMALL_BYTES or held + size <= SHARE_BYTES:
            return True
        self._unlooked += size
        if self._unlooked > SHARE_BYTES // LOOKS:
            await self._look()
        return not self._crowded

    async def _look(self) -> None:
        self._unlooked = 0
        try:
            self._crowded = (await self._bus.log_end(view_of(Observed.stream))).fullness > CROWDED
        except BusError as error:
            log.warning("fullness of the view is unknown", error=str(error))
