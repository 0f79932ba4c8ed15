"""When wait reasons are published: at low priority, so that they never delay an admission."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import Wait
from services.quota.wire.outbound import ref_of
from shared.contracts.refs import WorkloadRef

_REFILL_INTERVAL: Final = timedelta(seconds=1)
"""The budget of reasons is renewed this often."""

BUSY: Final = 10
"""More admissions than this within an interval are a load: a reason costs as much as a decision."""

REASONS_MAX: Final = 200
UNPUBLISHED_MAX: Final = 20
"""Reasons per interval: of evaluated workloads, and of workloads that are equal to evaluated ones.
The limits spread thousands of reasons over time."""

WHILE_BUSY: Final = 4
"""Reasons of each sort per interval under a load. `sluice explain` answers at once all the same."""


class ReasonSchedule:
    """The wait reasons that are not published yet, and when they are due."""

    def __init__(self, delay_seconds: float) -> None:
        """Publish no reason of workloads admitted within `delay_seconds`; 0: publish all at once."""
        self._delay = timedelta(seconds=delay_seconds)
        self._urgent: dict[WorkloadRef, Wait] = {}
        self._delayed: OrderedDict[WorkloadRef, tuple[datetime, Wait]] = OrderedDict()
        """(due time, reason), in order of the due time."""

        self._refill_at: datetime | None = None
        """When the budget is renewed; None: there is nothing to publish."""

        self._admissions = 0
        """Admissions since the last refill."""

        self._budget = REASONS_MAX
        """Reasons that may still be published until the next refill."""

    def enqueue(self, ref: WorkloadRef, wait: Wait, now: datetime, *, at_once: bool) -> None:
        """Plan to publish `wait`; it replaces an earlier reason of the workload."""
        if at_once or not self._delay or ref in self._urgent:
            self._delayed.pop(ref, None)
            self._urgent[ref] = wait
        else:
            due, _ = self._delayed.get(ref, (now + self._delay, wait))
            self._delayed[ref] = (due, wait)

    def expedite(self, ref: WorkloadRef) -> bool:
        """Publish the workload's reason with the next decisions; return whether there is one."""
        if ref in self._delayed:
            self._urgent[ref] = self._delayed.pop(ref)[1]
        return ref in self._urgent

    def forget(self, ref: WorkloadRef) -> None:
        """Drop the reason: the workload does not wait any more, or for something else."""
        self._urgent.pop(ref, None)
        self._delayed.pop(ref, None)

    def count_admission(self) -> None:
        """Count an admission, to recognise a load."""
        self._admissions += 1

    def refill(self, engine: QuotaEngine, now: datetime) -> None:
        """Once per interval, renew the budget and add reasons that the engine has not published yet."""
        if self._refill_at is None:
            self._budget = REASONS_MAX
        elif (
            not now < self._refill_at <= now + _REFILL_INTERVAL
        ):  # It is time, or the clock was set back.
            self._refill_at = None
            busy = self._admissions > BUSY
            self._budget = WHILE_BUSY if busy else REASONS_MAX
            for wait in engine.unpublished_reasons(WHILE_BUSY if busy else UNPUBLISHED_MAX):
                self.enqueue(ref_of(wait), wait, now, at_once=True)
        if self._refill_at is None and (self._delayed or engine.has_unpublished_reasons):
            self._refill_at = now + _REFILL_INTERVAL
            self._admissions = 0

    def due_reasons(
        self, now: datetime, only: Callable[[WorkloadRef], bool] | None = None
    ) -> Iterator[tuple[WorkloadRef, Wait]]:
        """Remove and yield the reasons that are due; with `only`, urgent ones of such workloads alone."""
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
        """When `due_reasons` has more to yield; None: not before another reason is enqueued."""
        first, _ = next(iter(self._delayed.values()), (None, None))
        times = (at for at in (first, self._refill_at) if at is not None and at > now)
        return min(times, default=None)
