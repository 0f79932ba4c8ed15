"""Predicts when a workload starts, for `sluice explain` and the console, by simulating what may come."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from services.quota.forecast import RECENT, Budget, History, Snapshot, expected_start
from services.whatif.policies import policies_of
from services.whatif.reading import LoadedState, read
from shared.bus.stream_reader import StreamReader
from shared.contracts.messages.explain import Explanation
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import HOPELESS, NEVER

_FIELDS: Final = (
    "expected_start",
    "expected_earliest",
    "expected_latest",
    "expected_from_runs",
    "expected_start_rough",
    "expected_start_unknown_because",
)

Json = dict[str, Any]


async def add_expected_starts(
    reader: StreamReader,
    items: list[Json],
    now: datetime,
    *,
    budget: Budget,
    configuration: Path | None = None,
) -> None:
    """Add to each explanation when its workload starts (80 % interval), or why that is unknown.

    `configuration` is the document that quota runs with. Raises `CommandError` if it cannot be used.
    """
    policy = policies_of(configuration).engine
    try:
        async with asyncio.timeout(budget.left):
            loaded = await read(reader, at=now, over=lambda: not budget.left)
    except TimeoutError:
        because = f"reading what happened takes longer than the budget of {budget.seconds:g} s"
        for item in items:
            item["expected_start_unknown_because"] = because
        return
    loaded.snapshot.policy = policy
    for item in items:
        _add_expected_start(loaded, item, budget)


def _add_expected_start(loaded: LoadedState, item: Json, budget: Budget) -> None:
    forecast = with_forecast(
        Explanation.model_validate(item),
        loaded.snapshot,
        history=loaded.history,
        recent=loaded.recent(RECENT),
        budget=budget,
    )
    for field in _FIELDS:
        value = getattr(forecast, field)
        item[field] = value.isoformat() if isinstance(value, datetime) else value


def with_forecast(
    item: Explanation,
    snapshot: Snapshot,
    *,
    history: History,
    recent: Sequence[WorkloadState],
    budget: Budget,
) -> Explanation:
    """The explanation with the expected start, as far as the budget goes, or with why it is unknown."""
    if item.reason in HOPELESS:
        return item.without_expected_start(NEVER)
    ident = (item.cluster, f"{item.namespace}/{item.name}")
    state = snapshot.workloads.get(ident)
    if state is None:
        return item.without_expected_start("it has left the log since")
    if history.count_of(state) == 0:
        return item.without_expected_start("no workload has ended in the last day")
    # Seeded by the uid: within the budget the same question at the same moment has the same answer.
    random = Random(state.uid)
    expected = expected_start(
        snapshot, ident, history=history, recent=recent, random=random, budget=budget
    )
    if expected is None:
        return item.without_expected_start("it has got quota since")
    doubt = expected.doubt(budget.seconds)
    if expected.at is None:
        return item.without_expected_start(doubt, earliest=expected.earliest)
    return item.with_expected_start(
        expected.at,
        earliest=expected.earliest,
        latest=expected.latest,
        runs=expected.known_runs,
        rough=doubt,
    )
