"""Forecasts within a budget: what is played, and how sure the answer is."""

from datetime import timedelta
from random import Random

import pytest

from services.ctl.inspect.explain import expected
from services.quota.forecast import ExpectedStart, FinishedRun, History, Snapshot
from services.quota.forecast import expected_start as forecast
from services.quota.forecast import expected_starts as forecast_of_all
from services.quota.forecast.simulation import Arrival, Simulation
from services.quota.wire.inbound import nanoseconds
from services.whatif.expected_start import with_forecast
from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import observed
from tests.simulation.forecasts.futures import (
    AT,
    CLUSTER,
    SECOND,
    admitted,
    explanation_of,
    queue,
    set_up,
    ticking,
    waiting,
)

NOW = AT + timedelta(minutes=30)


def history_of(state: WorkloadState, seconds: float) -> History:
    history = History()
    for _ in range(20):
        history.add(FinishedRun(state=state, seconds=seconds))
    return history


def busy(*, nominal: str = "2") -> tuple[Snapshot, WorkloadState, list[WorkloadState]]:
    """A full queue, one that waits, and what came before: one a second that goes first."""
    recent = [
        waiting(f"urgent-{n}", NOW - timedelta(seconds=600 - n), priority=100) for n in range(600)
    ]
    asked = waiting("patient", NOW)
    snapshot = Snapshot(at=NOW, observed={o.subject: o for o in set_up(nominal)})
    for state in (*recent[-60:], asked):
        snapshot.workloads[CLUSTER, f"team/{state.name}"] = state
    for state in recent[-60:-58]:
        snapshot.admissions[CLUSTER, f"team/{state.name}"] = admitted(state, NOW)
    return snapshot, asked, recent


@pytest.mark.parametrize(
    ("seconds", "rough"),
    [(60.0, ""), (0.05, " of 40 futures played in 0.05 s")],
    ids=["all futures are played", "the budget ends before"],
)
def test_explanation_gets_an_expected_start(seconds: float, rough: str) -> None:
    running, pending = waiting("one", AT, cpu=10), waiting("two", AT, cpu=10)
    snapshot = Snapshot(at=AT + timedelta(minutes=4), observed={o.subject: o for o in set_up("14")})
    for state in (running, pending):
        snapshot.workloads[CLUSTER, f"team/{state.name}"] = state
    snapshot.admissions[CLUSTER, f"team/{running.name}"] = admitted(running, AT)

    told = with_forecast(
        explanation_of(pending),
        snapshot,
        history=history_of(running, 600.0),
        recent=[],
        budget=ticking(seconds),
    )

    assert told.expected_start == told.expected_latest == AT + timedelta(minutes=10)
    assert told.expected_start_rough.removeprefix("rough: ").lstrip("0123456789") == rough
    line = expected(told.model_dump(mode="json", exclude_none=True), AT)
    assert line.startswith("in 10m (80 %: "), line
    assert line.endswith(f"{told.expected_start_rough})"), line


def test_expected_start_without_history_is_unknown() -> None:
    snapshot, asked, _ = busy()

    told = with_forecast(
        explanation_of(asked), snapshot, history=History(), recent=[], budget=ticking(60)
    )

    assert told.expected_start_unknown_because == "no workload has ended in the last day"


def test_forecast_that_comes_too_late_says_why_it_is_none() -> None:
    snapshot, asked, recent = busy()
    past, ident = history_of(asked, 300.0), (CLUSTER, f"team/{asked.name}")
    snapshot.admissions[ident] = admitted(asked, NOW)

    def because() -> str:
        told = with_forecast(
            explanation_of(asked), snapshot, history=past, recent=recent, budget=ticking(60)
        )
        assert told.expected_start is None
        return told.expected_start_unknown_because

    assert because() == "it has got quota since"
    del snapshot.workloads[ident]
    assert because() == "it has left the log since"


def test_spent_budget_says_only_when_it_starts_at_the_earliest() -> None:
    snapshot, asked, recent = busy()
    past = history_of(asked, 300.0)

    told = with_forecast(
        explanation_of(asked), snapshot, history=past, recent=recent, budget=ticking(0.2)
    )

    assert told.expected_start is None
    assert told.expected_earliest is not None
    assert told.expected_earliest > NOW
    because = "the forecast found no start in the 0.2 s that it may take"
    assert told.expected_start_unknown_because == because
    item = told.model_dump(mode="json", exclude_none=True)
    later = NOW + timedelta(minutes=3)
    assert expected(item | {"expected_earliest": later.isoformat()}, NOW) == (
        f"in 3m at the earliest: {because}"
    )
    soon = NOW + timedelta(seconds=2)  # That it does not start at once needs no telling.
    assert expected(item | {"expected_earliest": soon.isoformat()}, NOW) == f"unknown: {because}"


def test_futures_end_early_where_none_starts_it() -> None:
    snapshot, asked, _ = busy()
    asked = asked.model_copy(update={"pod_sets": waiting("x", NOW, cpu=64).pod_sets})
    snapshot.workloads[CLUSTER, f"team/{asked.name}"] = asked

    told = play(snapshot, asked, [])

    assert (told.at, told.latest, told.futures, told.cut) == (None, None, 8, 0)
    assert (
        told.doubt(2.0) == "it does not start within 24 h in most of the 8 futures that were played"
    )


@pytest.mark.parametrize(
    "seconds_before",
    [[1800], [60], [1e-6], [600, 600, 600], [1800, 1e-6], [1800, 1e-6, 1e-6]],
    ids=["one", "a late one", "right now", "all at once", "two", "three"],
)
def test_few_recent_submissions_are_enough_for_a_forecast(seconds_before: list[float]) -> None:
    """A stretch of the past that hardly ever has a submission must not be sought forever."""
    snapshot, asked, _ = busy()
    recent = [
        waiting(f"few-{n}", NOW - timedelta(seconds=before))
        for n, before in enumerate(seconds_before)
    ]

    told = play(snapshot, asked, recent)

    assert told.at is not None
    assert told.futures == told.wanted


def test_run_times_in_use_stay_when_more_workloads_end() -> None:
    """The console's view records runs while a simulation in a thread draws from the known ones."""
    state = waiting("one", AT)
    history = history_of(state, 100.0)
    sample = history.sampler(state)
    drawn = [sample(Random(seed)) for seed in range(10)]

    for _ in range(300):
        history.add(FinishedRun(state=state, seconds=900.0))

    assert [sample(Random(seed)) for seed in range(10)] == drawn
    assert history.median_seconds(state) == 900.0


def test_submissions_of_other_cohorts_are_not_played() -> None:
    snapshot, asked, recent = busy(nominal="61")
    other = observed(kinds.LOCAL_QUEUE, "elsewhere", {"clusterQueue": "far"}, "team")
    snapshot.observed |= {o.subject: o for o in (queue("1", "far", cohortName="x"), other)}
    strangers = [
        waiting(f"far-{n}", NOW - timedelta(milliseconds=n), queue="elsewhere") for n in range(2000)
    ]

    alone, beside = (play(snapshot, asked, [*recent, *more]) for more in ([], strangers))

    assert alone == beside


def play(snapshot: Snapshot, asked: WorkloadState, recent: list[WorkloadState]) -> ExpectedStart:
    told = forecast(
        snapshot,
        (CLUSTER, f"team/{asked.name}"),
        history=history_of(asked, 300.0),
        recent=recent,
        random=Random(1),
    )
    assert told is not None
    return told


def test_instants_of_an_imprecise_simulation_grow_with_the_logarithm_of_time() -> None:
    snapshot = Snapshot(at=NOW, observed={o.subject: o for o in set_up("1000000")})
    begin = nanoseconds(NOW)

    def instants(count: int) -> int:
        known = snapshot.arrival(waiting("one", NOW), History())
        assert known is not None
        later = (
            Arrival(fact=known.fact, at=begin + n * SECOND, runs_for=SECOND) for n in range(count)
        )
        simulation = Simulation(
            set_up=snapshot.configuration(), later=later, start=begin, precision=10
        )
        count_of = 0

        def counted(_played: Simulation) -> bool:
            nonlocal count_of
            count_of += 1
            return False

        simulation.run(done=counted)
        return count_of

    few, many = instants(500), instants(5000)
    assert few < 100
    assert many - few < 60, "ten times the time takes as many instants more as the first ten took"


@pytest.mark.parametrize(
    ("seconds", "foreseen"),
    [(60.0, 70), (0.3, 1)],
    ids=["all futures are played", "the budget ends before the last ones start"],
)
def test_one_forecast_tells_the_start_of_each_workload_that_waits(
    seconds: float, foreseen: int
) -> None:
    running = waiting("runs", AT)
    rows = [waiting(f"w{number:02}", AT + timedelta(seconds=number)) for number in range(1, 71)]
    snapshot = Snapshot(at=AT + timedelta(minutes=4), observed={o.subject: o for o in set_up("1")})
    for state in (running, *rows):
        snapshot.workloads[CLUSTER, f"team/{state.name}"] = state
    snapshot.admissions[CLUSTER, f"team/{running.name}"] = admitted(running, AT)
    idents = [(CLUSTER, f"team/{state.name}") for state in (running, *rows)]

    told = forecast_of_all(
        snapshot,
        CLUSTER,
        "main",
        idents,
        history=history_of(running, 600.0),
        recent=[],
        random=Random(1),
        budget=ticking(seconds),
    )

    assert list(told) == idents[1:], "what holds quota starts no more"
    starts = [each.at for each in told.values()]
    known = [at for at in starts if at is not None]
    assert len(known) >= foreseen
    assert known[0] == AT + timedelta(minutes=10)
    assert known == sorted(known), "each waits for the one before"
    # Of the others it is known that they come later.
    assert all(each.earliest >= known[-1] for each in told.values() if each.at is None)
