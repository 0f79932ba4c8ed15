"""Predicts when a workload starts, for `sluice explain`, by simulating from the streams."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from services.quota.forecast import expected_start
from services.quota.policy import policy_of
from services.whatif.reading import LoadedState, configured, read
from shared.bus.stream_reader import StreamReader

RECENT: Final = timedelta(hours=3)
"""Forecasts assume that the submissions of this time come again."""

Json = dict[str, Any]


async def add_expected_starts(
    reader: StreamReader, items: list[Json], now: datetime, *, configuration: Path | None = None
) -> None:
    """Add to each explanation when its workload starts (80 % interval), or why that is unknown.

    `configuration` is the document that quota runs with. Raises `CommandError` if it cannot be used.
    """
    policy = policy_of(configured(configuration))
    loaded = await read(reader, at=now)
    loaded.snapshot.policy = policy
    for item in items:
        _add_expected_start(loaded, item)


def _add_expected_start(loaded: LoadedState, item: Json) -> None:
    ident = (item["cluster"], f"{item['namespace']}/{item['name']}")
    state = loaded.snapshot.workloads.get(ident)
    if state is None:
        return
    if loaded.history.count_of(state) == 0:
        item["expected_start_unknown_because"] = "no workload has ended in the last day"
        return
    expected = expected_start(
        loaded.snapshot,
        ident,
        past=loaded.history,
        recent=loaded.recent(RECENT),
        # Seeded by the uid: the same question at the same moment has the same answer.
        random=Random(state.uid),
    )
    if expected is None:
        item["expected_start_unknown_because"] = "in most of the possible futures it does not start"
        return
    item.pop("expected_start_unknown_because", None)
    item["expected_start"] = expected.at.isoformat()
    item["expected_earliest"] = expected.earliest.isoformat()
    item["expected_latest"] = None if expected.latest is None else expected.latest.isoformat()
    item["expected_from_runs"] = expected.known_runs
