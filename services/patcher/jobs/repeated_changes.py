"""Backs off a change of a job that another writer undoes each time.

A tenant may write a suspended JobSet into an admitted Job as its controller: the JobSet's controller suspends
the Job as often as it is released. A JobSet without a queue starts its Jobs as often as they are held, if its
template gives them one. Both sides would go on as fast as the API server answers.
"""

import asyncio
from collections import OrderedDict
from typing import Final, NamedTuple

import structlog

from services.patcher.metrics import UNDONE
from shared.bus.port import LaterError
from shared.contracts.messages.workloads import WorkloadState

log = structlog.get_logger(__name__)

FREE: Final = 3
"""Times without a pause: a user may hold and start a job by hand."""

PAUSE_SECONDS: Final = 1.0
"""Pause after the last of these; it doubles with each further one."""

RELEASE_SECONDS_MAX: Final = 60.0
HOLD_SECONDS_MAX: Final = 1.0
"""What is held does not run. So a job that somebody starts again does not run for longer than this."""

FORGET_SECONDS: Final = 600.0
JOBS_MAX: Final = 10_000
"""Jobs that are remembered; beyond them the one that was changed longest ago is forgotten."""


class _Changed(NamedTuple):
    decision: str
    times: int
    at: float
    """Loop time. A time of day that is set back would lengthen the pause, in which a job may run unheld."""


class RepeatedChanges:
    """How often this replica did one thing to each job, by the same decision."""

    def __init__(self, *, done: str, pause_seconds_max: float) -> None:
        """`done`: in a word, what is done."""
        self._done = done
        self._pause_seconds_max = pause_seconds_max
        self._changed: OrderedDict[str, _Changed] = OrderedDict()

    def check(self, state: WorkloadState, decision: str = "") -> None:
        """Raise `LaterError` if that was done too often just before."""
        last = self._last(state, decision)
        if last is None or last.times < FREE:
            return
        doubled = PAUSE_SECONDS * 2.0 ** min(last.times - FREE, 10)
        left = last.at + min(doubled, self._pause_seconds_max) - _loop_time()
        if left > 0:
            text = f"{state.namespace}/{state.name} was {self._done} {last.times} times, which was undone"
            raise LaterError(text, delay_seconds=left)

    def record(self, state: WorkloadState, decision: str = "") -> None:
        """Note that it was done."""
        last = self._last(state, decision)
        self._changed.pop(state.uid, None)
        times = 1 if last is None else last.times + 1
        if times > FREE:
            UNDONE.labels(self._done).inc()
        if times == FREE + 1:
            log.warning(
                "somebody undoes what is done to a job again and again; it is done more seldom",
                done=self._done,
                workload=state.name,
                namespace=state.namespace,
            )
        self._changed[state.uid] = _Changed(decision, times, _loop_time())
        self._forget()

    def _forget(self) -> None:
        """Forget from the oldest change on what counts no more."""
        while len(self._changed) > JOBS_MAX or self._is_old(next(iter(self._changed.values()))):
            self._changed.popitem(last=False)

    def _last(self, state: WorkloadState, decision: str) -> _Changed | None:
        last = self._changed.get(state.uid)
        if last is None or last.decision != decision:
            return None
        return None if self._is_old(last) else last

    def _is_old(self, changed: _Changed) -> bool:
        return _loop_time() - changed.at > FORGET_SECONDS


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
