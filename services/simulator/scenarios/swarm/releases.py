"""Releases beside each other: processes are replaced by those of the next release, and perhaps back again.

The next release has raised the schema of some messages: what it writes there, this release cannot read.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final

from services.simulator.scenarios.system import System
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import SCHEMA_VERSION, without_schema
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.subjects import Stream
from shared.testing.world.memory_streams import Dialect, M

RAISED: Final = (
    Stream.OBSERVED,
    Stream.WORKLOADS,
    Stream.ADMISSIONS,
    Stream.CHECKS,
    Stream.OUTCOMES,
    Stream.QUEUES,
)
FORWARD_SECONDS: Final = (5.0, 50.0)
BACK_SECONDS: Final = (55.0, 95.0)
DOWN_SECONDS: Final = (0.1, 4.0)
NEXT: Final = "99"
"""The schema version of the next release: of no message has this one such a version."""

_INSIDE: Final = "next"
_UNDERSTOOD: Final = frozenset({Term.stream, CheckState.stream, Outcome.stream})
"""Logs whose messages keep their present fields: quota of the release before counts them."""


class AddsField(Dialect):
    """A release that added an optional field, which others ignore."""

    def written(
        self, data: bytes, headers: Mapping[str, str], *, stream: str
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return the body with a field more."""
        del stream
        body = {**json.loads(data), "addedByNextRelease": {"since": "2.0"}}
        return json.dumps(body).encode(), headers


class NextRelease(Dialect):
    """The release that raised the schema of the messages in some logs."""

    def __init__(self, raised: frozenset[str], *, writes: bool = True) -> None:
        """`writes`: False for what only reads it."""
        self._raised = raised if writes else frozenset[str]()

    def written(
        self, data: bytes, headers: Mapping[str, str], *, stream: str
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return a body in which nothing is where it was, but in what `_UNDERSTOOD` carries.

        The release before holds the quota that such a decision gives, is fenced by such a term, admits by
        such an answer of a check, and frees what such an outcome frees.
        """
        if stream not in self._raised:
            return data, headers
        body = json.loads(data)
        written = {_INSIDE: body} | (body if stream in _UNDERSTOOD else {})
        return json.dumps(written).encode(), {**headers, SCHEMA_VERSION: NEXT}

    def read(self, one: M) -> M:
        """Return what any of the two releases wrote."""
        if one.headers.get(SCHEMA_VERSION) != NEXT:
            return one
        body = json.loads(one.data)
        data = (
            json.dumps(body[_INSIDE]).encode() if _INSIDE in body else one.data
        )  # Or a large body.
        return replace(one, data=data, headers=without_schema(one.headers))


class Rollout:
    """Replaces every process by one of the next release, at its own time."""

    def __init__(self, system: System, random: Random, *, back: bool) -> None:
        """`back`: every process is replaced by one of this release again."""
        self._world = system.world
        self._random = random
        self._back = back
        some = frozenset(log for log in RAISED if random.random() < 1 / 2)
        raised = some or frozenset(RAISED)
        self._next = NextRelease(raised)
        self._replaced: set[str] = set()
        """Names of the processes that are of the next release."""

        system.newest = NextRelease(raised, writes=False)
        self._world.note(f"the next release writes {', '.join(sorted(raised))} in its own way")

    def dialect_of(self, process: str) -> Dialect:
        """How a process writes that starts now."""
        return self._next if process in self._replaced else Dialect()

    async def run(self, processes: list[str]) -> None:
        """Replace these processes."""
        await self._replace(processes, FORWARD_SECONDS, self._replaced.add)
        if self._back:
            await self._replace(processes, BACK_SECONDS, self._replaced.discard)

    async def _replace(
        self,
        processes: list[str],
        between: tuple[float, float],
        note: Callable[[str], None],
    ) -> None:
        loop, random = asyncio.get_running_loop(), self._random
        times = sorted(random.uniform(*between) for _ in processes)
        for at, process in zip(times, random.sample(processes, len(processes)), strict=True):
            await asyncio.sleep(max(0.0, at - loop.time()))
            note(process)
            self._world.note(f"{process} is replaced by another release")
            self._world.crash(process, down_seconds=self._world.between(DOWN_SECONDS))
