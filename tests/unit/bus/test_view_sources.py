"""`STREAM.INFO` of a view says whether it hears from its log."""

from typing import Any

import pytest

from shared.bus.nats.tails.sources import is_cut_off

SECOND = 10**9


def info(*active: float, replicas: int = 3) -> dict[str, Any]:
    sources = [{"name": "WORKLOADS", "active": int(one * SECOND)} for one in active]
    return {"config": {"num_replicas": replicas}, "sources": sources}


CUT_OFF = {
    "never heard since another server leads it": info(-1e-9),
    "silent for four seconds": info(4),
    "without a word about its activity": {**info(), "sources": [{"name": "WORKLOADS"}]},
}
HEARS = {
    "heard just now": info(0),
    "heard a second ago": info(1),
    "on one server, which elects nobody": info(-1e-9, replicas=1),
    "a log, which takes in nothing": {"config": {"num_replicas": 3}},
}


@pytest.mark.parametrize("view", CUT_OFF.values(), ids=CUT_OFF)
def test_view_is_cut_off(view: dict[str, Any]) -> None:
    assert is_cut_off(view)


@pytest.mark.parametrize("view", HEARS.values(), ids=HEARS)
def test_view_hears_from_its_log(view: dict[str, Any]) -> None:
    assert not is_cut_off(view)
