"""When will it start? Asked at submission on worlds whose future is known, and compared with it."""

from datetime import timedelta
from random import Random
from statistics import median

import pytest

from services.quota.forecast import ExpectedStart, expected_start
from services.quota.forecast.simulation import NEVER
from services.quota.wire.inbound import nanoseconds
from tests.simulation.forecasts.futures import CLUSTER, Submission, World, set_up, submissions
from tests.simulation.long import long

SUBMISSIONS = 2100
ASKED_FROM = 300
"""The first ones are there to learn from."""

ASK_EVERY = 15
"""Those who wait for the same long run are right or wrong together: ask far apart."""

LOOK_BACK = timedelta(hours=3)


def ask(world: World, each: Submission, random: Random) -> ExpectedStart | None:
    """What is answered at the moment of the submission."""
    picture, past = world.at(each.state.created_at)
    recent = [
        s.state
        for s in world.stream
        if each.state.created_at - LOOK_BACK <= s.state.created_at < each.state.created_at
    ]
    return expected_start(
        picture, (CLUSTER, f"team/{each.state.name}"), history=past, recent=recent, random=random
    )


def holds(expected: ExpectedStart, started_at: int) -> bool:
    """Whether it started within the interval that was told; times are told in microseconds."""
    latest = NEVER if expected.latest is None else nanoseconds(expected.latest) + 1000
    return nanoseconds(expected.earliest) - 1000 <= started_at <= latest


@pytest.mark.parametrize("seed", [101, long(202), long(303)])
def test_forecast_interval_is_calibrated_and_its_median_beats_the_mean(seed: int) -> None:
    random = Random(seed)
    stream = list(submissions(random, SUBMISSIONS))
    world = World(stream, objects=set_up())
    asked = [
        (each, expected)
        for each in stream[ASKED_FROM::ASK_EVERY]
        if (expected := ask(world, each, Random(seed))) is not None and expected.at is not None
    ]
    world.course.run()

    waits: list[float] = []
    inside, errors, errors_of_mean = 0, [], []
    for each in stream:
        fate = world.course.results[CLUSTER, f"team/{each.state.name}"]
        assert fate.started_at is not None
        wait = (fate.started_at - fate.submitted_at) / 1e9
        expected = next((e for a, e in asked if a is each), None)
        if expected is not None and wait > 0:
            inside += holds(expected, fate.started_at)
            assert expected.at is not None
            errors.append(abs(nanoseconds(expected.at) - fate.started_at) / 1e9)
            errors_of_mean.append(abs(sum(waits) / len(waits) - wait))
        waits.append(wait)
    share = inside / len(errors)
    assert len(errors) >= 40
    assert 0.7 <= share <= 0.9
    assert median(errors) < median(errors_of_mean)
