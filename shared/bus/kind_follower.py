"""Follows observed objects of fixed kinds and of the kinds that Integration objects define."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

from shared.bus.follow import isolated, skip
from shared.bus.port import Bus, CaughtUp, Entry
from shared.contracts.kube.kinds import INTEGRATION, Kind
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import observed_filter


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
        on_item: Callable[[Entry | CaughtUp], None],
        integrations_of: str | None = None,
    ) -> None:
        """Follow one cluster, or all if `cluster` is None.

        `integrations_of`: the cluster whose Integrations count; None: those of `cluster`.

        `filters` are always followed. `kinds` returns the kinds that integrations define at present.
        `on_item` gets every entry, and one `CaughtUp` when all existing entries have been read.
        """
        self._bus = bus
        self._cluster = cluster
        self._integrations_of = integrations_of or cluster
        self._filters = tuple(filters)
        self._kinds = kinds
        self._on_integration = on_integration
        self._on_item = on_item
        self._followed: set[str] | None = None
        """Followed filters; None until all existing integrations have been read."""

    async def run(self) -> None:
        """Follow until cancelled."""
        integrations = self._bus.watch(
            "OBSERVED", observed_filter(INTEGRATION, self._integrations_of)
        )
        async with asyncio.TaskGroup() as group, aclosing(integrations) as items:
            async for item in items:
                if not isinstance(item, CaughtUp):
                    self._read(item)
                elif self._followed is None:
                    self._followed = set()
                    filters = (*self._filters, *self._new())
                    group.create_task(self._follow(filters, first=True))
                if self._followed is not None and (new := self._new()):
                    group.create_task(self._follow(new, first=False))

    def _read(self, entry: Entry) -> None:
        try:
            observed = entry.read(Observed)
            with isolated(Observed.stream, entry.subject):
                self._on_integration(observed)
        except UndecodableError as error:
            skip(Observed.stream, entry, error)

    def _new(self) -> tuple[str, ...]:
        """Filters of kinds that are not followed yet."""
        assert self._followed is not None
        wanted = dict.fromkeys(observed_filter(kind, self._cluster) for kind in self._kinds())
        new = tuple(f for f in wanted if f not in self._followed and f not in self._filters)
        self._followed.update(new)
        return new

    async def _follow(self, filters: Sequence[str], *, first: bool) -> None:
        async with aclosing(self._bus.watch("OBSERVED", *filters)) as items:
            async for item in items:
                if first or not isinstance(item, CaughtUp):
                    self._on_item(item)
