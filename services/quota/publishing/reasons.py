"""When each workload that waits is told why: nobody's admission stands in line behind a reason."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import Wait
from services.quota.wire.outbound import ref_of
from shared.contracts.refs import WorkloadRef

__all__ = ["ReasonSchedule"]

_LOOK: Final = timedelta(seconds=1)
"""Between two looks at who is still to be told."""

BUSY: Final = 10
"""So many let in between two looks are a load: a reason costs as much as a decision."""

TOLD_MAX: Final = 200
LATE_MAX: Final = 20
"""Of those who were looked at themselves, and of those like others that were, so many are told at each
look: thousands must not cost a burst."""

WHILE_BUSY: Final = 4
"""So many of each under a load. Who asks (`sluice explain`) hears it at once."""


class ReasonSchedule:
    """The reasons that nobody was told yet."""

    def __init__(self, delay_seconds: float) -> None:
        """Who is let in sooner than after `delay_seconds` is told nothing; 0: everybody, at once."""
        self._delay = timedelta(seconds=delay_seconds)
        self._urgent: dict[WorkloadRef, Wait] = {}
        self._delayed: OrderedDict[WorkloadRef, tuple[datetime, Wait]] = OrderedDict()
        """With the time from which on each is to be told. In order of that time."""

        self._refill_at: datetime | None = None
        """The next look; None: there is nobody to be told."""

        self._admissions = 0
        """Since the last look."""

        self._budget = TOLD_MAX
        """How many more are told until the next look."""

    def enqueue(self, ref: WorkloadRef, wait: Wait, now: datetime, *, at_once: bool) -> None:
        """It waits for that reason; one that was put before is not true any more."""
        if at_once or not self._delay or ref in self._urgent:
            self._delayed.pop(ref, None)
            self._urgent[ref] = wait
        else:
            due, _ = self._delayed.get(ref, (now + self._delay, wait))
            self._delayed[ref] = (due, wait)

    def expedite(self, ref: WorkloadRef) -> bool:
        """Tell it at once, if there is something to be told; whether there is."""
        if ref in self._delayed:
            self._urgent[ref] = self._delayed.pop(ref)[1]
        return ref in self._urgent

    def forget(self, ref: WorkloadRef) -> None:
        """It does not wait any more, or not for that."""
        self._urgent.pop(ref, None)
        self._delayed.pop(ref, None)

    def count_admission(self) -> None:
        """One more was given quota."""
        self._admissions += 1

    def refill(self, engine: QuotaEngine, now: datetime) -> None:
        """Once a second: see how many may be told, and find some whom the engine has not told yet."""
        if self._refill_at is None:
            self._budget = TOLD_MAX
        elif not now < self._refill_at <= now + _LOOK:  # It is time, or the clock was set back.
            self._refill_at = None
            busy = self._admissions > BUSY
            self._budget = WHILE_BUSY if busy else TOLD_MAX
            for wait in engine.unpublished_reasons(WHILE_BUSY if busy else LATE_MAX):
                self.enqueue(ref_of(wait), wait, now, at_once=True)
        if self._refill_at is None and (self._delayed or engine.has_unpublished_reasons):
            self._refill_at = now + _LOOK
            self._admissions = 0

    def due_reasons(
        self, now: datetime, only: Callable[[WorkloadRef], bool] | None = None
    ) -> Iterator[tuple[WorkloadRef, Wait]]:
        """Take out who is to be told now: of those that are told at once `only` some, and no others."""
        for ref in [ref for ref in self._urgent if only is None or only(ref)]:
            yield ref, self._urgent.pop(ref)
        while only is None and self._budget and self._delayed:
            ref, (due, wait) = next(iter(self._delayed.items()))
            if now < due <= now + self._delay:
                return
            del self._delayed[ref]
            self._budget -= 1
            yield ref, wait

    def next_at(self, now: datetime) -> datetime | None:
        """When somebody is to be told whom `due` has not told now; None: never, without news."""
        first, _ = next(iter(self._delayed.values()), (None, None))
        times = (at for at in (first, self._refill_at) if at is not None and at > now)
        return min(times, default=None)
