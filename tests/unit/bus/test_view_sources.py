"""Views that hear nothing from their logs are found, and led by another server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.nats.broker import Connection
from shared.bus.nats.tails.sources import ViewSources, is_cut_off
from shared.testing.waiting import eventually

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


class Answering(Client):
    """A connection to servers that say of the view what `view` returns, and that its log is led."""

    _error_cb: Any = None

    def __init__(self, view: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self.view = view
        self.looks = 0
        self.asked: list[tuple[str, int]] = []
        """What was asked besides, and after how many looks."""

    async def request(self, subject: str, *_: Any, **__: Any) -> Msg:
        what = subject.removeprefix("$JS.API.")
        if what == "STREAM.INFO.WORKLOADS_NOW":
            self.looks += 1
        elif what != "STREAM.INFO.WORKLOADS":
            self.asked.append((what, self.looks))
        found = self.view() if what == "STREAM.INFO.WORKLOADS_NOW" else {}
        return Msg(_client=self, subject=subject, data=json.dumps(found).encode())

    async def subscribe(self, *_: Any, **__: Any) -> Any:
        return None


def led_by(leader: str, seconds: float) -> dict[str, Any]:
    return {**info(seconds), "cluster": {"leader": leader}}


Reading = Callable[[Callable[[], dict[str, Any]]], Answering]
STEPDOWN = "STREAM.LEADER.STEPDOWN.WORKLOADS_NOW"


@pytest.fixture
async def look(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reading]:
    """Looks at a view of which the servers say what is given."""
    monkeypatch.setattr("shared.bus.nats.tails.sources.LOOK_SECONDS", 0.001)
    started: list[ViewSources] = []

    def begin(view: Callable[[], dict[str, Any]]) -> Answering:
        nc = Answering(view)
        connection = SimpleNamespace(nc=nc, up=[], wait_ready=lambda: asyncio.sleep(0))
        started.append(ViewSources(cast("Connection", connection), ["WORKLOADS"], Random(1)))
        started[-1].start()
        return nc

    yield begin
    for one in started:
        one.stop()


async def test_leader_that_heard_nothing_twice_steps_down(look: Reading) -> None:
    nc = look(lambda: led_by("s0", -1e-9))
    await eventually(lambda: nc.asked)
    assert nc.asked[0] == (STEPDOWN, 2)


async def test_leader_that_another_replica_has_put_in_place_gets_its_own_looks(
    look: Reading,
) -> None:
    leaders = iter(["s0", *(f"s{number}" for number in range(1, 8))])
    hears = led_by("s9", 0)
    nc = look(lambda: led_by(one, -1e-9) if (one := next(leaders, None)) else hears)
    await eventually(lambda: nc.looks >= 12)
    assert nc.asked == [], "none of them was silent twice"


async def test_leaders_are_asked_more_seldom_where_it_does_not_help(look: Reading) -> None:
    nc = look(lambda: led_by("s0", -1e-9))
    await eventually(lambda: len(nc.asked) >= 4)
    assert [looks for _, looks in nc.asked[:4]] == [2, 2 + 4, 6 + 8, 14 + 16]


async def test_view_whose_leader_is_not_known_does_not_end_the_looks(look: Reading) -> None:
    leaders = iter([{}, {"leader": ""}])
    nc = look(lambda: {**info(-1e-9), "cluster": next(leaders, {"leader": "s0"})})
    await eventually(lambda: nc.asked)
    assert nc.asked[0][0] == STEPDOWN


async def test_view_that_hears_is_looked_at_no_more(look: Reading) -> None:
    nc = look(lambda: led_by("s0", 0))
    await eventually(lambda: nc.looks >= 5)
    await asyncio.sleep(0.05)
    assert (nc.looks, nc.asked) == (5, [])
