"""What `make bench-days` counts: what a service keeps, and how much it grows from day to day."""

import asyncio
import subprocess
import sys
from typing import Any, Final

import pytest
import structlog

from services.simulator.scenarios.port import Verdict
from shared.contracts import subjects
from shared.testing.world.loop import Group, VirtualLoop
from tests.days import beside, days
from tests.days.kept import kept_bytes

MANY = 10_000
"""Bytes of a thing that is easily seen."""


class Holder:
    """Something with attributes."""

    def __init__(self, thing: object) -> None:
        self.thing = thing


def _closure(thing: object) -> Any:
    return lambda: thing


class Homeless(Holder):
    """Of no module, as some classes of libraries in C."""

    __module__: Any = None


KEPT: dict[str, tuple[object, bool]] = {
    "bytes in a list": ([bytes(MANY)], True),
    "bytes as an attribute": (Holder(bytes(MANY)), True),
    "bytes in an object of no module": (Homeless(bytes(MANY)), True),
    "bytes that a function holds": (_closure(bytes(MANY)), True),
    "a module and what it holds": (subjects, False),
    "code": (_closure.__code__, False),
    "a class": (Holder, False),
    "what a logger knows": (structlog.get_logger("x").bind(thing=bytes(MANY)), False),
    "what belongs to the world": (Verdict(seed=1, log=["." * MANY]), False),
}


@pytest.mark.parametrize(("root", "counts"), KEPT.values(), ids=list(KEPT))
def test_kept_bytes_count_only_objects_that_the_process_keeps(root: object, counts: bool) -> None:
    assert (kept_bytes([root]) >= MANY) is counts


def test_a_thing_that_is_held_twice_counts_once() -> None:
    thing = bytes(MANY)
    assert kept_bytes([[thing], [thing]]) < 2 * MANY


def test_what_a_timer_will_be_called_with_counts_unless_it_is_cancelled() -> None:
    loop = VirtualLoop()
    group, thing = Group("one"), bytes(MANY)
    timer = loop.call_later(60, print, thing, context=loop.context_of(group))
    assert kept_bytes(loop.called_later(group)) >= MANY
    assert loop.called_later(Group("other")) == []
    timer.cancel()
    assert loop.called_later(group) == []
    loop.dispose()


def test_what_a_waiting_coroutine_holds_counts_for_its_own_group_only() -> None:
    loop = VirtualLoop()
    groups = [Group("one"), Group("other")]

    async def wait(thing: bytes) -> None:
        await asyncio.Event().wait()
        assert thing

    for group, size in zip(groups, (MANY, 1), strict=True):
        loop.create_task(wait(bytes(size)), context=loop.context_of(group))
    loop.run_until_complete(asyncio.sleep(1))
    sizes = [kept_bytes(loop.tasks_of(group)) for group in groups]
    loop.dispose()
    assert sizes[0] - sizes[1] == pytest.approx(MANY, abs=100)


SLOPES = {
    "what stays as it is": ((3.0, 3.0, 3.0), 0.0),
    "one more each day": ((1.0, 2.0, 3.0, 4.0), 1.0),
    "less each day": ((4.0, 2.0), -2.0),
    "a step, and then nothing": ((0.0, 1.0, 1.0, 1.0), 0.3),
}


@pytest.mark.parametrize(("values", "expected"), SLOPES.values(), ids=list(SLOPES))
def test_the_slope_is_that_of_a_line_through_all_days(
    values: tuple[float, ...], expected: float
) -> None:
    assert days.slope(values) == pytest.approx(expected)


def alone(code: str) -> str:
    """What a process of its own prints: another one keeps all that its tests have ever imported."""
    begin = "from services.simulator.scenarios.port import Verdict\nfrom tests.days import days\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_short_days_pass_and_all_work_ends() -> None:
    printed = alone(
        "verdict = Verdict(seed=1)\n"
        "seen = days.measure(3, 6, verdict, day_seconds=1200)\n"
        "print(verdict.problems, seen.submitted, seen.ended)\n"
        "print({len(sizes) for sizes in seen.kept.values()}, *seen.kept)\n"
    )
    first, *_, counts, kept = printed.splitlines()
    assert first.startswith("day 1, 6 of 6 ended, MiB: ")
    assert counts == "[] 18 18"
    assert kept.startswith("{3} ")
    assert {"quota", "webhook", "tracer", "console"} <= {*kept.split()}


IDLE = {
    "the webhook let 0 of 3 jobs in": (beside.ReviewingWebhook, "review"),
    "the collector got no trace": (beside.TakingCollector, "export"),
    "the console showed nothing": (beside.OpenConsole, "_look"),
}


@pytest.mark.parametrize(("said", "idle"), IDLE.items(), ids=list(IDLE))
def test_a_service_that_nobody_used_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, said: str, idle: tuple[type, str]
) -> None:
    async def nothing(*_: object) -> bool:
        return True

    monkeypatch.setattr(*idle, nothing)
    monkeypatch.setattr(days, "_sizes", lambda _system: iter(()))
    verdict = Verdict(seed=1)
    days.measure(1, 3, verdict, day_seconds=600)
    assert verdict.problems == [said]


LEAK: Final = """
leaked = []
sizes = days._sizes

def leak(system):
    leaked.append(bytes(1 << 20))
    patcher = system.world.processes["patcher-1"].group
    task = system.world.loop.tasks_of(patcher)[0]
    kept = list(leaked)
    task.add_done_callback(lambda _task: kept)  # A task has no attributes of its own.
    return sizes(system)

days._sizes = leak
seen = days.measure(3, 2, Verdict(seed=1), day_seconds=600)
print(days.slope(seen.kept["patcher"]), days.slope(seen.kept["quota"]))
"""


def test_a_service_that_keeps_something_of_each_day_is_seen() -> None:
    *_, slopes = alone(LEAK).splitlines()
    patcher, quota = map(float, slopes.split())
    assert patcher > 1
    assert quota < 0.5
