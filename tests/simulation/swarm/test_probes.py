"""The safety mechanisms act in worlds: a scenario in which one never does fails."""

import io
from pathlib import Path

import pytest

from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.mechanisms import MECHANISMS, SHOWN_BY_TESTS
from services.simulator.scenarios.port import Verdict
from services.simulator.scenarios.runner import PROBED_SEEDS_MIN, run
from shared.telemetry import probes

ROOT = Path(__file__).parents[3]


def toy(monkeypatch: pytest.MonkeyPatch, *fired: str) -> None:
    def play(seed: int) -> Verdict:
        return Verdict(seed=seed, probes=dict.fromkeys(fired, 1))

    monkeypatch.setitem(SCENARIOS, "toy", play)
    monkeypatch.setattr(
        "services.simulator.scenarios.runner.MECHANISMS", {"toy": ("fence-refused", "put-off")}
    )


def test_run_prints_how_often_each_mechanism_acted(monkeypatch: pytest.MonkeyPatch) -> None:
    toy(monkeypatch, "fence-refused", "put-off")
    out = io.StringIO()

    assert run("toy", PROBED_SEEDS_MIN, jobs=1, out=out) == 0

    assert f"{PROBED_SEEDS_MIN}  fence-refused" in out.getvalue()
    assert probes.FENCE_REFUSED.says in out.getvalue()


def test_run_in_which_a_mechanism_never_acts_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    toy(monkeypatch, "fence-refused")
    out = io.StringIO()

    assert run("toy", PROBED_SEEDS_MIN, jobs=1, out=out) == 1

    assert "never acted: put-off" in out.getvalue()


def test_few_seeds_do_not_fail_for_a_silent_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    toy(monkeypatch, "fence-refused")
    out = io.StringIO()

    assert run("toy", 3, jobs=1, out=out) == 0

    assert "put-off" in out.getvalue()


def test_scenarios_and_probes_of_the_table_exist() -> None:
    assert set(MECHANISMS) <= set(SCENARIOS)
    assert {name for names in MECHANISMS.values() for name in names} <= set(probes.ALL)


def test_each_mechanism_belongs_to_a_scenario_or_to_a_test() -> None:
    required = {name for names in MECHANISMS.values() for name in names}
    assert required | SHOWN_BY_TESTS.keys() == set(probes.ALL)
    assert not required & SHOWN_BY_TESTS.keys()


@pytest.mark.parametrize(("name", "path"), SHOWN_BY_TESTS.items())
def test_mechanism_that_no_world_shows_has_to_act_in_its_test(name: str, path: str) -> None:
    [constant] = (key for key, value in vars(probes).items() if value is probes.ALL[name])
    assert f"probes.{constant}" in (ROOT / path).read_text(encoding="utf-8")


def test_world_counts_what_acted_in_it() -> None:
    first, second = SCENARIOS["basic"](3), SCENARIOS["basic"](3)
    assert first.probes == second.probes
    assert any(first.probes.values())
