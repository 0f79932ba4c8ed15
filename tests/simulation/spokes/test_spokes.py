"""Hub and spokes in unkind worlds: twenty each time, two hundred in `make test-long`.

`make simulate SCENARIO=spokes SEEDS=10000` plays more.

In one world of seven a spoke lies. The judge is worth what it finds: each planted mistake is one that two
running copies come of.
"""

import io
from collections.abc import Callable
from typing import Any

import pytest

from services.dispatcher.planning import plan
from services.patcher.multikueue import copies
from services.patcher.multikueue.copies import CopyReconciler
from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.runner import run
from tests.simulation.long import long
from tests.simulation.mistakes import finds

SEEDS = 10
SEEDS_LONG = 200
AT_ONCE = 10
"""Few enough that a slow machine plays them in the time that a test has."""


@pytest.mark.parametrize(
    "first",
    [
        *range(1, SEEDS + 1, AT_ONCE),
        *(long(first) for first in range(SEEDS + 1, SEEDS_LONG + 1, AT_ONCE)),
    ],
)
def test_jobs_are_neither_lost_nor_repeated_and_the_system_settles_after_faults(first: int) -> None:
    out = io.StringIO()
    status = run("spokes", AT_ONCE, start=first, jobs=1, out=out)
    said = out.getvalue()
    assert status == 0, said
    assert said.splitlines()[-1] == f"simulate: spokes: {AT_ONCE} of {AT_ONCE} seeds ok"


async def starts_anything(*_: Any) -> bool:
    """A patcher that takes a spoke's quota for leave to start: it asks the log for no order."""
    return True


async def stops_nothing(*_: Any) -> None:
    """A patcher that lets copies run on whose leases it cannot renew."""


def believes(*_: Any) -> list[str]:
    """A dispatcher that takes a withdrawn copy for one that is gone."""
    return []


@pytest.mark.parametrize(
    ("where", "name", "mistake", "seed"),
    [
        pytest.param(CopyReconciler, "may_start", starts_anything, 15, id="no fence"),
        pytest.param(CopyReconciler, "stop", stops_nothing, 33, id="no lease"),
        pytest.param(plan, "may_still_run", believes, 21, id="no confirmation"),
    ],
)
def test_judge_finds_two_running_copies(
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    mistake: Callable[..., Any],
    seed: int,
) -> None:
    monkeypatch.setattr(where, name, mistake)
    assert finds(SCENARIOS["spokes"], "at once", seed)


def test_judge_finds_copy_whose_end_was_lost_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_only_our_finalizer_left", lambda _metadata: True)
    assert finds(SCENARIOS["spokes"], "is started again", 14)
