"""Tells workloads that wait why, when there is time: nobody's admission stands in line behind a reason."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.pacing import Backlog, Load, Pace, keep_writing

__all__ = ["Reasons"]

BURST: Final = 20
READ_SECONDS: Final = 0.1
"""Between two looks whether the mirror has read what was there."""

_Name = tuple[str, str]
"""Namespace and name."""

Write = Callable[[str, str], Awaitable[None]]
"""Writes what is then true of one workload, if it still waits."""


class Reasons:
    """The workloads whose reason is still to be written: ours first, other people's in their own time."""

    def __init__(
        self, *, mirror: Mirror, per_second: float, foreign_per_second: float, load: Load
    ) -> None:
        self._mirror = mirror
        self._own: Backlog[_Name, None] = Backlog()
        self._foreign: Backlog[_Name, None] = Backlog()
        self._own_pace = Pace(per_second, burst=BURST)
        self._foreign_pace = Pace(foreign_per_second, load=load)

    def put(self, namespace: str, name: str, *, foreign: bool) -> None:
        """Its reason changed. What is written is what will be true then."""
        (self._foreign if foreign else self._own).put((namespace, name), None)

    def discard(self, namespace: str, name: str) -> None:
        """It does not wait any more."""
        self._own.discard((namespace, name))
        self._foreign.discard((namespace, name))

    async def run(self, write: Write) -> None:
        """Write until cancelled; what an earlier process left unwritten first."""

        async def one(key: _Name, _value: None) -> None:
            await write(*key)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._recall())
            group.create_task(keep_writing(self._own, one, self._own_pace, what="reason"))
            group.create_task(keep_writing(self._foreign, one, self._foreign_pace, what="reason"))

    async def _recall(self) -> None:
        while self._mirror.not_synced() is not None:  # noqa: ASYNC110 - it is asked once, at the start
            await asyncio.sleep(READ_SECONDS)
        for admission in self._mirror.admissions():
            if admission.state == "waiting":
                state = self._mirror.workload(admission.namespace, admission.name)
                if state is not None:
                    self.put(admission.namespace, admission.name, foreign=state.owner is None)
