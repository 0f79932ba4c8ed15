"""A mechanism that is taken out is missed; `make mutants` takes out every one."""

import io
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from services.simulator.mutants.plant import Mutant, planted
from services.simulator.mutants.results import MutantResult, Results
from services.simulator.mutants.runner import part, play, run
from services.simulator.mutants.table import MUTANTS
from services.simulator.mutants.unplanted import UNPLANTED
from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.port import Verdict
from services.simulator.source_state import state_of_source
from tests.simulation.long import long

SEEDS = 24
ROOT = Path(__file__).parents[3]


class Guard:
    """Something to take out, and what covers it."""

    def holds(self) -> bool:
        """Whether it is there."""
        return True

    def is_covered(self) -> bool:
        """Whether what covers it is there."""
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


COVER = mutant(name="cover", where=f"{__name__}:Guard.is_covered")


def toy(monkeypatch: pytest.MonkeyPatch, fails: Callable[[bool, bool], bool], **how: str) -> None:
    """A scenario that fails from seed 3 on, by whether the guard is gone and by whether its cover is."""

    def scenario(seed: int) -> Verdict:
        verdict = Verdict(seed=seed)
        if seed >= 3 and fails(not Guard().holds(), not Guard().is_covered()):
            if "only" in how:
                verdict.problems.append(how["only"])
            else:
                verdict.violated(["a quota is exceeded"])
        return verdict

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
    toy(monkeypatch, lambda guard, _cover: guard)
    result = play(mutant())
    assert (result.found, result.scenario, result.seed, result.played) == (True, "toy", 3, 3)


def test_violation_that_is_there_without_the_plant_is_no_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy(monkeypatch, lambda _guard, _cover: True)
    result = play(mutant(), seeds=5)
    assert not result.found
    assert "fails without it, too" in result.problem


def test_mechanism_that_another_covers_is_found_together_with_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy(monkeypatch, lambda guard, cover: guard and cover)
    assert not play(mutant(), seeds=5).found
    assert play(mutant(besides=COVER), seeds=5).found
    assert Guard().holds()
    assert Guard().is_covered()


@pytest.mark.parametrize(
    ("fails", "only"),
    [
        pytest.param(lambda guard, _cover: guard, "toy", id="what covers it adds nothing"),
        pytest.param(lambda _guard, cover: cover, "cover", id="what covers it is the only defence"),
    ],
)
def test_pair_of_which_one_alone_is_missed_is_no_find(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[bool, bool], bool], only: str
) -> None:
    toy(monkeypatch, fails)
    result = play(mutant(besides=COVER), seeds=5)
    assert not result.found
    assert result.problem == f"toy 5 fails if only {only}, too"


@pytest.mark.parametrize(
    "problem",
    [
        "after 900 s these have not ended: Job team-a/job-1",
        "process quota-1.1 ended by itself: KeyError",
        "nobody looked at how quota-1.1#7 ended: KeyError",
    ],
)
def test_delay_and_exception_are_no_finds(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    toy(monkeypatch, lambda guard, _cover: guard, only=problem)
    assert not play(mutant(), seeds=5).found


def test_judge_that_a_mutant_breaks_is_no_find(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(seed: int) -> Verdict:
        raise KeyError(seed)

    monkeypatch.setitem(SCENARIOS, "toy", scenario)
    assert not play(mutant(), seeds=5).found


def test_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(monkeypatch, lambda guard, _cover: guard)
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
    changed = state_of_source(tmp_path)
    assert changed.startswith(f"{before}-")
    added = source.with_name("b.py")  # Nobody has told git of it.
    added.write_text("b = 1\n", encoding="utf-8")
    first = state_of_source(tmp_path)
    added.write_text("b = 2\n", encoding="utf-8")
    assert len({changed, first, state_of_source(tmp_path)}) == 3


def test_table_names_each_mutant_once_and_scenarios_that_exist() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 30
    assert {name for one in MUTANTS for name in one.scenarios} <= set(SCENARIOS)


def test_each_decision_has_a_mutant_or_a_reason_why_it_has_none() -> None:
    decisions = {int(path.name[:4]) for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
    planted_for = {one.adr for one in MUTANTS} - {0}
    assert planted_for | UNPLANTED.keys() == decisions
    assert not planted_for & UNPLANTED.keys()


@pytest.mark.parametrize(("number", "why"), UNPLANTED.items())
def test_reason_against_a_mutant_names_tests_that_exist(number: int, why: str) -> None:
    named = re.findall(r"tests/[\w/]*\w(?:\.py)?", why)
    assert named or "ADR" in why, number
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_every_mutant_can_be_planted(one: Mutant) -> None:
    with planted(one):
        pass


def test_turns_play_each_mutant_once_but_those_that_few_worlds_show() -> None:
    table = [mutant(name=str(number), is_rare=number % 5 == 0) for number in range(40)]
    played = [one.name for turn in range(12) for one in part(table, turn=turn, turns=12)]
    assert sorted(played) == sorted(one.name for one in table if not one.is_rare)
    assert len(part(table, turn=12_345, turns=12)) in {2, 3}


@pytest.mark.parametrize(
    "name",
    [
        long("work is acknowledged before it is done"),
        long("what has to be tried later is acknowledged"),
        long("a job is released before its status is written"),
        "a leader decides before it has read its own term",
        "records of platforms have no fence",
        "keys of machines are not encrypted",
        "placeholders and claims stay behind",
    ],
)
def test_mutant_is_found_in_a_few_worlds(name: str) -> None:
    [one] = (one for one in MUTANTS if one.name == name)
    assert play(one, seeds=SEEDS).found
