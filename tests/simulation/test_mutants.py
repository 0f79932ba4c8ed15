"""A mechanism that is taken out is missed; `make mutants` takes out every one."""

import io
import subprocess
from pathlib import Path

import pytest

from services.simulator.mutants.plant import Mutant, planted
from services.simulator.mutants.results import MutantResult, Results, state_of_source
from services.simulator.mutants.runner import play, run, violations
from services.simulator.mutants.table import MUTANTS
from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.port import Verdict
from tests.simulation.long import long

SEEDS = 24


class Guard:
    """Something to take out."""

    def holds(self) -> bool:
        """Whether it is there."""
        return True


def mutant(**changes: object) -> Mutant:
    fields = {
        "name": "toy",
        "adr": 1,
        "where": f"{__name__}:Guard.holds",
        "make": lambda _original: lambda _self: False,
        "scenarios": ("toy",),
    }
    return Mutant(**(fields | changes))  # type: ignore[arg-type]


def toy(monkeypatch: pytest.MonkeyPatch, *problems: str, always: bool = False) -> None:
    def scenario(seed: int) -> Verdict:
        found = list(problems) if seed >= 3 and (always or not Guard().holds()) else []
        return Verdict(seed=seed, problems=found)

    monkeypatch.setitem(SCENARIOS, "toy", scenario)


def test_plant_is_taken_back_after_an_error() -> None:
    def fail() -> None:
        assert not Guard().holds()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), planted(mutant()):
        fail()
    assert Guard().holds()


def test_violation_in_a_seed_that_passes_without_the_plant_is_a_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy(monkeypatch, "a quota is exceeded")
    result = play(mutant())
    assert (result.found, result.scenario, result.seed, result.played) == (True, "toy", 3, 3)


def test_violation_that_is_there_without_the_plant_is_no_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy(monkeypatch, "a quota is exceeded", always=True)
    result = play(mutant(), seeds=5)
    assert not result.found
    assert "fails without it, too" in result.problem


@pytest.mark.parametrize(
    "problem",
    [
        "after 900 s these have not ended: Job team-a/job-1",
        "process quota-1.1 ended by itself: KeyError",
        "nobody looked at how quota-1.1#7 ended: KeyError",
        "the scenario itself failed: KeyError()",
    ],
)
def test_delay_and_exception_are_no_finds(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    toy(monkeypatch, problem)
    assert not play(mutant(), seeds=5).found
    assert violations(Verdict(seed=1, problems=[problem])) == []


def test_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(monkeypatch, "a quota is exceeded")
    kept = Results(tmp_path, "abc")
    kept.put("toy", MutantResult(found=True, scenario="toy", seed=3))
    out = io.StringIO()

    assert run([mutant()], Results(tmp_path, "abc"), jobs=1, out=out) == 0

    assert out.getvalue() == "mutants: 1 of 1 found\n"
    assert Results(tmp_path, "other").get("toy") is None


def test_state_of_the_source_changes_with_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    git("init", "--quiet")
    (tmp_path / "services").mkdir()
    source = tmp_path / "services" / "a.py"
    source.write_text("a = 1\n", encoding="utf-8")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    before = state_of_source(tmp_path)
    source.write_text("a = 2\n", encoding="utf-8")
    assert state_of_source(tmp_path).startswith(f"{before}-")


def test_table_names_each_mutant_once_and_scenarios_that_exist() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 30
    assert {name for one in MUTANTS for name in one.scenarios} <= set(SCENARIOS)


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_every_mutant_can_be_planted(one: Mutant) -> None:
    with planted(one):
        pass


@pytest.mark.parametrize(
    "name",
    [
        "work is acknowledged before it is done",
        long("what has to be tried later is acknowledged"),
        long("a job is released before its status is written"),
        "keys of machines are not encrypted",
        "placeholders and claims stay behind",
    ],
)
def test_mutant_is_found_in_a_few_worlds(name: str) -> None:
    [one] = (one for one in MUTANTS if one.name == name)
    assert play(one, seeds=SEEDS).found
