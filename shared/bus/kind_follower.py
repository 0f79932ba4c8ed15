"""Follows observed objects of fixed kinds and of the kinds that Integration objects define."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from shared.bus.follow import dispatch, existing
from shared.bus.port import Bus, Entry
from shared.contracts.kube.kinds import INTEGRATION, Kind
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.subjects import Stream, observed_filter

KINDS: Final[tuple[type[Message], ...]] = (Observed, Synced)
"""Messages of the stream."""


class KindFollower:
    """One reader of OBSERVED. It reads integrations before objects of the kinds that they define."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str | None,
        filters: Sequence[str],
        kinds: Callable[[], Iterable[Kind]],
        on_integration: Callable[[Observed], None],
        on_entry: Callable[[Entry], bool],
        on_caught_up: Callable[[int], None],
        integrations_of: str | None = None,
    ) -> None:
        """Follow one cluster, or all if `cluster` is None.

        `integrations_of`: the cluster whose Integrations count; None: those of `cluster`.

        `filters` are always followed. `kinds` returns the kinds that integrations define at present.
        `on_entry` gets every entry. It returns False for what it cannot read: it then gets the last entry of
        the subject that can be read. `on_caught_up` gets the last sequence of the log when all existing
        entries have been read.
        """
        self._bus = bus
        self._cluster = cluster
        self._integrations_of = integrations_of or cluster
        self._filters = tuple(filters)
        self._kinds = kinds
        self._on_integration = on_integration
        self._on_entry = on_entry
        self._on_caught_up = on_caught_up
        self._followed: set[str] | None = None
        """Followed filters; None until all existing integrations have been read."""

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:

            def on_entry(entry: Entry) -> bool:
                can_be_read = dispatch(entry, {Observed: self._on_observed_integration})
                if self._followed is not None and (new := self._new()):
                    group.create_task(self._follow(new, first=False))
                return can_be_read

            filters = [observed_filter(INTEGRATION, self._integrations_of)]
            items = existing(self._bus, Stream.OBSERVED, filters, kinds=KINDS, on_entry=on_entry)
            async with aclosing(items):
                async for _ in items:
                    if self._followed is None:
                        self._followed = set()
                        first = (*self._filters, *self._new())
                        group.create_task(self._follow(first, first=True))

    def _on_observed_integration(self, observed: Observed, _entry: Entry) -> None:
        self._on_integration(observed)

    def _new(self) -> tuple[str, ...]:
        """Filters of kinds that are not followed yet."""
        assert self._followed is not None
        wanted = dict.fromkeys(observed_filter(kind, self._cluster) for kind in self._kinds())
        new = tuple(f for f in wanted if f not in self._followed and f not in self._filters)
        self._followed.update(new)
        return new

    async def _follow(self, filters: Sequence[str], *, first: bool) -> None:
        items = existing(self._bus, Stream.OBSERVED, filters, kinds=KINDS, on_entry=self._on_entry)
        async with aclosing(items):
            async for caught_up in items:
                if first:
                    self._on_caught_up(caught_up.sequence)
